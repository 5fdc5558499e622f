"""Which tier does a request get, and why? What the client says wins; else the policy's signal reads the question.

* ``x-stakes-tier`` or ``metadata.stakes_tier``, in this order; several names with commas between mean the dearest.
* ``grounding`` keeps every image at its native size, because answers in coordinates would shift.
* The signal reads each piece of text of the last user message: a page that is asked questions of several tiers in one
  request gets the dearest of them. A request without text is undecided, and so in the dearest tier.
* With soft stakes ``x-stakes-cost`` or ``metadata.stakes_cost`` says what a mistake costs, in place of what the
  question says of it: an amount worth 20 and a date worth 3 need no tiers of their own.
* With soft stakes, where two budgets tie, the question and the images as they came settle it: one request asked twice
  gets the same, and the same question of other images draws anew.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass

from stakes.budgets.policy import Policy
from stakes.gateway.proxy.errors import Refused

GROUNDING = "grounding"


@dataclass(frozen=True)
class Choice:
    """The tier of one request and the reason, in words that a header can carry."""

    tier: str
    why: str
    budget: int | None = None
    """Of a policy with soft stakes: what this very request is to get, whatever its tier's other requests do."""


def choose(
    policy: Policy,
    texts: tuple[str, ...],
    task: str | None,
    told: tuple[str, ...],
    by: str,
    about: str = "",
    cost: float | None = None,
) -> Choice:
    """The tier; ``told``: what the client named, ``by``: where it did.

    ``about``: the images' digest, ``cost``: what a mistake costs, as the client says; both are for soft stakes.
    """
    if cost is not None and policy.soft is None:
        raise Refused(400, "cost_needs_soft_stakes", "this policy's tiers have their costs; calibrate it with --soft")
    if told:
        for name in told:
            if name != GROUNDING and name not in policy.tiers:
                known = ", ".join([*policy.tiers, GROUNDING])
                raise Refused(400, "unknown_tier", f"there is no tier {name!r:.60}; this gateway's tiers are {known}")
        if GROUNDING in told:
            return Choice(GROUNDING, f"{by}: native size, so that coordinates hold")
        return Choice(max(told, key=lambda name: policy.tiers[name].cost), by)
    decisions = [policy.decide(text, task, cost, about) for text in texts or ("",)]
    dearest = max(decisions, key=lambda decision: decision.cost)
    tiers = {decision.tier for decision in decisions}
    more = f", the dearest of {len(tiers)} tiers asked" if len(tiers) > 1 else ""
    return Choice(dearest.tier, dearest.why + more, None if policy.soft is None else dearest.budget)


def cost_of(value: object) -> float | None:
    """What a client says a mistake costs, a number or its text; None where it says nothing."""
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
    """A name for a request's images as they came: their data URLs, or the addresses of remote ones."""
    found = hashlib.blake2b(digest_size=16)
    for url in urls:
        data = url.encode("utf-8", "backslashreplace")
        found.update(len(data).to_bytes(8))
        found.update(data)
    return found.hexdigest()
