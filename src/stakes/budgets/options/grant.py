"""A grant: the budgets of one request's images for its attempts, and how a request shares them among its images.

A tier that escalates reserves the worst case, both attempts; what a request does not use goes back when it is settled.
What a tier with an option takes on average is a point of its own beyond its fixed budget (``option_curve``). A tier
with a predictor is granted what was predicted for the image or, where the mean does not pay for that, no more than a
fixed budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stakes.budgets.curve import Curve
from stakes.budgets.options.tier_plan import TierPlan

UNMEASURED = 0.5  # share of unsure answers that a policy without evidence plans with; traffic corrects the total


class GrantedSize(NamedTuple):
    """What one image was granted: the tier, the budget planned for it, and that after sharing by native size.

    ``cut``: what the allowance paid for where that was less; else 0.
    """

    tier: str
    planned: int
    budget: int
    cut: int = 0


class KnownImage(NamedTuple):
    """An image that can come again: its place, evenly spread from 0 to 1, and what it was granted before."""

    place: float
    before: GrantedSize | None = None


@dataclass(frozen=True, eq=False)
class Grant:
    """Budgets for the images of one request, in their order, until it is settled or cancelled.

    ``sizes``: what each image may ask for again; empty where its budget was not the tier's. ``second``: budgets of a
    second attempt, reserved with the first; empty where there is none.
    """

    tier: str
    budgets: tuple[int, ...]
    reason: str
    sizes: tuple[GrantedSize, ...] = ()
    second: tuple[int, ...] = ()

    @property
    def reserved(self) -> tuple[int, ...]:
        """The most that each image can take, over both attempts."""
        return tuple(map(sum, zip(self.budgets, self.second, strict=True))) if self.second else self.budgets


class Wish(NamedTuple):
    """What one image should get: by the plan's draw, by the size it keeps, the one that counts, and after a cut.

    ``beyond``: the plan pays for its tier's option, a second attempt or the predicted budget.
    """

    drawn: int
    kept: GrantedSize | None
    planned: int
    asked: int
    beyond: bool = False

    def size(self, tier: str, whole: int, budget: int) -> GrantedSize:
        """What it may ask for again, once it was granted ``budget`` of ``whole``."""
        tier, planned = (self.kept.tier, self.kept.planned) if self.kept else (tier, self.drawn)
        return GrantedSize(tier, planned, whole, budget if budget < whole else 0)


def share(budgets: Sequence[int], natives: Sequence[int], fixed: Sequence[bool] = ()) -> list[int]:
    """Share one request's budgets among its images: none takes more than its native tokens.

    What that leaves over goes to the larger images in proportion to the tokens that they lack, and never beyond those.
    Images whose size is ``fixed`` neither give nor take.
    """
    shares = [min(budget, native) for budget, native in zip(budgets, natives, strict=True)]
    free = [i for i in range(len(shares)) if not (fixed and fixed[i])]
    lacks = {i: natives[i] - shares[i] for i in free}
    lacking = sum(lacks.values())
    over = min(sum(budgets[i] - shares[i] for i in free), lacking)
    if not over:
        return shares
    before = 0
    for i, lack in lacks.items():
        shares[i] += (before + lack) * over // lacking - before * over // lacking
        before += lack
    return shares


def reason_of(planned: int, budgets: Sequence[int], natives: Sequence[int], held: int) -> str:
    """Why these budgets, in a few words; empty where they are the tier's own. ``held``: images of an earlier size."""
    if sum(budgets) < planned:
        return f"{planned} tokens cut to {sum(budgets)} by the allowance"
    if sum(budgets) == sum(natives):
        return "native size fits"
    if held:
        return "size kept from an earlier request"
    return "budgets shared by native size" if len(budgets) > 1 else ""


def mean_tokens(plan: TierPlan) -> int:
    """What an image of a tier with a second attempt or a predictor takes on average; 0 for any other tier.

    By the evidence, else as if half of the first answers were unsure. It is above the tier's fixed budget.
    """
    if plan.escalate is None and plan.predictor is None:
        return 0
    more = 0 if plan.escalate is None else UNMEASURED * plan.escalate.to
    return max(plan.budget + 1, round(plan.budget + more if plan.evidence is None else plan.evidence.tokens))


def option_curve(curve: Curve, plan: TierPlan) -> Curve:
    """The curve up to the tier's fixed budget, and the option as its last point: mean tokens and error."""
    if not mean_tokens(plan):
        return curve
    points = [point for point in zip(curve.budgets, curve.errors, curve.counts, strict=True) if point[0] <= plan.budget]
    points = points or [(plan.budget, curve.errors[0], curve.counts[0])]
    most = mean_tokens(plan) if plan.escalate is None else plan.escalate.to
    reached = max(i for i, budget in enumerate(curve.budgets) if budget <= most or i == 0)
    error = curve.errors[reached] if plan.evidence is None else plan.evidence.error or 0.0
    points.append((mean_tokens(plan), min(error, points[-1][1]), curve.counts[0]))
    return Curve(*zip(*points, strict=True))
