"""Harm limits: how much a tier's error may rise over uniform at the same tokens.

The optimum may give up a tier: at 5 : 1 the low-cost one may go from 38 to 99 % errors. The stated costs ask for that,
but few users mean it. A limit h_t permits tier t only the budgets b with

    e_t(b) <= e_t(u) + h_t

on the curve that budgets are chosen on, where u is uniform's budget: the largest one that is measured in every tier and
within the mean budget. The other budgets are taken out of the tier's curve before ``allocate``. u is always permitted,
so a limit makes no choice infeasible, and the optimum within limits is never worse than uniform at u. Limits are in
points of error rate: 0.15 lets an error rise from 0.38 to 0.53.

    >>> low = Curve([32, 160, 304, 448], [0.91, 0.52, 0.38, 0.16], 300)
    >>> within_limits({"low": low}, {"low": 0.15}, mean_budget=400)["low"].budgets
    (160, 304, 448)
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING

from stakes.budgets.allocate import Allocation, Edge, allocate, checked_menus
from stakes.budgets.curve import Curve, cwe_at
from stakes.budgets.uniform import largest_within
from stakes.errors import BadInput, InfeasibleBudget

if TYPE_CHECKING:
    from stakes.budgets.plan import Plan
    from stakes.budgets.policy import Policy

NOTED = 0.25
"""A rise of a tier's error above this is reported first."""
SUGGESTED = 0.15
"""The limit whose price is then named."""
SAME = 1e-9  # an error this much above its limit is rounding

Limits = Mapping[str, float]
"""By tier; a tier that is not in it has no limit."""


def check_limits(given: float | Limits | None, tiers: Iterable[str]) -> dict[str, float]:
    """The limits by tier, from one number for all tiers, from some of the tiers, or from None."""
    tiers = list(tiers)
    limits = {} if given is None else dict(given) if isinstance(given, Mapping) else dict.fromkeys(tiers, given)
    for tier, limit in limits.items():
        if tier not in tiers:
            raise BadInput(f"a harm limit is given for tier {tier!r}; the tiers are {', '.join(tiers)}")
        if isinstance(limit, bool) or not isinstance(limit, Real) or not 0 <= limit <= 1:  # NaN fails too
            points = f"; {limit:g} points are {limit / 100:g}" if isinstance(limit, Real) and 1 < limit <= 100 else ""
            shown = f"{limit:g}" if isinstance(limit, Real) else repr(limit)
            raise BadInput(f"the harm limit of tier {tier!r} is {shown}; give a rise of the error rate, 0 to 1{points}")
    return {tier: float(limits[tier]) for tier in tiers if tier in limits}


def uniform_of(curves: Mapping[str, Curve], mean_budget: int) -> int:
    """Uniform's budget: the largest that is measured in every tier and within the mean."""
    shared = set.intersection(*(set(curve.budgets) for curve in curves.values()))
    if not shared:
        raise BadInput(
            "the tiers share no measured budget, so there is no uniform that a harm limit could compare with"
        )
    return largest_within(shared, mean_budget)


def within_limits(
    curves: Mapping[str, Curve], limits: Limits, mean_budget: int, kept: Mapping[str, int] | None = None
) -> dict[str, Curve]:
    """Each tier's curve at the budgets that its limit permits, and at its budget of ``kept`` in any case."""
    if not limits:
        return dict(curves)
    uniform, parts = uniform_of(curves, mean_budget), dict(curves)
    for tier, limit in limits.items():
        curve = curves[tier]
        most, always = curve.error(uniform) + limit + SAME, {uniform, (kept or {}).get(tier)}
        parts[tier] = _at(
            curve, {b for b, e in zip(curve.budgets, curve.errors, strict=True) if e <= most or b in always}
        )
    return parts


