"""Measure legibility on real pages: load DocVQA, ChartQA and SROIE, and compute curves, arms and choices of one set.

A folder holds ``docvqa/``, ``chartqa/`` and ``sroie/``, each with ``questions.jsonl`` and the images that it names.
Pages are resampled to a longer side of 1008 pixels when they are read (ChartQA's charts are enlarged, receipts shrunk),
so that all sets see the same budgets. Pages with fewer than 640 native tokens are left out by name, as in the paper.
With ``trim`` margins are cut off the pages that remain, and a page is enlarged where fewer than 640 tokens are left.

Two arms are added to the paper's, at the same total:

    print        tokens in proportion to ``native * (11 / h)^2``, which keeps a page's small print legible
    cost+print   the cost arm's total of each tier, shared within the tier by the same weights

h is the height of the smallest tenth of a page's characters at native size (``small_print_height``): a content signal
by what a reader needs, where ``content`` uses the dissimilarity of the page's patches.

All figures are of the questions whose answer was located at native size. The number of excluded questions, and the
error if those counted as lost, are reported beside them; the latter is nearer to a VLM's error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from stakes.budgets.curve import PAPER_GRID, PAPER_MEAN, Curve
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.frontier import Change, change_ratios, sweep
from stakes.calibration import arms as arm_budgets
from stakes.calibration.arms.comparison import Comparison, EqualTotals, compare
from stakes.calibration.arms.plan import least_budget, plan_arms, resized_budgets
from stakes.calibration.holdout import HalfResult, HeldOut, held_out, split_half
from stakes.data.sample import Sample, read_samples
from stakes.data.trim import trim_samples
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.runner import Key
from stakes.evaluation.samples import prepare_samples
from stakes.evaluation.slopes import SlopeTest, slope_test
from stakes.evaluation.statistics import Discordant, Gain, cwe_gain, discordant
from stakes.experiments.legibility.agreement import rank_correlation
from stakes.experiments.study import LEAST_TOKENS, Study, enlarged, fixed_policy, scale_page
from stakes.legibility.model import Legibility
from stakes.legibility.word_map import small_print_tokens
from stakes.vision.geometry import count_tokens
from stakes.vision.image.resize import fitted_size

SETS = ("docvqa", "chartqa", "sroie")
SIDE, FAMILY = 1008, "qwen2.5-vl"
QUESTIONS = "questions.jsonl"

TIERS = ("high", "low")
COSTS = {"high": 5.0, "low": 1.0}
ARM_BUDGETS = {"high": 512, "low": 96}
TOTAL = 2 * PAPER_MEAN
SCARCE_MEAN = 224
TALLEST = 20  # pixels; answers this high or higher are one row of ``by_height``


def real_set(folder: Path, name: str, trim: bool = False) -> tuple[list[Sample], list[str]]:
    """The samples of ``folder/name`` with tiers as labelled and pages scaled, and the ids of those left out as small.

    A page is small when it, margins included, has fewer than LEAST_TOKENS.
    """
    path = folder / name / QUESTIONS
    if not path.is_file():
        raise BadInput(f"there is no {path}; give --data a folder with {', '.join(SETS)}, each with {QUESTIONS}")
    samples = [scale_page(sample, SIDE) for sample in prepare_samples(read_samples(path), path.parent)]
    small = [sample.id for sample in samples if count_tokens(FAMILY, *sample.size) < LEAST_TOKENS]
    large = [sample for sample in samples if sample.id not in small]
    if trim:
        large = [enlarged(sample, FAMILY) for sample in trim_samples(large, lambda *_: True)]
    return large, small


@dataclass(frozen=True)
class RealArms:
    """The arms against uniform, what they spent, and what ``cost+print`` adds to the cost arm."""

    comparison: Comparison
    total: int
    deviation: float
    composed: Gain
    """CWE of cost minus CWE of cost+print."""
    composed_high_cost: Discordant
    ranges: Mapping[str, tuple[int, int, int]]
    """The 5th, 50th and 95th percentile of the budgets of content and print."""
    content_print_rank: float
    """Spearman's correlation of these budgets over samples."""


