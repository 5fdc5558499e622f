"""Which options say how sure one wants to be? Shared by ``stakes calibrate`` and ``stakes plan``."""

from typing import Annotated, TypeVar

import typer

from stakes.errors import BadInput

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
    from stakes.budgets.certificate import CONFIDENCE
    from stakes.budgets.estimators import DEFAULT, HYBRID, check_name
    from stakes.budgets.estimators.hybrid import read_prior

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
