"""Which policy does ``stakes serve`` serve, what is it watched by, and where do its options stand? Files and words."""

import math
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.budgets.policy import Policy
    from stakes.calibration.certify.drift import Conditions
    from stakes.evaluation.outcome_log import Outcome


def read_settings(context: typer.Context, path: Path | None) -> Path | None:
    """Take options from a TOML file, such as ``shadow = 0.01``; what is typed wins."""
    if path is None:
        return None
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"no settings can be read from {path} ({error})") from None
    known = {one.name: one for one in context.command.params if one.name not in ("settings_file", "help")}
    chosen = {name.replace("-", "_"): value for name, value in record.items()}
    for name in chosen:
        if name not in known:
            raise BadInput(f"{path} sets {name!r}, which is no option of serve; see stakes serve --help")
    context.default_map = {**(context.default_map or {}), **chosen}
    return path


def within(least: float, most: float = math.inf) -> Callable[[float | None], float | None]:
    """A callback that refuses an option's number outside of these; nan and infinity are always outside."""

    def check(value: float | None) -> float | None:
        if value is not None and not (least <= value <= most and math.isfinite(value)):
            kept = f"from {least:g} to {most:g}" if math.isfinite(most) else f"of at least {least:g}"
            raise typer.BadParameter(f"give a number {kept}, not {value}")
        return value

    return check


def policy_of(path: Path | None, budgets: list[str] | None, mean: int | None, family: str) -> "Policy":
    """The file's policy, or one of budgets that a person chose: nothing is made up."""
    from stakes.budgets.policy import Policy
    from stakes.signals import KeywordRule
    from stakes.tiers import PAPER_TIERS

    if (path is None) == (not budgets):
        raise BadInput("give --policy FILE, or budgets of your own such as --budget high=576 --budget low=64")
    if path is not None:
        if mean is not None:
            raise BadInput("the mean budget comes from the policy; --mean-budget is for --budget")
        return Policy.load(path)
    chosen: dict[str, int] = {}
    for word in budgets or ():
        name, equals, tokens = word.partition("=")
        if not equals or not tokens.strip().isdecimal() or int(tokens) < 1 or name.strip() in chosen:
            raise BadInput(f"{word!r} is no budget of its own; write each tier once, as high=576")
        chosen[name.strip()] = int(tokens)
    for tier in KeywordRule().tiers:
        if tier not in chosen:
            least = min(chosen.values())
            raise BadInput(
                f"questions are read as {' or '.join(KeywordRule().tiers)}; give {tier} a budget too: "
                f"--budget {tier}={max(1, least // 6) if tier == 'low' else least}"
            )
    costs = {tier.name: tier.cost for tier in PAPER_TIERS}
    # Costs only say which tier is dearer here: the paper's for its own tiers, else what a person gives more tokens.
    plans = {
        name: {"cost": costs[name] if set(chosen) <= set(costs) else float(tokens), "budget": tokens}
        for name, tokens in chosen.items()
    }
    record = {
        "schema": 1, "family": family, "mean_budget": max(chosen.values()) if mean is None else mean,
        "floor": min(chosen.values()), "tiers": plans, "fingerprint": "uncalibrated",
    }  # fmt: skip
    return Policy.from_record(record, "--budget")


def about_policy(rules: "Policy") -> dict[str, Any]:
    """What is served, for whoever started it."""
    from stakes.budgets.controller import Controller
    from stakes.gateway.reload import cautions

    first = rules.budgets  # with soft stakes each request has its own
    if rules.soft is None:
        state = Controller.from_policy(rules).state()
        first = {tier: round(state[f"budget_{tier}"]) for tier in rules.tiers}
    origin = "chosen, not calibrated" if rules.fingerprint == "uncalibrated" else f"policy {rules.fingerprint:.12}"
    return {
        "family": rules.family, "budgets": rules.budgets, "mean_budget": rules.mean_budget, "origin": origin,
        "basis": rules.basis, "begins_with": first,
        "warnings": cautions(rules),
    }  # fmt: skip


def first_words(about: Mapping[str, Any]) -> str:
    """The same for a person: one line, and one more for whatever about the policy is weaker than it looks."""
    budgets = ", ".join(f"{tier} {tokens}" for tier, tokens in about["budgets"].items())
    line = f"{about['address']} → {about['upstream']} ({about['mode']}; budgets {budgets}; {about['origin']})"
    if about["begins_with"] != about["budgets"]:  # the optimum may mix two budgets in a tier, which a file does not
        first = ", ".join(f"{tier} {tokens}" for tier, tokens in about["begins_with"].items())
        line += f"\nat first, images get on average: {first}"
    return "\n".join([line, *(f"warning: {sentence}" for sentence in about["warnings"])])


def conditions_source(outcomes: Path | None, allowed: list[str] | None) -> "Callable[[Policy], Conditions]":
    """What shadow answers are held to: a person's word, else the calibration's outcomes, else what the policy says."""
    from stakes.calibration.certify.drift import Conditions
    from stakes.evaluation.outcome_log import read_outcomes

    if outcomes is not None and allowed:
        raise BadInput("give --shadow-outcomes or --shadow-allow, not both")
    if allowed:
        rates: dict[str, float] = {}
        for word in allowed:
            name, _, rate = word.partition("=")
            try:
                rates[name.strip()] = float(rate)
            except ValueError:
                raise BadInput(f"{word!r} does not say how often answers may differ; write high=0.1") from None
        chosen = Conditions(rates)
        return lambda _: chosen
    if outcomes is not None:
        answers = read_outcomes(outcomes)
        return partial(_measured, answers)
    return Conditions.of_policy


def _measured(answers: "list[Outcome]", policy: "Policy") -> "Conditions":
    from stakes.calibration.certify.drift import Conditions

    if policy.soft is not None:  # a log knows budgets by tier, and this policy gives each request its own
        raise BadInput(
            "a policy with soft stakes carries its own limits; leave --shadow-outcomes out, or calibrate again"
        )
    return Conditions.of(answers, policy.budgets)
