"""Second attempts of unsure answers against fixed budgets, at equal tokens over many means.

The paper fixes one budget per tier and has no such table. Options are chosen on pages of the split ``calibration`` (two
questions of each tier on a page) and compared on those of ``test`` (four), by resolution, as a gateway serves them.
``taken``: whether the choosing pages prefer options, so that ``calibrate`` would ship them. Of real pages, each half is
served by what the other half chose.
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
GRID = (32, 96, 160, 304, 448, 576, 768)
MEANS = (96, 160, 304, 448, 576, 768)
REAL_GRID, REAL_MEANS = (96, 160, 304, 448, 576), (160, 304, 448, 576)
COSTS = {"high": 5.0, "low": 1.0}
PER_PAGE = {"calibration": 2, "test": 4}
COLUMNS = (
    "source", "pages", "documents", "mean", "tokens", "uniform", "cost", "escalation", "cost and escalation", "gain",
    "p", "p, corrected", "taken", "high", "low",
)  # fmt: skip


def asks(study: Study) -> set[Ask]:
    """Pages to choose on and pages to test on, at every budget."""
    groups = {f"{source} {split}": 2 * count for source in sources(study) for split, count in _counts(study).items()}
    return grid_asks(groups, "resolution", GRID)


def sources(study: Study) -> list[str]:
    """The sources of the data sets; receipts alone where they are given."""
    return [RECEIPTS] if RECEIPTS in study.data else [study.source(dataset) for dataset in DATASETS]


def _counts(study: Study) -> dict[str, int]:
    """Questions of each tier: of 60 pages to choose on for each 100 to test on."""
    documents = max(2, study.per_tier // PER_PAGE["test"])
    return {
        "calibration": PER_PAGE["calibration"] * max(2, 3 * documents // 5),
        "test": PER_PAGE["test"] * documents,
    }


def measure(study: Study, family: str) -> dict[str, list[Outcome]]:
    """Every answer to the pages of both splits."""
    found = {}
    for split, count in _counts(study).items():
        samples = draw_samples(family, split, count, per_page=PER_PAGE[split])
        grid = [[budget] * len(samples) for budget in GRID]
        outcomes = study.answers(f"{family}-{split}", samples, grid, Setting("resolution", None, study.metric))
        found[split] = list(outcomes.values())
    return found


def compare_family(study: Study, family: str) -> list[Compared]:
    """All arms at every mean."""
    found = measure(study, family)
    return [compare_at(found["calibration"], found["test"], COSTS, mean) for mean in MEANS]


def compare_halves(study: Study, source: str) -> list[Compared]:
    """The same on real pages, both halves of which are chosen on and tested on."""
    samples, _ = answerable(study.model, study.questions(source))
    grid = [[budget] * len(samples) for budget in REAL_GRID]
    answers = study.answers(source, samples, grid, Setting("resolution", None, study.metric)).values()
    first = set(list(dict.fromkeys(sample.document for sample in samples))[::2])
    halves = [[o for o in answers if (o.document in first) is inside] for inside in (True, False)]
    return [
        compare_at(halves[0], halves[1], COSTS, mean).joined(compare_at(halves[1], halves[0], COSTS, mean))
        for mean in REAL_MEANS
    ]


def table(study: Study) -> Table:
    """One row for each mean."""
    compared: dict[str, list[Compared]] = {
        source: compare_family(study, source) if source in FAMILIES else compare_halves(study, source)
        for source in sources(study)
    }
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
