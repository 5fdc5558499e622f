"""Second attempts of unsure answers against fixed budgets, at equal tokens over many means.

The paper fixes one budget per tier and has no such table. By resolution, as a gateway serves: each half of the pages is
served by what the other half chose. Synthetic pages are of both splits, two questions of each tier on a page of
``calibration`` and four on one of ``test``. ``taken``: whether both choosing halves prefer options to fixed budgets, so
that ``calibrate`` would ship them.
"""

from collections.abc import Iterator, Mapping, Sequence

from stakes.data.synthetic import FAMILIES
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.samples import answerable, draw_samples
from stakes.experiments.escalation import Compared, adjusted_p, compare_at
from stakes.experiments.estimate import Ask, grid_asks
from stakes.experiments.study import RECEIPTS, Study
from stakes.experiments.table import MEASURED, Row, Table, format_p

OPTIONS, DATASETS = MEASURED, ("docvqa", "infographicvqa")
NAME = "escalation"
GRID = (32, 96, 160, 304, 448, 576)
MEANS = (96, 160, 224, 304, 384, 448, 512)
COSTS = {"high": 5.0, "low": 1.0}
PARTS = {"calibration": (3 / 7, 2), "test": (4 / 7, 4)}
"""Of the synthetic splits: the share of the questions, and how many of a tier are on one page."""
COLUMNS = (
    "source", "pages", "documents", "mean", "tokens", "uniform", "cost", "escalation", "cost and escalation", "gain",
    "p", "p, corrected", "taken", "high", "low",
)  # fmt: skip


def asks(study: Study) -> set[Ask]:
    """All questions at every budget."""
    groups = {f"{source} {part}": 2 * count for source in sources(study) for part, count in _counts(study).items()}
    return grid_asks(groups, "resolution", GRID)


def sources(study: Study) -> list[str]:
    """The sources of the data sets; receipts alone where they are given."""
    return [RECEIPTS] if RECEIPTS in study.data else [study.source(dataset) for dataset in DATASETS]


def _counts(study: Study) -> dict[str, int]:
    """Questions of each tier by split."""
    return {split: max(per_page, round(share * study.per_tier)) for split, (share, per_page) in PARTS.items()}


def measure(study: Study, source: str) -> list[Outcome]:
    """Every answer."""
    parts = {source: answerable(study.model, study.questions(source))[0]} if source not in FAMILIES else {
        f"{source}-{split}": draw_samples(source, split, count, study.signal, per_page=PARTS[split][1])
        for split, count in _counts(study).items()
    }  # fmt: skip
    found: list[Outcome] = []
    for name, samples in parts.items():
        grid = [[budget] * len(samples) for budget in GRID]
        found += study.answers(name, samples, grid, Setting("resolution", None, study.metric)).values()
    return found


def compare_halves(outcomes: Sequence[Outcome]) -> list[Compared]:
    """All arms at every mean, both halves of the documents chosen on and tested on."""
    first = set(list(dict.fromkeys(outcome.document for outcome in outcomes))[::2])
    halves = [[o for o in outcomes if (o.document in first) is inside] for inside in (True, False)]
    return [
        compare_at(halves[0], halves[1], COSTS, mean).joined(compare_at(halves[1], halves[0], COSTS, mean))
        for mean in MEANS
    ]


def table(study: Study) -> Table:
    """One row for each mean."""
    compared = {source: compare_halves(measure(study, source)) for source in sources(study)}
    return Table(
        name=NAME,
        title=f"Second attempts of unsure answers at equal tokens, r = 5: {study.name}, by resolution",
        columns=COLUMNS,
        rows=tuple(row for pages, found in compared.items() for row in _rows(study.name, pages, found)),
        findings=tuple(sentence for pages, found in compared.items() for sentence in _findings(pages, found)),
        meta={"model": study.name, "grid": GRID, "costs": COSTS, "mechanism": "resolution"},
    )


def _rows(source: str, pages: str, found: Sequence[Compared]) -> Iterator[Row]:
    for one, corrected in zip(found, adjusted_p(found), strict=True):
        cells = (one.cwe(arm) for arm in ("uniform", "cost", "escalation", "cost and escalation"))
        yield (
            source, pages, len(set(one.documents)), one.mean, round(one.mean_tokens("cost and escalation")), *cells,
            str(one.gain()), format_p(one.p()), format_p(corrected), "yes" if one.taken else "no",
            one.options["high"], one.options["low"],
        )  # fmt: skip


def _findings(pages: str, found: Sequence[Compared]) -> Iterator[str]:
    better = [one.mean for one, p in zip(found, adjusted_p(found), strict=True) if p < 0.01 and one.gain().value > 0]
    worse = [one.mean for one in found if one.taken and one.gain().high < 0]
    yield (
        f"{pages}: escalation by cost has a lower CWE than cost alone (p < 0.01 after Holm's correction over "
        f"{len(found)} means) at {', '.join(map(str, better)) or 'no mean'}"
    )
    yield (
        f"{pages}: calibrate takes it at {', '.join(str(one.mean) for one in found if one.taken) or 'no mean'}; where "
        f"it does, CWE is significantly higher than by cost alone at {', '.join(map(str, worse)) or 'no mean'}"
    )
    off = max(abs(_off(one, arm)) for one in found for arm in ("uniform", "cost"))
    yield f"{pages}: realised tokens of uniform and cost differ from those of escalation by cost by at most {off:.1%}"


def _off(one: Compared, arm: str) -> float:
    tokens: Mapping[str, float] = {name: one.mean_tokens(name) for name in (arm, "cost and escalation")}
    return tokens[arm] / tokens["cost and escalation"] - 1
