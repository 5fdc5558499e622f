"""Which options say how sure one wants to be? Shared by ``stakes calibrate`` and ``stakes plan``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.budgets.policy import Policy
    from stakes.calibration.adaptive.race import Raced
    from stakes.calibration.calibrate import Calibration
    from stakes.evaluation.items import Asked
    from stakes.signals import Signal


N = TypeVar("N", int, float)

EstimatorName = Annotated[
    str | None,
    typer.Option(
        "--estimator",
        help="How true curves are guessed from measured ones: raw, isotonic, pooled, smooth, bootstrap or auto "
        "(cross-validated), or hybrid:FILE, a prior from the log of another reader, such as ocr. Default: pooled to "
        "calibrate, raw to plan.",
    ),
]
Confidence = Annotated[float | None, typer.Option(help="How sure a certificate is to be. Default: 0.95.")]
Ceilings = Annotated[
    list[str] | None,
    typer.Option("--ceiling", help="The most errors a tier may make, as tier=rate, such as high=0.10; once per tier."),
]


def wanted(
    estimator: str | None, certify: bool, confidence: float | None, ceiling: list[str] | None
) -> tuple[str, float | None, dict[str, float] | None]:
    """The estimator, the confidence (None: no certificate) and the ceilings that were asked for."""
    from stakes.calibration.certify.certificate import CONFIDENCE
    from stakes.calibration.estimators import DEFAULT, HYBRID, check_name
    from stakes.calibration.estimators.hybrid import read_prior

    if not certify and (confidence is not None or ceiling):
        raise BadInput("--confidence and --ceiling belong to a certificate; add --certify")
    if confidence is not None and not 0.5 <= confidence < 1:
        raise BadInput(f"--confidence lies between 0.5 and 1, not at {confidence:g}; 0.95 is usual")
    sure = (CONFIDENCE if confidence is None else confidence) if certify else None
    name = check_name(estimator or DEFAULT)
    if name.startswith(HYBRID):
        read_prior(name.removeprefix(HYBRID), ("",) if certify else ())  # said before any answer is paid for
    return name, sure, ceilings(ceiling)


def ceilings(words: list[str] | None) -> dict[str, float] | None:
    """Ceilings by tier, as typed."""
    if not words:
        return None
    found = tier_numbers("--ceiling", words, float)
    for tier, rate in found.items():
        if not 0 < rate < 1:
            raise BadInput(f"--ceiling {tier}={rate:g} is no error rate; give one between 0 and 1, such as {tier}=0.10")
    return found


def tier_words(option: str, words: list[str]) -> dict[str, str]:
    """``tier=value`` words by tier."""
    read: dict[str, str] = {}
    for word in words:
        tier, equals, value = word.partition("=")
        if not equals or not tier.strip():
            raise BadInput(f"{option} takes tier=value, such as high=5, not {word!r}")
        if tier in read:
            raise BadInput(f"{option} names tier {tier!r} twice; keep one")
        read[tier] = value
    return read


def tier_numbers(option: str, words: list[str], kind: type[N]) -> dict[str, N]:
    """``tier=number`` words by tier."""
    numbers = {}
    for tier, value in tier_words(option, words).items():
        try:
            numbers[tier] = kind(value)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise BadInput(f"{option} {tier}={value}: {value!r} is not {what}") from None
    return numbers


# Which options spare tokens or answers? ``--soft`` and ``--race`` of ``stakes calibrate``, and how they read.


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
    from stakes.budgets.policy import Policy
    from stakes.calibration.by_document import by_document
    from stakes.calibration.per_request import Asking, soften

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
