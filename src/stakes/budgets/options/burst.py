"""The burst that second attempts need: a request reserves both attempts before it is sent.

    attempts_at_once(policy, burst=9728)                 # {'high': 19}: so many requests can wait for both at a time

Beyond that number a request gets one attempt, until another one returns what it did not use or cheaper images save.
"""

from stakes.budgets.policy import Policy
from stakes.errors import BadInput

STOCK = 32  # mean budgets held back against shortage, and the default burst: 3 sigma of an even mix over HORIZON
FEW = 8  # requests at a time, below which the start warns


def burst_of(policy: Policy, burst: int | None = None) -> int:
    """The burst in force: the one given, else the policy's, else 32 mean budgets."""
    stated = policy.burst if burst is None else burst
    return STOCK * policy.mean_budget if stated is None else stated


def attempts_at_once(policy: Policy, burst: int | None = None) -> dict[str, int]:
    """By tier that escalates beyond the mean, how many images the burst pays both attempts for at the same time."""
    return {tier: burst_of(policy, burst) // excess for tier, excess in _excess(policy).items() if excess > 0}


def check_burst(policy: Policy, burst: int | None = None) -> None:
    """Refuse a burst that pays for no second attempt."""
    for tier, count in attempts_at_once(policy, burst).items():
        if count < 1:
            option, given = policy.tiers[tier].option, burst_of(policy, burst)
            raise BadInput(
                f"a burst of {given} tokens pays for no second attempt of tier {tier!r}: both take up to "
                f"{option.most_tokens} tokens at a mean of {policy.mean_budget}; give --burst {_excess(policy)[tier]} "
                f"for one image at a time, and {FEW * _excess(policy)[tier]} for {FEW}"
            )


def option_notes(policy: Policy, burst: int | None = None) -> list[str]:
    """What each tier with thresholds does, and for how many images at a time the burst pays both attempts."""
    notes, at_once = [], attempts_at_once(policy, burst)
    for tier, option in policy.options.items():
        if option.fixed:
            continue
        note = f"tier {tier}: {option}"
        if tier in at_once:
            note += f"; the burst pays both attempts of {at_once[tier]} images at a time"
        if at_once.get(tier, FEW) < FEW:
            note += f", and others get one attempt; --burst {FEW * _excess(policy)[tier]} pays for {FEW}"
        notes.append(note)
    return notes


def _excess(policy: Policy) -> dict[str, int]:
    """By tier that escalates, what one image reserves beyond the mean."""
    escalating = {tier: option for tier, option in policy.options.items() if option.escalate is not None}
    return {tier: option.most_tokens - policy.mean_budget for tier, option in escalating.items()}
