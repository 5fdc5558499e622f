"""Content, consequence or both? The paper's arms, and two that go by the print of a page, at one and the same total.

    print        tokens in proportion to what keeps a page's small print legible, ``native · (11 / h)²``
    cost+print   each tier's share of the cost arm, within the tier in proportion to the same

h is the height of the lowest tenth of a page's characters (``ocr_map.print_height``), read at native size: a content
signal that goes by what a reader needs, where ``content`` goes by how unlike the page's patches are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from stakes.calibration import arms as ways
from stakes.calibration.arms.comparison import Comparison, Ledger, compare
from stakes.calibration.arms.plan import least_budget, plan_arms, resized_budgets
from stakes.evaluation.items import Asked
from stakes.evaluation.statistics import Discordant, Gain, cwe_gain, discordant
from stakes.experiments.legibility.agreement import rank_correlation
from stakes.experiments.study import Study, fixed_policy
from stakes.legibility.model import Legibility
from stakes.legibility.word_map import print_tokens


@dataclass(frozen=True)
class RealArms:
    """The arms against uniform, what they spent, and what composing adds to the cost arm."""

    comparison: Comparison
    total: int
    deviation: float
    composed: Gain
    """CWE of cost minus CWE of cost+print."""
    composed_dear: Discordant
    ranges: Mapping[str, tuple[int, int, int]]
    """Budgets that content and print give at the 5th, 50th and 95th percentile."""
    content_print_rank: float
    """Spearman's correlation of the two over samples."""

    def record(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)


def real_arms(
    study: Study,
    model: Legibility,
    source: str,
    asked: Sequence[Asked],
    budgets: Mapping[str, int],
    costs: Mapping[str, float],
) -> RealArms:
    """Plan, read and compare; ``budgets`` of the tiers fix the total."""
    tiers = [one.tier for one in asked]
    policy = fixed_policy(model.family, "resolution", budgets, costs, tiers)
    plan = plan_arms(asked, policy, model, "resolution")
    native = [model.native_tokens(*one.size, "resolution") for one in asked]
    floor = max(least_budget(one, model.family) for one in {one.size: one for one in asked}.values())
    weights = print_weights(model, asked, native)
    nominal = {
        "print": ways.content(weights, plan.total, native=native, floor=floor),
        "cost+print": _within_tiers(tiers, plan.nominal["cost"], weights, native, floor),
    }
    by_content = {"content": plan.nominal["content"], "print": nominal["print"]}
    sizes = [one.size for one in asked]
    lanes = {**plan.budgets, **resized_budgets(sizes, nominal, tiers, model.family, plan.total)}
    Ledger(plan.samples, native, plan.mechanism).check_realised(lanes)
    found = study.answers(source, asked, list(lanes.values()))
    outcomes = {
        arm: [found[one.id, budget] for one, budget in zip(asked, lane, strict=True)] for arm, lane in lanes.items()
    }
    ledger = Ledger(plan.samples, [outcome.native for outcome in outcomes["uniform"]], plan.mechanism)
    seen = compare(outcomes, costs)
    cost, both = ([outcome.correct for outcome in outcomes[arm]] for arm in ("cost", "cost+print"))
    dear = [i for i, tier in enumerate(tiers) if tier == seen.dearest]
    return RealArms(
        comparison=seen,
        total=plan.total,
        deviation=ledger.check_realised({arm: [o.realised for o in rows] for arm, rows in outcomes.items()}),
        composed=cwe_gain(cost, both, [costs[tier] for tier in tiers], [one.document for one in asked]),
        composed_dear=discordant([cost[i] for i in dear], [both[i] for i in dear]),
        ranges={arm: _range(shares) for arm, shares in by_content.items()},
        content_print_rank=rank_correlation(*by_content.values()),
    )


def _range(budgets: Sequence[int]) -> tuple[int, int, int]:
    low, middle, high = np.percentile(budgets, [5, 50, 95])
    return round(low), round(middle), round(high)


def print_weights(model: Legibility, asked: Sequence[Asked], native: Sequence[int]) -> list[float]:
    """What keeps each sample's page legible, in tokens; once per page."""
    known: dict[str, float] = {}
    for one, tokens in zip(asked, native, strict=True):
        if one.digest not in known:
            known[one.digest] = round(print_tokens(model.native_lines(one), tokens), 3)
    return [known[one.digest] for one in asked]


def _within_tiers(
    tiers: Sequence[str], cost: Sequence[int], weights: Sequence[float], native: Sequence[int], floor: int
) -> tuple[int, ...]:
    """The cost arm with each tier's total shared by the weights."""
    shared = [0] * len(tiers)
    for tier in dict.fromkeys(tiers):
        at = [i for i, name in enumerate(tiers) if name == tier]
        total = sum(cost[i] for i in at)
        parts = ways.content([weights[i] for i in at], total, native=[native[i] for i in at], floor=floor)
        for i, part in zip(at, parts, strict=True):
            shared[i] = part
    return tuple(shared)
