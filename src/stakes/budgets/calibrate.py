"""From labelled questions to a policy: answer all of them at every budget, draw the curves, choose the budgets.

    found = calibrate(model, asked, {"high": 5, "low": 1}, 304, KeywordRule(), log="outcomes.jsonl")
    found.policy.save("policy.json")
    found.held_out.gain                 # what the choice is worth on documents that it was not made on

The policy depends on the set of outcomes and nothing else: a run that was killed and resumed gives the same bytes.
Paper, section "Calibrate-Then-Allocate".
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from stakes.budgets.curve import Curve
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.held_out import HeldOut, held_out
from stakes.budgets.plan import Plan, make_plan
from stakes.budgets.policy import CurveRecord, Policy, TierPlan
from stakes.errors import BadInput, StakesError
from stakes.evaluation.asked import Asked
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.progress import Progress
from stakes.evaluation.runner import Run, run
from stakes.models.about import family_of
from stakes.models.base import VLM
from stakes.signals import Signal, to_dict
from stakes.tiers import as_tiers

PAPER_MEAN = 304
PAPER_GRID = (32, 64, 96, 128, 160, 224, 304, 384, 448, 480, 512, 544, 576)


@dataclass(frozen=True)
class Calibration:
    """The policy and what it rests on."""

    policy: Policy
    curves: Mapping[str, Curve]
    plan: Plan
    held_out: HeldOut | None
    why_not_held_out: str
    native_tokens: int
    """What every sample once would take at full resolution; ``plan.allocation.spent`` is what the policy takes."""
    measured_tokens: int
    """What all answers of the calibration took."""
    run: Run

    def record(self) -> dict[str, object]:
        """Everything but the answers, as JSON."""
        return {
            "fingerprint": self.policy.fingerprint,
            "budgets": self.policy.budgets,
            "curves": {tier: asdict(curve) for tier, curve in self.curves.items()},
            "plan": self.plan.record(),
            "held_out": None if self.held_out is None else asdict(self.held_out),
            "why_not_held_out": self.why_not_held_out,
            "tokens": {
                "full_resolution": self.native_tokens,
                "policy": self.plan.allocation.spent,
                "calibration": self.measured_tokens,
            },
            "answers": {
                "total": len(self.run.outcomes),
                "new": self.run.answered,
                "changed": self.run.changed,
                "seconds": self.run.seconds,
                "per_second": self.run.answered / self.run.seconds if self.run.seconds else 0.0,
            },
        }


def default_grid(mean_budget: int) -> tuple[int, ...]:
    """The paper's thirteen budgets, which pair up to twice its mean of 304, scaled to another mean."""
    if mean_budget < 1:
        raise BadInput(f"the mean budget is at least one token an image, not {mean_budget}")
    scaled = {max(1, round(budget * mean_budget / PAPER_MEAN)) for budget in PAPER_GRID}
    return tuple(sorted(scaled))


def calibrate(
    model: VLM,
    asked: Sequence[Asked],
    costs: Mapping[str, float],
    mean_budget: int,
    signal: Signal,
    *,
    log: str | Path,
    grid: Sequence[int] | None = None,
    setting: Setting | None = None,
    floor: int | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Measure every sample at every budget of the grid and choose each tier's; the policy will carry ``signal``."""
    setting = setting or Setting()
    check_tiers(asked, costs, signal)
    budgets = sorted(set(default_grid(mean_budget) if grid is None else grid))
    if not budgets or budgets[0] < 1:
        raise BadInput(f"a grid needs budgets of at least one token, not {list(grid or ())}")
    family = family_of(model)
    counts = {tier: sum(one.tier == tier for one in asked) for tier in costs}
    total = mean_budget * len(asked)
    if budgets[0] > mean_budget:
        raise BadInput(f"the smallest budget of the grid is {budgets[0]}, above the mean budget of {mean_budget}")
    ran = run(model, asked, [[budget] * len(asked) for budget in budgets], setting, log, progress=progress)
    outcomes = list(ran.outcomes.values())
    measured = curves_from_outcomes(outcomes)
    curves = {tier: measured[tier] for tier in costs}
    plan = make_plan(curves, costs, counts, total, floor)
    if len(costs) == 2:
        plan = make_plan(curves, costs, counts, total, floor, pair=plan.allocation.budgets)
    policy = Policy(
        family=family,
        mechanism="deletion" if setting.mechanism == "deletion" else "resolution",
        mean_budget=mean_budget,
        floor=1 if floor is None else floor,
        tiers={
            tier: TierPlan(cost=costs[tier], budget=plan.allocation.budgets[tier], curve=CurveRecord.of(curve))
            for tier, curve in curves.items()
        },
        signal=to_dict(signal),
        fingerprint=str(ran.fingerprint),
    )
    check, why_not = None, ""
    try:
        check = held_out(outcomes, costs, mean_budget, floor)
    except StakesError as error:
        why_not = str(error)
    native = sum({outcome.sample: outcome.native for outcome in outcomes}.values())
    spent = sum(outcome.realised for outcome in outcomes)
    return Calibration(policy, curves, plan, check, why_not, native, spent, ran)


def check_tiers(asked: Sequence[Asked], costs: Mapping[str, float], signal: Signal) -> None:
    """Every tier of a sample or of the signal needs a cost, and every cost a sample: said before any answer."""
    as_tiers(costs)
    found = dict.fromkeys(one.tier for one in asked)
    for tier in [*found, *signal.tiers]:
        if tier not in costs:
            whose = "a sample's" if tier in found else "one that the signal can name"
            raise BadInput(f"tier {tier!r} ({whose}) has no cost; give one for it, such as --cost {tier}=1")
    for tier in costs:
        if tier not in found:
            raise BadInput(
                f"no sample is of tier {tier!r}, so its curve cannot be measured; the samples are "
                f"{', '.join(found) or 'none'}"
            )
