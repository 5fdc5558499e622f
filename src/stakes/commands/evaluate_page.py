"""How an evaluation reads to a person: one table of arms, one of cost ratios, and what to make of them."""

import typer

from stakes.budgets.comparison import Comparison
from stakes.budgets.evaluate import Evaluation
from stakes.commands.output import print_table, show


def _draw(seen: Comparison) -> None:
    """CWE of every arm as bars, where the screen has room for them."""
    from stakes.report.text import bars, room

    if width := room():
        typer.echo("cost-weighted error\n" + bars({row.arm: row.cwe for row in seen.rows}, width) + "\n")


def print_evaluation(found: Evaluation, log: str) -> None:
    """Print the whole page."""
    if found.basis == "legibility":
        typer.echo("LEGIBILITY, not a VLM's error: whether the print at each answer's place can still be read.")
    if len(found.apart):
        typer.echo(f"{found.apart}.")
    seen = found.comparison
    tiers = list(seen.counts)
    rows = []
    for row in seen.rows:
        against = ("", "", "") if row.gain is None or row.dear is None else (
            f"{row.gain.value:+.3f} [{row.gain.low:+.3f}, {row.gain.high:+.3f}]",
            f"{row.dear.b}:{row.dear.c}, p = {row.dear.p:.2g}",
            "" if row.break_even is None else show(row.break_even),
        )  # fmt: skip
        rows.append(
            (row.arm, *(row.errors[tier] for tier in tiers), row.average, row.cwe, *against, f"{row.realised:,}")
        )
    columns = [*(f"error {tier}" for tier in tiers), "average", "CWE", "fall of CWE, 95 %"]
    columns += [f"{seen.dearest}: mended:broken", "pays from r", "tokens"]
    sizes = ", ".join(f"{count} {tier} at cost {seen.costs[tier]:g}" for tier, count in seen.counts.items())
    print_table(f"{sizes}; {seen.documents} documents; graded {seen.metric}", ["arm", *columns], rows)
    _draw(seen)
    ratios = list(seen.rows[0].ratios)
    table = [(f"{ratio:g}", *(row.ratios[ratio] for row in seen.rows)) for ratio in ratios]
    print_table(
        f"CWE when a mistake in {seen.dearest} costs r times another", ["r", *(r.arm for r in seen.rows)], table
    )
    typer.echo(
        f"Planned {found.plan.total:,} tokens in every arm by {found.plan.mechanism}; "
        f"realised totals differ by {found.deviation:.3%} at most."
    )
    if found.plan.density:
        typer.echo(f"The content arm goes by {found.plan.density} features.")
    if found.held_out is False:
        typer.echo("NOT held out: the policy was calibrated on some of these documents.")
    if found.same_model is False:
        typer.echo("This is another model than the one that the policy was calibrated with.")
    typer.echo(f"Answers in {log}.")
