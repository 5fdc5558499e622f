"""Second attempts of unsure answers and predicted budgets against fixed budgets, at equal tokens over many means.

The paper fixes one budget per tier and has no such table. By resolution, as a gateway serves: each half of the pages is
served by what the other half chose. Synthetic pages, with one question of each tier on a page: each family by itself,
and ``mixed``, all families in the same tiers, as an inbox has them. ``taken``: whether both choosing halves prefer
options to fixed budgets, so that ``calibrate`` would ship them. p-values are corrected by Holm's method over all
comparisons of a row's pages and cost ratio.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from stakes.calibration.escalation.answers import Statistics
from stakes.calibration.escalation.choose import OptionRules, page_statistics_of
from stakes.data.sample import Sample
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.samples import answerable, draw_samples
from stakes.experiments.escalation import Compared, adjusted_p, compare_at
from stakes.experiments.estimate import Ask, grid_asks
from stakes.experiments.study import RECEIPTS, Study
from stakes.experiments.table import MEASURED, Row, Table, format_p

OPTIONS, DATASETS = MEASURED, ("docvqa", "infographicvqa")
NAME = "escalation"
FAMILIES = ("forms", "receipts", "infographics", "charts", "signs")
GRID = (32, 64, 96, 160, 224, 304, 448, 576, 832)
RECEIPTS_GRID = GRID[:-1]  # real receipts have 640 tokens
MEANS = (96, 160, 224, 304, 384, 448, 512)
KINDS = {
    "second attempts": OptionRules(predict=False),
    "predicted budgets": OptionRules(escalate=False),
    "both": OptionRules(),
}
RATIOS = (5.0, 10.0)
START = 40_000  # the first seed: pages that no other table shows
COLUMNS = (
    "pages", "documents", "r", "options", "mean", "tokens", "uniform", "cost", "options alone", "cost and options",
    "gain", "p", "p, corrected", "taken",
)  # fmt: skip


class Pages(NamedTuple):
    """The answers on one source of pages, and the statistics of its images."""

    name: str
    outcomes: Sequence[Outcome]
    statistics: Statistics


def asks(study: Study) -> set[Ask]:
    """All questions at every budget."""
    return grid_asks(dict.fromkeys(sources(study), 2 * study.per_tier), "resolution", GRID)


def sources(study: Study) -> list[str]:
    """The families, or the real data that is given in their place."""
    if RECEIPTS in study.data:
        return [RECEIPTS]
    return [study.source(dataset) for dataset in DATASETS if dataset in study.data] or list(FAMILIES)


def pages_of(study: Study, family: str) -> list[Sample]:
    """One question of each tier on each of ``per_tier`` pages that have the tokens of the largest budget."""
    drawn = draw_samples(family, "test", 2 * study.per_tier, study.signal, per_page=1, start=START)
    large = [sample for sample in drawn if sample.size[0] * sample.size[1] >= 28 * 28 * GRID[-1]]
    names = set(list(dict.fromkeys(sample.document for sample in large))[: study.per_tier])
    return study.without_margins([sample for sample in large if sample.document in names], GRID[-1])


def measure(study: Study, source: str) -> Pages:
    """Every answer."""
    drawn = source in FAMILIES
    samples = pages_of(study, source) if drawn else answerable(study.model, study.questions(source))[0]
    grid = [[budget] * len(samples) for budget in (GRID if drawn else RECEIPTS_GRID)]
    setting = Setting("resolution", None, study.metric)
    found = study.answers(f"escalation-{source}" if drawn else source, samples, grid, setting)
    return Pages(source, list(found.values()), page_statistics_of(samples))


def compare_halves(pages: Pages, ratio: float, kinds: Sequence[str], means: Sequence[int]) -> dict[str, list[Compared]]:
    """All arms at every mean by kind of option, both halves of the documents chosen on and tested on."""
    first = set(list(dict.fromkeys(outcome.document for outcome in pages.outcomes))[::2])
    halves = [[o for o in pages.outcomes if (o.document in first) is inside] for inside in (True, False)]
    costs = {"high": ratio, "low": 1.0}

    def both(mean: int, rules: OptionRules) -> Compared:
        one, other = halves
        found = compare_at(one, other, costs, mean, rules, pages.statistics)
        return found.joined(compare_at(other, one, costs, mean, rules, pages.statistics))

    return {kind: [both(mean, KINDS[kind]) for mean in means] for kind in kinds}


def table(study: Study) -> Table:
    """One row for each kind of option and mean; single families, with both kinds, are in the findings."""
    single = [measure(study, source) for source in sources(study)]
    rows, findings = list[Row](), list[str]()
    if len(single) > 1:
        outcomes = [outcome for pages in single for outcome in pages.outcomes]
        mixed = Pages("mixed", outcomes, {key: value for pages in single for key, value in pages.statistics.items()})
        for ratio in RATIOS:
            found = compare_halves(mixed, ratio, list(KINDS), MEANS)
            rows += _rows(mixed, ratio, found)
            findings += _findings(mixed, ratio, found)
    for pages in single:
        found = compare_halves(pages, RATIOS[0], ["both"] if len(single) > 1 else list(KINDS), MEANS)
        findings += _findings(pages, RATIOS[0], found)
        rows += _rows(pages, RATIOS[0], found) if len(single) == 1 else ()
    return Table(
        name=NAME,
        title=f"Second attempts and predicted budgets at equal tokens: {study.name}, by resolution",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=tuple(findings),
        meta={"model": study.name, "grid": GRID, "ratios": RATIOS, "mechanism": "resolution"},
    )


def _corrected(found: Mapping[str, Sequence[Compared]]) -> dict[str, list[float]]:
    """The corrected p-values by kind."""
    values = iter(adjusted_p([one for several in found.values() for one in several]))
    return {kind: [next(values) for _ in several] for kind, several in found.items()}


def _rows(pages: Pages, ratio: float, found: Mapping[str, Sequence[Compared]]) -> Iterator[Row]:
    corrected = _corrected(found)
    for kind, several in found.items():
        for one, p in zip(several, corrected[kind], strict=True):
            cells = (one.cwe(arm) for arm in ("uniform", "cost", "options", "cost and options"))
            yield (
                pages.name, len(set(one.documents)), f"{ratio:g}", kind, one.mean,
                round(one.mean_tokens("cost and options")), *cells, str(one.gain()), format_p(one.p()), format_p(p),
                "yes" if one.taken else "no",
            )  # fmt: skip


def _findings(pages: Pages, ratio: float, found: Mapping[str, Sequence[Compared]]) -> Iterator[str]:
    corrected, who = _corrected(found), f"{pages.name}, {len(set(found['both'][0].documents))} documents, r = {ratio:g}"
    for kind, several in found.items():
        pairs = list(zip(several, corrected[kind], strict=True))
        better, worse = (
            [str(one.mean) for one, p in pairs if p < 0.01 and sign * one.gain().value > 0] for sign in (1, -1)
        )
        taken = [one for one in several if one.taken]
        bad = [str(one.mean) for one in taken if one.gain().high < 0]
        yield (
            f"{who}, {kind}: CWE is lower than by cost alone (p < 0.01, corrected) at {_means(better)} and higher at "
            f"{_means(worse)}; gains of {min(one.gain().value for one in several):+.3f} to "
            f"{max(one.gain().value for one in several):+.3f}; calibrate takes it at "
            f"{_means([str(one.mean) for one in taken])}, of which CWE is higher by the 95 % interval at {_means(bad)}"
        )
    every = [one for several in found.values() for one in several]
    off = max(abs(one.mean_tokens("cost") / one.mean_tokens("cost and options") - 1) for one in every)
    yield f"{who}: realised tokens of cost and of options by cost differ by at most {off:.1%}"


def _means(means: Sequence[str]) -> str:
    return ", ".join(means) or "no mean"
