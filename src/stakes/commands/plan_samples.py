"""``stakes plan --samples``: how many questions must be labelled before a certificate can be expected?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from stakes.commands.output import print_json, print_table

if TYPE_CHECKING:
    from stakes.budgets.curve import Curve
    from stakes.calibration.certify.power import SamplesNeeded, SizeRow


SURE = 0.95
"""How sure one wants to be that as many calibrations as were counted end well."""


@dataclass(frozen=True)
class Wish:
    """The certainty that is wanted, and what the documents are like."""

    confidence: float | None
    power: float
    ceilings: Mapping[str, float] | None
    per_document: float
    likeness: float
    repeats: int
    estimator: str | None


def plan_samples(
    curves: "Mapping[str, Curve]",
    source: str,
    costs: Mapping[str, float],
    mean_budget: int,
    shares: Mapping[str, float] | None,
    wish: Wish,
    as_json: bool,
) -> None:
    """Imagine calibrations of rising size until the certificate is had as often as wanted; one line each on stderr."""
    from stakes.calibration.certify.certificate import CONFIDENCE
    from stakes.calibration.certify.power import samples_needed
    from stakes.calibration.estimators import DEFAULT

    needed = samples_needed(
        curves,
        costs,
        mean_budget,
        confidence=CONFIDENCE if wish.confidence is None else wish.confidence,
        power=wish.power,
        ceilings=wish.ceilings,
        shares=shares,
        per_document=wish.per_document,
        likeness=wish.likeness,
        estimator=wish.estimator or DEFAULT,
        repeats=wish.repeats,
        tell=_tell,
    )
    if as_json:
        share, sure = (None, None) if needed.needed is None else had(needed)
        print_json({"source": source, **needed.record(), "share": share, "share_at_least": sure})
    else:
        print_needed(needed, source)


def _tell(row: "SizeRow") -> None:
    typer.echo(f"{_counts(row.samples)}: certified to help in {row.ships:.0%}", err=True)


def print_needed(needed: "SamplesNeeded", source: str) -> None:
    """The table, and the answer in a sentence."""
    typer.echo(f"If the truth were the {source}:\n")
    ceilings = list(needed.rows[0].kept)
    tiers = list(needed.rows[0].samples)
    columns = [*tiers, "documents", "certified to help"]
    columns += [f"{tier} ceiling kept" for tier in ceilings] + [f"{tier} tokens" for tier in ceilings]
    columns += [f"{tier} bound above error" for tier in tiers]
    rows = [
        (
            *row.samples.values(),
            row.documents,
            f"{row.ships:.0%}",
            *(f"{share:.0%}" for share in row.kept.values()),
            *(f"{tokens:.0f}" if tokens is not None else "" for tokens in row.tokens.values()),
            *(f"{width:.3f}" for width in row.width.values()),
        )
        for row in needed.rows
    ]
    print_table(f"Of {needed.repeats} imagined calibrations, at {needed.confidence:.4g} confidence", columns, rows)
    if needed.needed is None:
        typer.echo(f"{needed.why_not[0].upper()}{needed.why_not[1:]}.")
        return
    what = "the ceilings are certified" if ceilings else "tiered budgets are certified to help"
    share, sure = had(needed)
    told = f"{what} in {share:.0%} of the {needed.repeats} imagined calibrations"
    typer.echo(f"Label {_counts(needed.needed)} questions: {told}.")
    if sure >= needed.power:
        typer.echo(f"With {SURE:.0%} confidence that is at least {sure:.0%} of all, so the {needed.power:.0%} hold.")
    else:
        typer.echo(
            f"So few show only {sure:.0%} or more of all, with {SURE:.0%} confidence, and not the {needed.power:.0%} "
            f"wanted; --repeats {max(100, 4 * needed.repeats)} tells more."
        )


def had(needed: "SamplesNeeded") -> tuple[float, float]:
    """The share of imagined calibrations that had all at the size found, and what it is at least (Clopper-Pearson)."""
    from scipy.stats import binomtest

    row = needed.rows[-1]
    share = min(row.kept.values(), default=row.ships)
    exact = binomtest(round(share * needed.repeats), needed.repeats, alternative="greater")
    return share, float(exact.proportion_ci(SURE, method="exact").low)


def _counts(samples: Mapping[str, int]) -> str:
    return " + ".join(f"{n} {tier}" for tier, n in samples.items())
