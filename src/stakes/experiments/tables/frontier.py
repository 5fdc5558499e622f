"""13 budgets, cost ratios, the split-half test and the held-out optimum.

Every question at the paper's 13 budgets; pairs of budgets that add up to 608; the optimum at each cost ratio; the
split-half test; and the calibrated optimum, chosen on one half of the documents, against uniform on the other half.
Paper, tables "Measured frontier" and "Token-response curves", figure "The allocation frontier".
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import PAPER_GRID, Curve
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.frontier import Pair, central_marginal, frontier
from stakes.calibration.holdout import held_out, split_half
from stakes.data.sample import Sample
from stakes.errors import StakesError
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.slopes import SlopeTest, slope_test
from stakes.evaluation.statistics import RATIOS
from stakes.experiments.estimate import Ask, grid_asks, how
from stakes.experiments.study import Study
from stakes.experiments.table import EITHER_MECHANISM, Row, Table, format_interval, format_slopes
from stakes.published import figures

OPTIONS, DATASETS = EITHER_MECHANISM, ("docvqa",)
TOTAL, UNIFORM = 608, 304
SHOWN = (1, 3, 5, 10)
COSTS = {"high": 5.0, "low": 1.0}


def asks(study: Study) -> set[Ask]:
    """Both tiers at the 13 budgets."""
    source = study.source("docvqa")
    groups = {f"{source} {tier}": study.count(source) for tier in COSTS}
    return grid_asks(groups, how(study.mechanism), PAPER_GRID)


def measure(study: Study, dataset: str = "docvqa") -> tuple[list[Sample], list[Outcome]]:
    """Every question at the 13 budgets."""
    source = study.source(dataset)
    samples = study.questions(source)
    outcomes = study.answers(source, samples, [[budget] * len(samples) for budget in PAPER_GRID])
    return samples, list(outcomes.values())


def table(study: Study) -> Table:
    """Pairs of one total with their CWE, ours above the published rows."""
    source = study.source("docvqa")
    samples, outcomes = measure(study)
    curves, correct = curves_from_outcomes(outcomes), by_tier(samples, outcomes)
    pairs = frontier(curves["high"], curves["low"], TOTAL)
    rows: list[Row] = [
        (study.name, f"({pair.high}, {pair.low})", pair.error_high, pair.error_low, *map(pair.cwe, SHOWN))
        for pair in pairs
        if pair.high >= pair.low
    ]
    rows += [
        ("published", f"({p['high']}, {p['low']})", p["e_high"], p["e_low"], *(p["cwe"][str(r)] for r in SHOWN))
        for p in figures()["frontier"]
    ]
    test = compare_slopes(samples, correct)
    return Table(
        name="frontier",
        title=f"The allocation frontier: {study.name} on {source}, by {study.mechanism}",
        columns=("source", "(high, low)", "E high", "E low", *(f"CWE r = {r}" for r in SHOWN)),
        rows=tuple(rows),
        findings=(*_optima(pairs), *_slopes(curves, test), _split_half(correct), _calibrated(outcomes)),
        meta={
            "model": study.name,
            "data": source,
            "split": study.split,
            "questions": {tier: curve.counts[0] for tier, curve in curves.items()},
            "mechanism": study.mechanism,
            "curves": {tier: dict(zip(c.budgets, c.errors, strict=True)) for tier, c in curves.items()},
            "published_curves": {tier: figures()["curves_docvqa"][tier] for tier in ("high", "low")},
        },
    )


def by_tier(samples: Sequence[Sample], outcomes: Sequence[Outcome]) -> dict[str, NDArray[np.bool_]]:
    """Whether each answer was right, for each tier: shape (samples of the tier, 13)."""
    right = {(outcome.sample, outcome.budget): outcome.correct for outcome in outcomes}
    return {
        tier: np.array([[right[one.id, budget] for budget in PAPER_GRID] for one in samples if one.tier == tier])
        for tier in ("high", "low")
    }


def compare_slopes(samples: Sequence[Sample], correct: Mapping[str, NDArray[np.bool_]]) -> SlopeTest | None:
    """Whether the tiers respond to tokens alike; None where a tier's answers are all right or all wrong."""
    documents = {tier: [sample.document for sample in samples if sample.tier == tier] for tier in correct}
    try:
        return slope_test(correct, documents, PAPER_GRID)
    except StakesError:
        return None


def _optima(pairs: Sequence[Pair]) -> list[str]:
    """The best pair at each cost ratio beside the published one; ties go to the more even pair."""
    printed, sentences = figures()["frontier_optimum"], []
    uniform = next(pair for pair in pairs if pair.high == pair.low)
    for ratio in RATIOS:
        best = min(pairs, key=lambda pair: (round(pair.cwe(ratio), 12), abs(pair.high - pair.low)))
        gap, published = uniform.cwe(ratio) - best.cwe(ratio), "({}, {})".format(*printed[f"{ratio:g}"])
        sentences.append(
            f"r = {ratio:g}: best ({best.high}, {best.low}), {gap:.3f} below uniform in CWE; published best {published}"
        )
    return sentences


def _slopes(curves: Mapping[str, Curve], test: SlopeTest | None) -> list[str]:
    """Central differences at uniform, and the test over the whole grid."""
    high, low = (central_marginal(curves[tier], UNIFORM) for tier in ("high", "low"))
    printed = figures()["curves_docvqa"]["marginals_at_uniform"]
    return [
        f"fall in error per token at {UNIFORM}: high {0 - high.per_token:.5f}, low {0 - low.per_token:.5f} (published "
        f"{printed['high']:.5f}, {printed['low']:.5f})",
        "no slopes can be compared" if test is None else format_slopes(test) + " (published: not significant)",
    ]


def _split_half(correct: Mapping[str, NDArray[np.bool_]]) -> str:
    """The rank on even questions of the pair chosen on odd ones."""
    halves = split_half(correct, PAPER_GRID, TOTAL)
    ranks = ", ".join(f"r = {r:g}: {half.rank} of {half.of} (gap {half.gap:.3f})" for r, half in halves.items())
    published = ", ".join(f"{r}: {rank}" for r, rank in figures()["split_half"]["rank_of_13"].items())
    return f"split-half rank of the pick: {ranks}; published ranks {published}"


def _calibrated(outcomes: Sequence[Outcome]) -> str:
    """The optimum chosen on half of the documents against uniform on the other half, at r = 5."""
    try:
        gain = held_out(outcomes, COSTS, UNIFORM, None).gain
    except StakesError as error:
        return f"the calibrated optimum was not tested on held-out documents: {error}"
    interval = format_interval(figures()["deployed_r5"]["delta_cwe_ci"])
    return (
        f"calibrated optimum against uniform on held-out documents: CWE gain {gain}; "
        f"published, on the sample of the choice, (576, 32): {interval}"
    )
