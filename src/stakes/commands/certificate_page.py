"""How a certificate reads to a person: what ships, what is promised of it, and what is not."""

import typer

from stakes.budgets.calibrate import Calibration
from stakes.budgets.certificate import Certificate
from stakes.commands.output import print_table


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
