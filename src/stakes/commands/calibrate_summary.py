"""How a calibration reads to a person: the curves, the choice, whether it holds, and what it saves."""

from pathlib import Path

import typer

from stakes.calibration.arms.comparison import TOLERANCE
from stakes.calibration.calibrate import Calibration
from stakes.calibration.certify.certificate import Certificate
from stakes.commands.output import print_table
from stakes.commands.plan import print_plan

# How a certificate reads to a person: what ships, what is promised of it, and what is not.


def print_shipped(found: Calibration) -> None:
    """The budgets in the policy, where they are not simply the optimum shown above, and the certificate."""
    if found.certificate is not None:
        print_certificate(found.certificate)
    elif dict(found.policy.budgets) != dict(found.plan.allocation.budgets):
        budgets = ", ".join(f"{tier} {budget}" for tier, budget in found.policy.budgets.items())
        typer.echo(f"By {found.policy.estimator} the policy has {budgets}.\n")
    else:
        typer.echo(f"Curves by {found.policy.estimator}.")


def print_certificate(certificate: Certificate) -> None:
    """The whole certificate."""
    rows = [(tier, bound.budget, bound.error, f"{bound.upper:.3f}") for tier, bound in certificate.upper_errors.items()]
    sure = f"{certificate.confidence:.4g}"
    typer.echo(f"Certificate at {sure} confidence: {certificate.shipped} budgets ship.")
    print_table("", ["tier", "budget", "error", "at most"], rows)
    typer.echo(
        f"Chosen on {certificate.chosen_on} documents by {certificate.estimator}, certified on the other "
        f"{certificate.certified_on}: {certificate.why}."
    )
    test = certificate.no_harm
    if test is not None:
        budgets = ", ".join(f"{tier} {budget}" for tier, budget in test.budgets.items())
        typer.echo(f"{budgets} against uniform {test.uniform}: CWE gain {test.gain:+.3f}, at least {test.lower:+.3f}.")
    for ceiling in certificate.ceilings.values():
        typer.echo(f"{ceiling}.")
    typer.echo("")


def print_calibration(
    found: Calibration,
    source: str,
    output: Path,
    log: Path,
    agreement: float | None = None,
    *,
    stated: bool = True,
) -> None:
    """Print the whole page; ``stated``: somebody gave the costs."""
    if found.policy.basis == "legibility":
        typer.echo("LEGIBILITY, not a VLM's error: whether the print at each answer's place can still be read.")
    if len(found.apart):
        typer.echo(f"{found.apart}.")
    budgets = sorted({budget for curve in found.curves.values() for budget in curve.budgets})
    rows = [
        (budget, *(f"{curve.error(budget):.3f}" if budget in curve.budgets else "" for curve in found.curves.values()))
        for budget in budgets
    ]
    if next(iter(found.run.outcomes.values())).layers is not None:
        typer.echo("Budgets are tokens averaged over the decoder's layers.")
    print_table("Error by budget, raw", ["budget", *found.curves], rows)
    as_planned = found.certificate is None or dict(found.policy.budgets) == dict(found.plan.allocation.budgets)
    title = "Budgets" if as_planned else "Budgets, before the certificate"
    print_plan(found.plan, found.curves, source, found.policy.estimator, title=title, stated=stated)
    if found.certificate is None:  # which halves the documents otherwise, and so has another number for the same
        _print_held_out(found)
    print_shipped(found)
    native, spent = found.native_tokens, found.spent
    typer.echo(
        f"At full resolution these questions take {native:,} visual tokens; under the policy {spent:,}, "
        f"{spent / native:.1%} of that. Measuring took {found.measured_tokens:,}."
    )
    ran = found.run
    if ran.answered:
        rate = ran.answered / ran.seconds if ran.seconds else 0.0
        typer.echo(f"{ran.answered:,} of {len(ran.outcomes):,} answers are new, {rate:.1f} a second.")
    if ran.retiered:
        typer.echo(f"Tiers of {ran.retiered} questions are read otherwise than before; their answers are kept.")
    if ran.changed:
        typer.echo(f"{ran.changed} answers of a redone batch differ from the log: this model is not deterministic.")
    if agreement is not None:
        kind = found.policy.signal["kind"]
        typer.echo(
            f"Calibrated on the labels; the policy reads tiers by {kind}, which agrees with {agreement:.1%} of them."
        )
    if found.served is not None:
        told = found.served
        typer.echo(
            f"All of the above is of requests that name their tier. As it reads them, the same budgets give these "
            f"questions a CWE of {told.cwe:.3f} at {told.tokens:.0f} tokens an image; named, {told.by_label:.3f} at "
            f"{told.label_tokens:.0f}; uniform {told.uniform_budget}, {told.uniform:.3f}. Name tiers in the header "
            f"x-stakes-tier, train a signal on the labels, or calibrate with --signal {kind} or --soft."
        )
    typer.echo(f"Policy in {output}, answers in {log}.")


def _print_held_out(found: Calibration) -> None:
    check = found.held_out
    if check is None:
        typer.echo(f"No held-out check: {found.why_not_held_out}.")
        return
    if set(check.budgets.values()) == {check.uniform_budget}:
        typer.echo(
            f"Held out: chosen on {check.chosen_on} documents, the choice is uniform itself ({check.uniform_budget}); "
            f"there is nothing to compare on the other {check.tested_on}."
        )
        return
    chosen = ", ".join(f"{tier} {budget}" for tier, budget in check.budgets.items())
    gain = check.gain
    sure = "helps" if gain.low > 0 else "hurts" if gain.high < 0 else "is not told from luck"
    verdict = "is not told yet" if gain.few else sure
    mine, even = check.mean_tokens, check.uniform_mean_tokens
    tested, spent = f"the choice {verdict}", f"at {mine:.0f} tokens an image against {even:.0f}"
    if mine > (1 + TOLERANCE["resolution"]) * even:  # by more than arms may differ
        tested = "tested"
        spent = (
            f"at more tokens an image ({mine:.0f} against {even:.0f}), so this is no proof; stakes evaluate compares "
            "at equal tokens"
        )
    span = f"({gain.few})" if gain.few else f"[{gain.low:+.3f}, {gain.high:+.3f}]"
    typer.echo(
        f"Held out: chosen on {check.chosen_on} documents ({chosen}), {tested} on the other {check.tested_on}: CWE "
        f"falls by {gain.value:+.3f} {span} from uniform {check.uniform_budget}, {spent}; dearest tier "
        f"{check.dear.b}:{check.dear.c}, p = {check.dear.p:.2g}."
    )