def real_arms(
    study: Study,
    model: Legibility,
    source: str,
    samples: Sequence[Sample],
    budgets: Mapping[str, int],
    costs: Mapping[str, float],
) -> RealArms:
    """Plan, read and compare the arms; the tiers' ``budgets`` fix the total."""
    tiers = [sample.tier for sample in samples]
    setting = Setting("resolution", None, study.metric)
    plan = plan_arms(samples, fixed_policy(model.family, "resolution", budgets, costs, tiers), model, setting)
    native = [model.native_tokens(*sample.size, "resolution") for sample in samples]
    floor = max(least_budget(sample, model.family) for sample in {sample.size: sample for sample in samples}.values())
    weights = print_weights(model, samples, native)
    nominal = {
        "print": arm_budgets.content(weights, plan.total, native=native, floor=floor),
        "cost+print": share_within_tiers(tiers, plan.nominal["cost"], weights, native, floor),
    }
    by_content = {"content": plan.nominal["content"], "print": nominal["print"]}
    sizes = [sample.size for sample in samples]
    arms = {**plan.budgets, **resized_budgets(sizes, nominal, tiers, model.family, plan.total)}
    EqualTotals(plan.samples, native, plan.mechanism).check_realised(arms)
    outcomes = study.answer_arms(source, samples, arms, setting)
    comparison = compare(outcomes, costs)
    cost, both = ([outcome.correct for outcome in outcomes[arm]] for arm in ("cost", "cost+print"))
    high_cost = [i for i, tier in enumerate(tiers) if tier == comparison.most_expensive]
    percentiles = {arm: np.percentile(row, [5, 50, 95]) for arm, row in by_content.items()}
    return RealArms(
        comparison=comparison,
        total=plan.total,
        deviation=plan.check_realised(outcomes),
        composed=cwe_gain(cost, both, [costs[tier] for tier in tiers], [sample.document for sample in samples]),
        composed_high_cost=discordant(
            [cost[i] for i in high_cost], [both[i] for i in high_cost], [samples[i].document for i in high_cost]
        ),
        ranges={arm: (round(low), round(mid), round(high)) for arm, (low, mid, high) in percentiles.items()},
        content_print_rank=rank_correlation(*by_content.values()),
    )


def print_weights(model: Legibility, samples: Sequence[Sample], native: Sequence[int]) -> list[float]:
    """The tokens that keep each sample's page legible, computed once per page."""
    pages = {sample.digest: (sample, tokens) for sample, tokens in zip(samples, native, strict=True)}
    needed = {page: round(small_print_tokens(model.native_lines(one), n), 3) for page, (one, n) in pages.items()}
    return [needed[sample.digest] for sample in samples]


def share_within_tiers(
    tiers: Sequence[str], cost: Sequence[int], weights: Sequence[float], native: Sequence[int], floor: int
) -> tuple[int, ...]:
    """The cost arm with each tier's total shared by the weights."""
    shared = [0] * len(tiers)
    for tier in dict.fromkeys(tiers):
        at = [i for i, name in enumerate(tiers) if name == tier]
        total = sum(cost[i] for i in at)
        parts = arm_budgets.content([weights[i] for i in at], total, native=[native[i] for i in at], floor=floor)
        for i, part in zip(at, parts, strict=True):
            shared[i] = part
    return tuple(shared)


