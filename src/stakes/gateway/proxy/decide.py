"""Decides the tier of a request: what the client names comes first, then the policy's signal reads the question.

* ``x-stakes-tier``, then ``metadata.stakes_tier``: a tier, or several separated by commas, of which the most expensive
  counts. ``grounding`` keeps every image at its native size, because coordinates in the answer would shift.
* Else the signal reads each text part of the last user message. A request with questions of several tiers gets the most
  expensive one. A request without text is undecided and gets the most expensive tier.
* A policy with per-request costs takes ``x-stakes-cost`` or ``metadata.stakes_cost`` as the cost of a mistake. Where
  two budgets tie, the question and the images decide: a repeated request gets the same budget, the same question about
  other images draws anew.
"""

import hashlib
import math
from collections.abc import Iterable
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


def choose_tier(policy: Policy, call: Call, hints: ClientHints, digest: str = "") -> TierChoice:
    """The tier of a request; ``digest``: that of its images, for a policy with per-request costs."""
    cost = read_cost(hints.cost or call.hints.cost)
    if cost is not None and policy.per_request is None:
        raise Refused(
            400, "cost_needs_soft_stakes", "this policy has fixed costs by tier; calibrate one with per-request costs"
        )
    named = hints.tiers or call.hints.tiers
    if named:
        source = "header x-stakes-tier" if hints.tiers else "metadata stakes_tier"
        for name in named:
            if name != GROUNDING and name not in policy.tiers:
                known = ", ".join([*policy.tiers, GROUNDING])
                raise Refused(400, "unknown_tier", f"there is no tier {name!r:.60}; this gateway's tiers are {known}")
        if GROUNDING in named:
            return TierChoice(GROUNDING, f"{source}: native size, so that coordinates hold")
        return TierChoice(max(named, key=lambda name: policy.tiers[name].cost), source)
    decisions = [policy.decide(text, hints.task or call.hints.task, cost, digest) for text in call.texts or ("",)]
    decision = max(decisions, key=lambda one: one.cost)
    tiers = {one.tier for one in decisions}
    why = decision.why + (f", the most expensive of {len(tiers)} tiers asked" if len(tiers) > 1 else "")
    return TierChoice(decision.tier, why, None if policy.per_request is None else decision.budget)


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
