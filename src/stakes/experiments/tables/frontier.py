"""The frontier: error against tokens for each tier, and which split of one total is best at which cost ratio.

Every question at the paper's 13 budgets; pairs of budgets that add up to 608; the optimum at each cost ratio; the
split-half test; and the calibrated optimum, chosen on one half of the documents, against uniform on the other half.
Paper, tables "Measured frontier" and "Token-response curves", figure "The allocation frontier".
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import PAPER_GRID, Curve
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.frontier import Pair, frontier
from stakes.budgets.marginals import central_marginal
from stakes.calibration.holdout import held_out, split_half
from stakes.errors import StakesError
from stakes.evaluation.items import Asked
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.slopes import SlopeTest, slope_test
from stakes.evaluation.statistics import RATIOS
from stakes.experiments.study import Study
from stakes.experiments.table import Cell, Table, spell_interval, spell_slopes
from stakes.published import figures

TOTAL, UNIFORM = 608, 304
SHOWN = (1, 3, 5, 10)
COSTS = {"high": 5.0, "low": 1.0}


def answers(study: Study) -> int:
    """How many answers it takes."""
    return len(PAPER_GRID) * 2 * study.per_tier


def measure(study: Study, dataset: str = "docvqa") -> tuple[list[Asked], list[Outcome]]:
    """Every question at the 13 budgets."""
    source = study.source(dataset)
    asked = study.questions(source)
    found = study.answers(source, asked, [[budget] * len(asked) for budget in PAPER_GRID])
    return asked, list(found.values())


def table(study: Study) -> Table:
    """Pairs of one total with their CWE, ours above the published ones."""
    source = study.source("docvqa")
    asked, outcomes = measure(study)
    curves, correct = curves_from_outcomes(outcomes), by_tier(asked, outcomes)
    pairs = frontier(curves["high"], curves["low"], TOTAL)
    printed = figures()["frontier"]
    theirs: list[tuple[Cell, ...]] = [
        ("published", f"({p['high']}, {p['low']})", p["e_high"], p["e_low"], *(p["cwe"][str(r)] for r in SHOWN))
        for p in printed
    ]
    return Table(
        name="frontier",
        title=f"The allocation frontier: {study.name} on {source}, by {study.mechanism}",
        columns=("source", "(high, low)", "E high", "E low", *(f"CWE r = {r}" for r in SHOWN)),
        rows=(*(_row(pair, study.name) for pair in pairs if pair.high >= pair.low), *theirs),
        findings=(*_optima(pairs), *_slopes(curves, slopes(asked, correct)), *_halves(correct), *_calibrated(outcomes)),
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


def by_tier(asked: Sequence[Asked], outcomes: Sequence[Outcome]) -> dict[str, NDArray[np.bool_]]:
    """(questions, 13) whether each was right, for each tier."""
    right = {(outcome.sample, outcome.budget): outcome.correct for outcome in outcomes}
    return {
        tier: np.array([[right[one.id, budget] for budget in PAPER_GRID] for one in asked if one.tier == tier])
        for tier in ("high", "low")
    }


def _row(pair: Pair, source: str) -> tuple[Cell, ...]:
    return (
        source,
        f"({pair.high}, {pair.low})",
        pair.error_high,
        pair.error_low,
        *(pair.cwe(r) for r in SHOWN),
    )


def _optima(pairs: Sequence[Pair]) -> list[str]:
    """The best pair at each cost ratio beside the published one; ties go to the more even pair."""
    printed, said = figures()["frontier_optimum"], []
    for ratio in RATIOS:
        best = min(pairs, key=lambda pair: (round(pair.cwe(ratio), 12), abs(pair.high - pair.low)))
        even = next(pair for pair in pairs if pair.high == pair.low)
        theirs = "({}, {})".format(*printed[f"{ratio:g}"])
        gap = even.cwe(ratio) - best.cwe(ratio)
        said.append(
            f"r = {ratio:g}: best ({best.high}, {best.low}), {gap:.3f} below uniform in CWE; published best {theirs}"
        )
    return said


def slopes(asked: Sequence[Asked], correct: Mapping[str, NDArray[np.bool_]]) -> SlopeTest | None:
    """Whether the tiers respond to tokens alike; None where a tier's answers are all right or all wrong."""
    documents = {tier: [one.document for one in asked if one.tier == tier] for tier in correct}
    try:
        return slope_test(correct, documents, PAPER_GRID)
    except StakesError:
        return None


def _slopes(curves: Mapping[str, Curve], test: SlopeTest | None) -> list[str]:
    """Do the tiers respond to tokens alike? Central differences at uniform, and a test over the whole grid."""
    high, low = (central_marginal(curves[tier], UNIFORM) for tier in ("high", "low"))
    printed = figures()["curves_docvqa"]["marginals_at_uniform"]
    return [
        f"fall in error per token at {UNIFORM}: high {-high.per_token:.5f}, low {-low.per_token:.5f} (published "
        f"{printed['high']:.5f}, {printed['low']:.5f})",
        "no slopes can be compared" if test is None else spell_slopes(test) + " (published: not told apart)",
    ]


def _halves(correct: Mapping[str, NDArray[np.bool_]]) -> list[str]:
    """The pick on odd questions, ranked on even ones."""
    printed = figures()["split_half"]["rank_of_13"]
    found = split_half(correct, PAPER_GRID, TOTAL)
    ranks = ", ".join(f"r = {r:g}: {half.rank} of {half.of} (gap {half.gap:.3f})" for r, half in found.items())
    theirs = ", ".join(f"{r}: {rank}" for r, rank in printed.items())
    return [f"split-half rank of the pick: {ranks}; published ranks {theirs}"]


def _calibrated(outcomes: Sequence[Outcome]) -> list[str]:
    """The optimum chosen on half of the documents against uniform on the other half, at r = 5."""
    try:
        found = held_out(outcomes, COSTS, UNIFORM, None)
    except StakesError as error:
        return [f"the calibrated optimum was not tested on held-out documents: {error}"]
    printed = figures()["deployed_r5"]
    return [
        f"calibrated optimum against uniform on held-out documents: CWE gain {found.gain}; "
        f"published, on the sample of the choice, (576, 32): "
        f"{spell_interval(printed['delta_cwe_ci'])}"
    ]