@dataclass(frozen=True)
class SetResult:
    """Everything measured on one set."""

    name: str
    documents: int
    counts: Mapping[str, int]
    excluded: Mapping[str, int]
    too_small: int
    one_location: Mapping[str, int]
    """Questions whose answer is printed at one location only."""
    length: Mapping[str, float]
    """The median length of an answer, in characters."""
    curves: Mapping[str, Curve]
    one_location_curves: Mapping[str, Curve]
    legible_by_height: Mapping[int, tuple[int, float]]
    """Answers of one location, by the pixels of their line's box at a budget: (count, share legible)."""
    slopes: SlopeTest
    arms: RealArms
    optimum: Mapping[float, tuple[int, int]]
    """The best pair of budgets that add up to 608, by cost ratio."""
    changes: Sequence[Change]
    split_half: Mapping[float, HalfResult]
    held_out: HeldOut
    scarce: HeldOut
    """The same at a mean of 224: the published VLM needs about 1.4 times the tokens that legibility needs."""

    def if_excluded_were_lost(self, tier: str, budget: int) -> float:
        """The error if every excluded question counted as lost."""
        n, excluded = self.counts[tier], self.excluded.get(tier, 0)
        return (self.curves[tier].error(budget) * n + excluded) / (n + excluded)

    def record(self) -> dict[str, object]:
        """As JSON; contains no text of a page, question or answer."""
        lost = {t: [self.if_excluded_were_lost(t, b) for b in curve.budgets] for t, curve in self.curves.items()}
        return {**asdict(self), "if_excluded_were_lost": lost}


def measure_set(
    study: Study, model: Legibility, name: str, samples: Sequence[Sample], excluded: Mapping[str, int], too_small: int
) -> tuple[SetResult, list[Outcome]]:
    """Read every page at the paper's 13 budgets and at the arms'; returns the result and the 13 budgets' outcomes."""
    grid = study.answers(name, samples, [[budget] * len(samples) for budget in PAPER_GRID])
    outcomes = list(grid.values())
    curves = curves_from_outcomes(outcomes)
    one_location = {sample.id for sample in samples if len(model.locations[sample.id]) == 1}
    by_tier = {tier: [sample for sample in samples if sample.tier == tier] for tier in TIERS}
    correct = {tier: [[grid[s.id, b].correct for b in PAPER_GRID] for s in rows] for tier, rows in by_tier.items()}
    documents = {tier: [sample.document for sample in rows] for tier, rows in by_tier.items()}
    best = sweep(curves["high"], curves["low"], TOTAL)
    result = SetResult(
        name=name,
        documents=len({sample.document for sample in samples}),
        counts={tier: len(rows) for tier, rows in by_tier.items()},
        excluded=excluded,
        too_small=too_small,
        one_location=dict(sorted(Counter(s.tier for s in samples if s.id in one_location).items())),
        length={tier: median(len(sample.answers[0]) for sample in rows) for tier, rows in by_tier.items()},
        curves={tier: curves[tier] for tier in TIERS},
        one_location_curves=curves_from_outcomes([o for o in outcomes if o.sample in one_location]),
        legible_by_height=legible_by_height(model, [s for s in samples if s.id in one_location], grid),
        slopes=slope_test(correct, documents, PAPER_GRID),
        arms=real_arms(study, model, name, samples, ARM_BUDGETS, COSTS),
        optimum={ratio: (found.budgets["high"], found.budgets["low"]) for ratio, found in best.items()},
        changes=change_ratios(curves["high"], curves["low"], TOTAL),
        split_half=split_half(correct, PAPER_GRID, TOTAL),
        held_out=held_out(outcomes, COSTS, PAPER_MEAN),
        scarce=held_out(outcomes, COSTS, SCARCE_MEAN),
    )
    return result, outcomes


def legible_by_height(
    model: Legibility, samples: Sequence[Sample], grid: Mapping[Key, Outcome]
) -> dict[int, tuple[int, float]]:
    """(count, share legible) by the height of the text in pixels, over all budgets; TALLEST includes larger text."""
    correct: dict[int, list[bool]] = {}
    for sample in samples:
        (location,) = model.locations[sample.id]
        for budget in PAPER_GRID:
            size = fitted_size(*sample.size, budget, model.family)
            height = min(int(location.height * size.height / sample.size[1]), TALLEST)
            correct.setdefault(height, []).append(grid[sample.id, budget].correct)
    return {height: (len(rows), sum(rows) / len(rows)) for height, rows in sorted(correct.items())}
