"""How a plan reads to a person: tables, and a sentence wherever a number needs one."""

import math
from collections.abc import Mapping

import typer

from stakes.budgets.curve import Curve
from stakes.budgets.plan import Plan
from stakes.commands.output import print_table, show


def print_plan(
    plan: Plan,
    curves: Mapping[str, Curve],
    source: str,
    estimator: str = "raw",
    *,
    title: str = "Budgets",
    stated: bool = True,
) -> None:
    """Print the whole page; errors are those of curves by this ``estimator``, costs the default's unless ``stated``."""
    typer.echo(f"{source}\n")
    _print_allocation(plan, curves, estimator, title)
    _draw(plan, curves)
    _print_ratios(plan)
    _print_sureness(plan, stated)
    _print_pair(plan)


def _draw(plan: Plan, curves: Mapping[str, Curve]) -> None:
    """The curves and the frontier as text, where the screen has room for them."""
    from stakes.report.text import curves_text, frontier_text, room

    if width := room():
        best = plan.allocation
        typer.echo(curves_text(curves, best.budgets, width) + "\n")
        if len(curves) > 1 and not best.mixed:
            chosen = best.budgets[plan.dearest]
            typer.echo(frontier_text(curves, plan.costs, plan.counts, best.total, width, chosen) + "\n")


def _print_allocation(plan: Plan, curves: Mapping[str, Curve], estimator: str, title: str) -> None:
    best = plan.allocation
    rows = []
    for tier, budget in best.budgets.items():
        low, high = curves[tier].interval(budget)
        share = best.mixed.get(tier)
        spends = " + ".join(f"{k} × {b}" for b, k in share.items()) if share else str(budget)
        edge = {"largest": "largest measured", "smallest": "smallest measured", "both": "both ends measured"}
        rows.append(
            (tier, plan.costs[tier], plan.counts[tier], spends, best.errors[tier], f"{low:.3f} … {high:.3f}",
             edge.get(best.on_edge.get(tier, ""), ""))
        )  # fmt: skip
    error = "error" if estimator == "raw" else f"error, {estimator.rpartition(': ')[2].partition(':')[0]}"
    columns = ["tier", "cost", "samples", "budget", error, "95 %", "edge"]
    print_table(title, columns, rows)
    mean = best.spent / sum(plan.counts.values())
    typer.echo(f"CWE {best.cwe:.3f} for {best.spent:,} of {best.total:,} tokens, {mean:.1f} an image.")
    if plan.uniform_cwe is not None:
        change = plan.uniform_cwe - best.cwe
        verdict = f"{change:.3f} lower" if change > 5e-4 else "no lower: keep uniform"  # 0.000 is not lower
        if not best.mixed and set(best.budgets.values()) == {plan.uniform_budget}:
            verdict = "uniform itself"
        within = "" if plan.uniform_budget == int(mean) else ", the largest budget that all tiers share within the mean"
        typer.echo(
            f"Uniform at {plan.uniform_budget} tokens{within}: CWE {plan.uniform_cwe:.3f}; these budgets are {verdict}."
        )
    if best.price > 0:
        worth = best.price * sum(plan.counts.values())
        typer.echo(f"One more token for every image would lower CWE by about {show(worth)}.")
    elif not {"largest", "both"} & set(best.on_edge.values()):  # beyond the largest measured budget nobody knows
        typer.echo("More tokens would not help: the curves have no use for them.")
    if best.on_edge:
        typer.echo(f"On the edge of the measured grid: {', '.join(best.on_edge)}. More range might do better.")
    if best.gap:
        typer.echo(f"Proven within {best.gap:.2g} of the best possible CWE.")
    typer.echo("")


def _print_ratios(plan: Plan) -> None:
    if not plan.ratios:
        return
    tiers = list(plan.allocation.budgets)
    rows = [
        (
            f"{row.ratio:g}",
            *(row.budgets[tier] for tier in tiers),
            row.cwe,
            row.uniform_cwe,
        )
        for row in plan.ratios
    ]
    title = f"The optimum when a mistake in {plan.dearest} costs r times one in {plan.cheapest}"
    print_table(title, ["r", *tiers, "CWE", "uniform"], rows)
    if plan.changes is not None:
        steps = [f"{c.ratio:.2f} to ({c.after.high}, {c.after.low})" for c in plan.changes]
        typer.echo(f"It changes at r = {', '.join(steps)}." if steps else "It is the same at every ratio from 1 up.")
    typer.echo("")


def _print_sureness(plan: Plan, stated: bool) -> None:
    if not plan.changes:
        return
    ratio = plan.costs[plan.dearest] / plan.costs[plan.cheapest]
    above = [change for change in plan.changes if change.ratio > ratio]
    below = [change for change in plan.changes if change.ratio <= ratio]
    span = f"from {below[-1].ratio:.2f}" if below else "from 1"
    span += f" to {above[0].ratio:.2f}" if above else " upward"
    told = (
        f"You put the ratio at {ratio:g}" if stated else f"The ratio is {ratio:g} (the default; say yours with --cost)"
    )
    typer.echo(f"{told}; these budgets stay the best {span}.")
    if plan.sureness is not None:
        typer.echo(
            f"A question is worth {plan.dearest}'s budget once it is {plan.sureness:.0%} likely to be {plan.dearest} "
            f"at cost {ratio:g} (and {plan.cheapest} otherwise)."
        )
    typer.echo("")


def _print_pair(plan: Plan) -> None:
    if plan.pair is None:
        return
    budgets = ", ".join(f"{tier} {budget}" for tier, budget in plan.pair.budgets.items())
    if set(plan.pair.budgets.values()) == {plan.uniform_budget}:
        typer.echo(f"The choice is uniform itself: {budgets}.")
        return
    if math.isinf(plan.pair.break_even):
        typer.echo(f"The pair {budgets} never pays: {plan.dearest} gains nothing over uniform.")
        return
    typer.echo(
        f"The pair {budgets} has CWE {plan.pair.cwe:.3f} and beats uniform {plan.uniform_budget} from a cost ratio of "
        f"{plan.pair.break_even:.2f} upward."
    )
