"""Which options spare tokens or answers? ``--soft`` and ``--race`` of ``stakes calibrate``, and how they read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.budgets.calibrate import Calibration
    from stakes.budgets.policy import Policy
    from stakes.budgets.race import Raced
    from stakes.evaluation.asked import Asked
    from stakes.signals import Signal

Soft = Annotated[
    bool,
    typer.Option("--soft", help="Spend by expected cost, request by request. Samples need tiers; the signal predicts."),
]
Race = Annotated[
    bool,
    typer.Option(
        "--race",
        help="Leave out answers that can no longer change the choice (--confidence, 0.95); a fifth to all of "
        "them are needed all the same, and --passes caps that.",
    ),
]
Passes = Annotated[int | None, typer.Option(help="With --race: the most answers to ask for.")]


def race_wanted(
    race: bool, passes: int | None, confidence: float | None, certify: bool, soft: bool
) -> tuple[float | None, float | None]:
    """The confidence of a race, None where there is none, and the one left for a certificate."""
    if soft and certify:
        raise BadInput("a certificate is about budgets by tier, and --soft has none; leave one of them out")
    if not race:
        if passes is not None:
            raise BadInput("--passes caps a race; add --race")
        return None, confidence
    for given, option in ((certify, "--certify"), (soft, "--soft")):
        if given:
            raise BadInput(f"{option} needs every question at every budget, and --race leaves most out; choose one")
    if confidence is not None and not 0.5 <= confidence < 1:
        raise BadInput(f"--confidence lies between 0.5 and 1, not at {confidence:g}; 0.95 is usual")
    return (0.95 if confidence is None else confidence), None


def with_soft(
    found: "Calibration",
    asked: "Sequence[Asked]",
    tasks: "Mapping[str, str | None]",
    signal: "Signal",
    costs: Mapping[str, float],
) -> "Calibration":
    """The calibration with a policy that spends by expected cost."""
    from stakes.budgets.by_document import by_document
    from stakes.budgets.policy import Policy
    from stakes.budgets.soften import Asking, soften

    outcomes = list(found.run.outcomes.values())
    there = {outcome.sample for outcome in outcomes}
    asking = [Asking(o.id, o.document, o.question, o.tier, tasks[o.id]) for o in asked if o.id in there]
    policy, name = found.policy, found.policy.estimator
    soft = soften(by_document(outcomes, costs), outcomes, asking, signal, costs, policy.mean_budget, name, policy.floor)
    record = policy.model_dump(by_alias=True)
    return replace(found, policy=Policy.from_record({**record, "soft": soft.plan.model_dump()}))


def told_soft(policy: "Policy") -> Iterator[str]:
    """What a soft policy promises, in words."""
    if policy.soft is None or policy.soft.promise is None:
        return
    p = policy.soft.promise
    yield (
        f"Soft stakes: {policy.soft.price:.3g} of cost a token. With predicted tiers ({p['right']:.1%} right) "
        f"and on documents not chosen on: CWE {p['cwe']:.3f} at {p['tokens']:.0f} tokens an image; one budget a tier "
        f"{p['hard_cwe']:.3f} at {p['hard_tokens']:.0f}."
    )
    yield (
        f"At cost ratios from {p['same_from']:.3g} to {p['same_to']:.3g} (stated: {p['ratio']:.3g}) at most 1 % of the "
        "budgets would change."
    )


def told_race(raced: "Raced | None") -> Iterator[str]:
    """What a race left out, and what it cannot rule out."""
    if raced is None:
        return
    yield (
        f"Raced: {raced.passes:,} of {raced.of:,} answers ({raced.passes / raced.of:.0%}); ruled out "
        f"{raced.ruled_out} of {raced.candidates} choices, with {raced.confidence:.4g} confidence."
    )
    if raced.set_aside:
        yield (
            f"{raced.set_aside} more were set aside for want of passes, on no evidence but their looks; "
            "raise --passes to hear them."
        )
