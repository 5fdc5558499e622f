"""Decides the tier of a request: what the client names comes first, then the policy's signal reads the question.

* ``x-stakes-tier``, then ``metadata.stakes_tier``: a tier, or several separated by commas, of which the most expensive
  counts. ``grounding`` keeps every image at its native size, because coordinates in the answer would shift.
* Else the policy's signal reads the prompt: question, system text, schema, earlier turns. A request that asks for
  things of several tiers gets the most expensive one. One that is undecided does too.
* A policy with per-request costs takes ``x-stakes-cost`` or ``metadata.stakes_cost`` as the cost of a mistake. Beside a
  named tier, the larger of two budgets counts: the tier's in the policy, and that of the cost. Where two budgets tie,
  the question and the images decide: a repeated request gets the same budget, the same question about other images
  draws anew.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stakes.budgets.policy import Policy
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.request import Call, ClientHints

GROUNDING = "grounding"


@dataclass(frozen=True)
class TierChoice:
    """The tier of one request and the reason; ``budget`` is set by a policy with per-request costs only."""

    tier: str
    why: str
    budget: int | None = None
    decided: bool = True


def choose_tier(policy: Policy, call: Call, hints: ClientHints, digest: str = "") -> TierChoice:
    """The tier of a request; ``digest``: that of its images, for a policy with per-request costs."""
    cost = read_cost(hints.cost or call.hints.cost)
    if cost is not None and policy.per_request is None:
        raise Refused(
            400, "cost_needs_soft_stakes", "this policy has fixed costs by tier; calibrate one with per-request costs"
        )
    source = "header x-stakes-tier" if hints.tiers else "metadata stakes_tier"
    tier = _named_tier(policy, hints.tiers or call.hints.tiers)
    if tier == GROUNDING:
        return TierChoice(GROUNDING, f"{source}: native size, so that coordinates hold")
    if tier is not None and cost is None:
        return TierChoice(tier, source)
    decision = policy.decide(call.prompt, hints.task or call.hints.task, cost, digest)
    budget = None if policy.per_request is None else decision.budget
    if tier is None or budget is None:
        return TierChoice(decision.tier, decision.why, budget, decision.decided)
    fixed, stated = policy.tiers[tier].budget, "header x-stakes-cost" if hints.cost else "metadata stakes_cost"
    if budget > fixed:
        why = f"{stated} {cost:g}: {budget} tokens, more than the {fixed} of tier {tier} ({source})"
        return TierChoice(tier, why, budget)
    return TierChoice(tier, f"{source}: {fixed} tokens, no fewer than the {budget} of {stated} {cost:g}")


def _named_tier(policy: Policy, named: Sequence[str]) -> str | None:
    """The most expensive of the tiers that the client names; grounding where it is among them, None without any."""
    for name in named:
        if name != GROUNDING and name not in policy.tiers:
            known = ", ".join([*policy.tiers, GROUNDING])
            raise Refused(400, "unknown_tier", f"there is no tier {name!r:.60}; this gateway's tiers are {known}")
    if GROUNDING in named:
        return GROUNDING
    return max(named, key=lambda name: policy.tiers[name].cost, default=None)


def read_cost(value: object) -> float | None:
    """The cost of a mistake that the client states, a number or its text; None where it states none."""
    if value is None or value == "":
        return None
    try:
        cost = math.nan if isinstance(value, bool) or not isinstance(value, str | int | float) else float(value)
    except (ValueError, OverflowError):
        cost = math.nan
    if not 0 < cost < math.inf:
        raise Refused(400, "bad_cost", f"a cost is a number above 0, not {value!r:.60}")
    return cost


def images_digest(urls: Iterable[str]) -> str:
    """A digest of the images as received: of their data URLs, or of the addresses of remote ones."""
    digest = hashlib.blake2b(digest_size=16)
    for url in urls:
        data = url.encode("utf-8", "backslashreplace")
        digest.update(len(data).to_bytes(8))
        digest.update(data)
    return digest.hexdigest()
