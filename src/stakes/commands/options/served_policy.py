"""The policy that a gateway serves: a file, a file with another mean, or budgets of one's own."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stakes.commands.options.inputs import signal_file, tier_numbers, use_signal
from stakes.errors import BadInput
from stakes.tiers import check_spelling, check_tiers

if TYPE_CHECKING:
    from stakes.budgets.policy import Policy
    from stakes.calibration.certify.drift import Conditions

FAMILY = "qwen2.5-vl"


@dataclass(frozen=True)
class PolicySource:
    """Where the policy of a gateway comes from; called, it reads that. ``own``: the family of the local ``model``."""

    path: Path | None
    budgets: list[str] | None
    mean: int | None
    family: str | None
    signal: str | None
    undecided: str | None
    actuator: str | None = None
    model: str = ""
    own: str | None = None

    def __call__(self) -> "Policy":
        """The policy, with the signal that reads its tiers."""
        rules = read_policy(self.path, self.budgets, self.mean, self.family or self.own or FAMILY, self.actuator)
        if self.own not in (None, rules.family):
            raise BadInput(f"these budgets are tokens of {rules.family}, but {self.model!r} is {self.own}")
        use_signal(rules, self.signal, self.undecided)
        return rules

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that are read again when they change."""
        return tuple(path for path in (self.path, signal_file(self.signal or "")) if path is not None)


def read_policy(
    path: Path | None, budgets: list[str] | None, mean: int | None, family: str, actuator: Any = None
) -> "Policy":
    """The file's policy, or an uncalibrated one from ``--budget``, by the entries of the actuator's menu."""
    from stakes.budgets.policy import Policy
    from stakes.signals import to_dict
    from stakes.signals.named import named_signal
    from stakes.tiers import PAPER_TIERS
    from stakes.vision.geometry import family as named_family
    from stakes.vision.geometry.menus import menu

    if (path is None) == (not budgets):
        raise BadInput("give --policy FILE, or budgets of your own such as --budget high=576 --budget low=64")
    if path is not None:
        loaded = Policy.load(path)
        return loaded if mean in (None, loaded.mean_budget) else at_mean(loaded, mean)
    chosen = tier_numbers("--budget", budgets or [], int)
    check_spelling("--budget", chosen)
    for tier, tokens in chosen.items():
        if tokens < 1:
            raise BadInput(f"--budget {tier}={tokens} is no budget; give at least 1 token, as high=576")
    if len(chosen) < 2:
        (tier, tokens), other = *chosen.items(), "low" if "high" in chosen else "high"
        suggested = max(1, tokens // 6) if other == "low" else 6 * tokens
        raise BadInput(
            f"requests are of two or more tiers; give one beside {tier} a budget: --budget {other}={suggested}"
        )
    costs = {tier.name: tier.cost for tier in PAPER_TIERS}
    # Costs only order the tiers here: the paper's for its own tiers, else the tier with more tokens costs more.
    plans = {
        name: {"cost": costs[name] if set(chosen) <= set(costs) else float(tokens), "budget": tokens}
        for name, tokens in chosen.items()
    }
    record = {
        "schema": 2, "family": named_family(family).name, "mean_budget": max(chosen.values()) if mean is None else mean,
        "floor": min(chosen.values()), "tiers": plans, "fingerprint": "uncalibrated",
        "menu": menu(actuator or "pixels", family),
        "signal": to_dict(named_signal("requests", {name: plan["cost"] for name, plan in plans.items()})),
    }  # fmt: skip
    return Policy.from_record(record, "--budget")


def at_mean(policy: "Policy", mean: int) -> "Policy":
    """The policy with budgets for another mean, chosen again on its curves.

    Refused where that is not known or not what was certified. A tier with another budget loses the bound on its
    disagreement, which was measured at the old one.
    """
    from stakes.budgets.harm import allocate_within
    from stakes.commands.plan import check_mean

    advice = f"leave --mean-budget out, or calibrate again with --mean-budget {mean}"
    if policy.certificate is not None:
        raise BadInput(f"this policy is certified for a mean budget of {policy.mean_budget}, not {mean}; {advice}")
    if policy.per_request is not None:
        raise BadInput(f"this policy's price a token is for a mean budget of {policy.mean_budget}; {advice}")
    if not policy.fixed:
        raise BadInput(f"this policy's options are for a mean budget of {policy.mean_budget}; {advice}")
    curves = {tier: curve for tier, plan in policy.tiers.items() if (curve := plan.chosen_on)}
    if len(curves) < len(policy.tiers):
        lacking = min(set(policy.tiers) - set(curves))
        raise BadInput(f"this policy has no curve of tier {lacking!r} to choose budgets on; {advice}")
    counts = policy.counts
    check_mean(curves, counts, mean, policy.floor)
    total = mean * sum(counts.values())
    best = allocate_within(curves, policy.costs_as_read(), counts, total, policy.floor, policy.max_harm).budgets
    changed = {
        tier: plan if plan.budget == best[tier] else plan.model_copy(
            update={"budget": best[tier], "disagreement": None}
        )
        for tier, plan in policy.tiers.items()
    }  # fmt: skip
    name = f"{policy.fingerprint}-mean-{mean}"
    return policy.model_copy(update={"mean_budget": mean, "tiers": changed, "fingerprint": name})


def drift_limits(outcomes: Path | None, allowed: list[str] | None) -> "Callable[[Policy], Conditions]":
    """The limits of drift monitoring: ``--shadow-allow``, else the calibration's outcomes, else the policy's own."""
    from stakes.calibration.certify.drift import Conditions
    from stakes.evaluation.outcome_log import read_outcomes

    if outcomes is not None and allowed:
        raise BadInput("give --shadow-outcomes or --shadow-allow, not both")
    if allowed:
        chosen = Conditions(tier_numbers("--shadow-allow", allowed, float))

        def typed(policy: "Policy") -> "Conditions":
            check_tiers("--shadow-allow", chosen.disagreement, policy.tiers)
            return chosen

        return typed
    if outcomes is None:
        return Conditions.of_policy
    answers = read_outcomes(outcomes)

    def measured(policy: "Policy") -> "Conditions":
        if policy.per_request is not None:  # its budgets are per request, and a log's are per tier
            raise BadInput(
                "a policy with per-request costs carries its own limits; leave --shadow-outcomes out or calibrate again"
            )
        return Conditions.of(answers, policy.budgets)

    return measured
