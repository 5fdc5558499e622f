"""How an evaluation reads to a person: one table of arms, one of cost ratios, and what to make of them."""

import typer

from stakes.budgets.comparison import Comparison
from stakes.budgets.evaluate import Evaluation
from stakes.budgets.policy import Policy
from stakes.commands.output import print_table, show
from stakes.report.sentences import OTHER_SIGNAL, soft_stakes, told_uniform, verdict


def _draw(seen: Comparison) -> None:
    """CWE of every arm as bars, where the screen has room for them."""
    from stakes.report.text import bars, room

    if width := room():
        typer.echo("cost-weighted error\n" + bars({row.arm: row.cwe for row in seen.rows}, width) + "\n")


def _print_luck(seen: Comparison) -> None:
    """Each arm against uniform; a table of its own, so that both fit a screen of 80 columns."""
    rows = [
        (
            row.arm,
            f"{row.gain.value:+.3f}" + ("" if row.gain.few else f" [{row.gain.low:+.3f}, {row.gain.high:+.3f}]"),
            f"{row.dear.b}:{row.dear.c}",
            f"{row.dear.p:.2g}",
            "" if row.break_even is None else show(row.break_even),
        )
        for row in seen.rows
        if row.gain is not None and row.dear is not None
    ]
    if rows:
        few = next(row.gain.few for row in seen.rows if row.gain is not None)
        columns = [
            "arm",
            "fall of CWE" if few else "fall of CWE, 95 %",
            f"mended:broken, {seen.dearest}",
            "p",
            "pays from r",
        ]
        print_table(f"Against uniform; {few}" if few else "Against uniform", columns, rows)


HELD_OUT = {
    True: "Held out: the policy was calibrated on none of these documents.",
    False: "NOT held out: the policy was calibrated on some of these documents.",
    None: "Whether these documents are held out is NOT known: neither this policy nor a log beside it says what it was "
    "calibrated on.",
}


def print_evaluation(found: Evaluation, policy: Policy, log: str) -> None:
    """Print the whole page."""
    if found.basis == "legibility":
        typer.echo("LEGIBILITY, not a VLM's error: whether the print at each answer's place can still be read.")
    if len(found.apart):
        typer.echo(f"{found.apart}.")
    seen = found.comparison
    tiers = list(seen.counts)
    rows = [
        (row.arm, *(row.errors[tier] for tier in tiers), row.average, row.cwe, f"{row.spent:,}") for row in seen.rows
    ]
    columns = [
        "arm",
        *(f"error {tier}" for tier in tiers),
        "average",
        "CWE",
        "tokens" if found.plan.rounding is None else "tokens a layer",
    ]
    sizes = ", ".join(f"{count} {tier} at cost {seen.costs[tier]:g}" for tier, count in seen.counts.items())
    print_table(f"{sizes}; {seen.documents} documents; graded {seen.metric}", columns, rows)
    _print_luck(seen)
    _draw(seen)
    typer.echo(verdict(found) + "\n")
    ratios = list(seen.rows[0].ratios)
    table = [(f"{ratio:g}", *(row.ratios[ratio] for row in seen.rows)) for ratio in ratios]
    print_table(
        f"CWE when a mistake in {seen.dearest} costs r times another", ["r", *(r.arm for r in seen.rows)], table
    )
    rounding = found.plan.rounding
    forced = "" if rounding is None else f", and whole tokens may force {rounding:.3%}"
    typer.echo(
        f"Planned {found.plan.total:,} {found.plan.counted} in every arm by {found.plan.mechanism}; "
        f"realised totals differ by {found.deviation:.3%} at most{forced}."
    )
    if told := soft_stakes(policy):
        typer.echo(told)
    typer.echo(told_uniform(found, policy))
    if found.plan.density:
        typer.echo(f"The content arm goes by {found.plan.density} features.")
    typer.echo(HELD_OUT[found.held_out])
    if found.same_model is False:
        typer.echo("This is another model than the one that the policy was calibrated with.")
    if found.same_signal is False:
        typer.echo(OTHER_SIGNAL)
    typer.echo(f"Answers in {log}.")