def _at(curve: Curve, budgets: set[int]) -> Curve:
    """The curve at some of its budgets."""
    if len(budgets) == len(curve.budgets):
        return curve
    rows = [i for i, budget in enumerate(curve.budgets) if budget in budgets]
    errors, counts = [curve.errors[i] for i in rows], [curve.counts[i] for i in rows]
    return Curve([curve.budgets[i] for i in rows], errors, counts)


def allocate_within(
    curves: Mapping[str, Curve],
    costs: Mapping[str, float],
    counts: Mapping[str, int],
    total: int,
    floor: int | None = None,
    limits: Limits | None = None,
    *,
    mix: bool = False,
) -> Allocation:
    """``allocate`` on the budgets that the limits permit; ``on_edge`` is still about what was measured."""
    if not limits:
        return allocate(curves, costs, counts, total, floor, mix=mix)
    checked_menus(curves, costs, counts, total, floor)  # raises where allocate would
    permitted = within_limits(curves, limits, total // sum(counts.values()))
    for tier, curve in permitted.items():
        if floor is not None and curve.budgets[-1] < floor <= curves[tier].budgets[-1]:
            raise InfeasibleBudget(
                f"no budget of tier {tier!r} from the floor of {floor} up is within its harm limit of "
                f"{limits[tier]:g}; lower the floor or raise the limit"
            )
    best = allocate(permitted, costs, counts, total, floor, mix=mix)
    edges = {
        tier: _edge(edge, best.mixed.get(tier) or [best.budgets[tier]], curves[tier].budgets)
        for tier, edge in best.on_edge.items()
    }
    return replace(best, on_edge={tier: edge for tier, edge in edges.items() if edge})


def _edge(edge: Edge, used: Collection[int], grid: tuple[int, ...]) -> Edge | None:
    """The part of an edge that is one of the whole grid."""
    largest, smallest = edge != "smallest" and grid[-1] in used, edge != "largest" and grid[0] in used
    return "both" if largest and smallest else "largest" if largest else "smallest" if smallest else None


@dataclass(frozen=True)
class TierRise:
    """A tier's error at uniform's budget and at its own, on the curve that budgets were chosen on."""

    budget: int | None
    """None: it differs by request."""
    uniform: int
    before: float
    after: float

    @property
    def rise(self) -> float:
        """In points of error rate; below 0 the tier gains."""
        return self.after - self.before

    def __str__(self) -> str:
        at = "on average over requests" if self.budget is None else f"at {self.budget}"
        return f"from {self.before:.1%} at uniform's {self.uniform} tokens to {self.after:.1%} {at}"


@dataclass(frozen=True)
class HarmReport:
    """Tiers whose error rises by more than 25 points, and what a limit of 15 points would cost."""

    rises: Mapping[str, TierRise]
    cwe: float
    limit: float
    limited_budgets: Mapping[str, int]
    limited_cwe: float
    uniform_cwe: float

    def record(self) -> dict[str, object]:
        """As JSON."""
        return {**asdict(self), "note": str(self)}

    def __str__(self) -> str:
        rises = "; that of ".join(f"{tier} rises {rise}" for tier, rise in self.rises.items())
        budgets = ", ".join(f"{tier} {budget}" for tier, budget in self.limited_budgets.items())
        by_request = any(rise.budget is None for rise in self.rises.values())
        how = f"--max-harm {self.limit:g}" + (" without --per-request" if by_request else "")
        return (
            f"The error of {rises}. The stated costs ask for that. If you do not mean it, limit the rise to "
            f"{100 * self.limit:g} points with {how}: {budgets}, and a CWE of {self.limited_cwe:.3f} in place of "
            f"{self.cwe:.3f} (uniform: {self.uniform_cwe:.3f})."
        )


def harm_report(
    curves: Mapping[str, Curve],
    plan: "Plan",
    floor: int | None = None,
    budgets: Mapping[str, int] | None = None,
    errors: Mapping[str, float] | None = None,
) -> HarmReport | None:
    """Report rises of more than 25 points; None where there is none, or no uniform to compare with.

    ``budgets``: what is served, where that is not the plan's optimum. ``errors``: by tier, where budgets differ by
    request.
    """
    best, costs, counts = plan.allocation, plan.costs_as_read or plan.costs, plan.counts
    after = errors or (best.errors if budgets is None else {tier: curves[tier].error(b) for tier, b in budgets.items()})
    served: Mapping[str, int | None] = dict.fromkeys(curves) if errors else budgets or best.budgets
    limits = {tier: min(SUGGESTED, (plan.max_harm or {}).get(tier, SUGGESTED)) for tier in curves}
    try:
        uniform = uniform_of(curves, best.total // sum(counts.values()))
        limited = allocate_within(curves, costs, counts, best.total, floor, limits, mix=bool(best.mixed))
    except (BadInput, InfeasibleBudget):
        return None
    rises = {t: TierRise(served[t], uniform, curve.error(uniform), after[t]) for t, curve in curves.items()}
    rises = {tier: rise for tier, rise in rises.items() if rise.rise > NOTED}
    if not rises:
        return None
    weight = {tier: counts[tier] * costs[tier] for tier in curves}
    return HarmReport(
        rises=rises,
        cwe=sum(weight[tier] * after[tier] for tier in curves) / sum(weight.values()),
        limit=SUGGESTED,
        limited_budgets=limited.budgets,
        limited_cwe=limited.cwe,
        uniform_cwe=(  # at the plan's own tokens, as everywhere; a mixed grid may not have it
            cwe_at(curves, dict.fromkeys(curves, uniform), costs, counts)
            if plan.uniform_cwe is None
            else plan.uniform_cwe
        ),
    )


def harm_checks(policy: "Policy") -> list[tuple[str, str, str]]:
    """For ``stakes doctor``: state, finding and advice for each tier with a limit, or with a large rise and none."""
    from stakes.budgets.digests import edited_parts

    certificate = policy.certificate or {}
    bounds = {} if edited_parts(policy) else certificate.get("harm") or {}
    checks = []
    for tier, rise in policy_rises(policy).items():
        limit, bound = (policy.max_harm or {}).get(tier), bounds.get(tier) or {}
        found = f"{tier} errors go {rise}"
        if limit is None:
            if rise.rise > NOTED:
                advice = f"the costs ask for that; to limit it, calibrate with --max-harm {SUGGESTED:g}"
                checks.append(("warning", found, advice))
            continue
        found += f", {rise.rise:+.3f}; limit {limit:g}"
        if rise.budget == rise.uniform:
            checks.append(("good", f"{found}, kept by uniform itself", ""))
        elif bound.get("budget") != rise.budget:
            checks.append(("good", f"{found}, not certified", ""))
        elif bound["upper"] <= limit:
            sure = f"with {bound['level']:.4g} confidence"
            checks.append(("good", f"{found}, certified: at most {bound['upper']:+.3f} {sure}", ""))
        else:
            advice = "a ceiling made these budgets ship all the same; raise the limit or the mean budget"
            checks.append(("warning", f"{found}, and only known to be at most {bound['upper']:+.3f}", advice))
    return checks


def policy_rises(policy: "Policy") -> dict[str, TierRise]:
    """By tier, its error at uniform's budget and at its own; empty where the policy has no curves to tell from."""
    curves = {tier: curve for tier, plan in policy.tiers.items() if (curve := plan.chosen_on)}
    if len(curves) < len(policy.tiers) or policy.per_request is not None:
        return {}
    try:
        uniform = uniform_of(curves, policy.mean_budget)
        return {
            tier: TierRise(budget, uniform, curves[tier].error(uniform), curves[tier].error(budget))
            for tier, budget in policy.budgets.items()
        }
    except (BadInput, InfeasibleBudget):  # grids or budgets that were written by hand
        return {}
