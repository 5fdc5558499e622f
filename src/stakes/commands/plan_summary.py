"""The summaries that ``stakes plan`` prints: budgets and how far costs may be off, or how many questions to label."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from stakes.commands.output import format_by_tier, print_table, show
from stakes.tiers import describe_mean_costs, own_ratio, ratio_meaning

if TYPE_CHECKING:
    from stakes.budgets.curve import Curve
    from stakes.budgets.plan import Plan
    from stakes.budgets.policy import Policy
    from stakes.calibration.certify.power import SamplesNeeded, SizeRow

SHARE_CONFIDENCE = 0.95
"""Confidence of the lower bound on the share of simulated calibrations that are certified."""
EDGES = {"largest": "largest measured", "smallest": "smallest measured", "both": "both ends measured"}


def print_plan(
    plan: "Plan",
    curves: "Mapping[str, Curve]",
    source: str,
    estimator: str = "raw",
    *,
    fitted: "Mapping[str, Curve] | None" = None,
    title: str = "Budgets",
    stated: bool = True,
) -> None:
    """Print the whole summary.

    ``curves``: as measured; ``fitted``: by ``estimator``, which the plan rests on; ``stated``: the user gave the costs.
    """
    typer.echo(f"{source}\n")
    if plan.costs_as_read is not None:
        typer.echo(describe_mean_costs(plan.costs, plan.costs_as_read))
    _print_allocation(plan, curves, estimator, title)
    _print_limits(plan, fitted or curves)
    _draw(plan, curves, fitted or curves)
    _print_ratios(plan)
    _print_required_confidence(plan, stated)
    _print_pair(plan)


def _print_allocation(plan: "Plan", curves: "Mapping[str, Curve]", estimator: str, title: str) -> None:
    best, rows = plan.allocation, []
    for tier, budget in best.budgets.items():
        low, high = curves[tier].interval(budget)
        budgets = " + ".join(f"{k} × {b}" for b, k in best.mixed.get(tier, {}).items()) or str(budget)
        edge = EDGES.get(best.on_edge.get(tier, ""), "")
        interval = f"{low:.3f} … {high:.3f}"
        rows.append((tier, plan.costs[tier], plan.counts[tier], budgets, best.errors[tier], interval, edge))
    error = "error" if estimator == "raw" else f"error, {estimator}"
    print_table(title, ["tier", "cost", "samples", "budget", error, "95 %", "edge"], rows)
    mean = best.spent / sum(plan.counts.values())
    typer.echo(f"CWE {best.cwe:.3f} for {best.spent:,} of {best.total:,} tokens, {mean:.1f} per image.")
    if plan.uniform_cwe is not None:
        change = plan.uniform_cwe - best.cwe
        verdict = f"{change:.3f} lower" if change > 5e-4 else "no lower: keep uniform"  # 0.000 is not lower
        if not best.mixed and set(best.budgets.values()) == {plan.uniform_budget}:
            verdict = "uniform itself"
        typer.echo(f"Uniform {_format_uniform(plan)}: CWE {plan.uniform_cwe:.3f}; these budgets are {verdict}.")
    if best.price > 0:
        gain = show(best.price * sum(plan.counts.values()))
        typer.echo(f"One more token for every image would lower CWE by about {gain}.")
    elif not {"largest", "both"} & set(best.on_edge.values()):  # nothing is known beyond the largest measured budget
        typer.echo("More tokens would not help: the curves do not fall any further.")
    if best.on_edge:
        typer.echo(f"On the edge of the measured grid: {', '.join(best.on_edge)}. A wider grid might do better.")
    if best.gap:
        typer.echo(f"Proven within {best.gap:.2g} of the best possible CWE.")
    typer.echo("")


def _print_limits(plan: "Plan", curves: "Mapping[str, Curve]") -> None:
    """How much the error of each tier with a harm limit rises."""
    from stakes.budgets.harm import uniform_of

    if not plan.max_harm:
        return
    uniform = uniform_of(curves, plan.allocation.total // sum(plan.counts.values()))
    rises = {tier: plan.allocation.errors[tier] - curves[tier].error(uniform) for tier in plan.max_harm}
    shown = ", ".join(f"{tier} {rise:+.3f} (limit {plan.max_harm[tier]:g})" for tier, rise in rises.items())
    typer.echo(f"Errors against uniform {uniform}, within their harm limits: {shown}.\n")


def _format_uniform(plan: "Plan") -> str:
    """``at 376 tokens, interpolated``"""
    from stakes.budgets.uniform import format_tokens

    between = ", interpolated between measured budgets" if plan.uniform_interpolated else ""
    return f"at the same {format_tokens(plan.uniform_budget or 0)} tokens{between}"


def print_policy_differs(policy: "Policy") -> None:
    """Print that the policy serves other budgets than the plan has, and why where that is known."""
    why = ""
    if policy.per_request is not None:
        why = "; with per-request costs it gives each question a budget of its own"
    elif policy.certificate is not None:
        why = ", as certified: those were chosen on a quarter of the documents, or are uniform"
    typer.echo(f"The policy itself serves {format_by_tier(policy.options)}{why}.")


def _draw(plan: "Plan", curves: "Mapping[str, Curve]", fitted: "Mapping[str, Curve]") -> None:
    """The curves as measured and the frontier on those of the plan as text, if the terminal is wide enough."""
    from stakes.report.terminal import curves_text, frontier_text, plot_width

    if width := plot_width():
        best = plan.allocation
        typer.echo(curves_text(curves, best.budgets, width) + "\n")
        if len(curves) > 1 and not best.mixed:
            typer.echo(frontier_text(fitted, plan, width) + "\n")


def _print_ratios(plan: "Plan") -> None:
    from stakes.budgets.uniform import format_tokens

    if not plan.ratios:
        return
    tiers = list(plan.allocation.budgets)
    rows = [
        (f"{r.ratio:g}", *(r.budgets[tier] for tier in tiers), format_tokens(r.tokens), r.cwe, r.uniform_cwe)
        for r in plan.ratios
    ]
    title = f"The optimum when a mistake in {plan.most_expensive} costs r times one in {plan.cheapest}"
    print_table(title, ["r", *tiers, "mean", "CWE", "uniform at that mean"], rows)
    if len(tiers) > 2:
        typer.echo(f"{ratio_meaning(plan.costs)} The stated costs have r = {own_ratio(plan.costs):g}.")
    if plan.changes is not None:
        steps = ", ".join(f"{c.ratio:.2f} to ({c.after.high}, {c.after.low})" for c in plan.changes)
        typer.echo(f"It changes at r = {steps}." if steps else "It is the same at every ratio from 1 up.")
    typer.echo("")


def _print_required_confidence(plan: "Plan", stated: bool) -> None:
    if not plan.changes:
        return
    high = plan.most_expensive
    ratio = plan.costs[high] / plan.costs[plan.cheapest]
    above = [change.ratio for change in plan.changes if change.ratio > ratio]
    below = [change.ratio for change in plan.changes if change.ratio <= ratio]
    span = f"from {below[-1]:.2f}" if below else "from 1"
    span += f" to {above[0]:.2f}" if above else " upward"
    default = "" if stated else " (the default; set yours with --cost)"
    typer.echo(f"The cost ratio is {ratio:g}{default}; these budgets are the best at ratios {span}.")
    if plan.required_confidence is not None:
        typer.echo(
            f"Required confidence: a question deserves the budget of {high} if the probability that it is {high} is "
            f"{plan.required_confidence:.0%} or more."
        )
    typer.echo("")


def _print_pair(plan: "Plan") -> None:
    if plan.pair is None:
        return
    budgets = format_by_tier(plan.pair.budgets)
    if len(set(plan.pair.budgets.values())) == 1:
        typer.echo(f"The pair is uniform itself: {budgets}.")
        return
    pays = plan.pair.pays
    if pays == "never":
        typer.echo(f"The pair {budgets} never pays: neither tier gains over uniform at the same tokens.")
        return
    at = "at every cost ratio" if pays == "every r" else f"at cost ratios {pays}" if pays.startswith("below") else ""
    at = at or f"from a cost ratio of {pays} upward"
    typer.echo(f"The pair {budgets} has CWE {plan.pair.cwe:.3f} and beats uniform at the same tokens {at}.")


def print_size(row: "SizeRow") -> None:
    """Print on stderr how one number of questions does."""
    typer.echo(f"{_format_sizes(row.samples)}: certified to help in {row.ships:.0%}", err=True)


def print_needed(needed: "SamplesNeeded", source: str) -> None:
    """Print how many questions to label, and the table behind it."""
    typer.echo(f"If the true curves were the {source}:\n")
    tiers, ceilings = list(needed.rows[0].samples), list(needed.rows[0].kept)
    columns = [*tiers, "documents", "certified to help"]
    columns += [f"{tier} ceiling certified" for tier in ceilings] + [f"{tier} tokens" for tier in ceilings]
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
    print_table(f"Of {needed.repeats} simulated calibrations, at {needed.confidence:.4g} confidence", columns, rows)
    if needed.needed is None:
        typer.echo(f"{needed.why_not[0].upper()}{needed.why_not[1:]}.")
        return
    goal = "the ceilings are certified" if ceilings else "tiered budgets are certified to help"
    share, lower = certified_share(needed)
    typer.echo(
        f"Label {_format_sizes(needed.needed)} questions: {goal} in {share:.0%} of the {needed.repeats} simulated "
        "calibrations."
    )
    bound = f"With {SHARE_CONFIDENCE:.0%} confidence the true share is at least {lower:.0%}"
    if lower >= needed.power:
        typer.echo(f"{bound}, so the requested {needed.power:.0%} are reached.")
    else:
        more = max(100, 4 * needed.repeats)
        typer.echo(f"{bound}, below the requested {needed.power:.0%}; simulate more with --repeats {more}.")


def certified_share(needed: "SamplesNeeded") -> tuple[float, float]:
    """The share of simulated calibrations certified at the size found, and its lower bound (Clopper-Pearson)."""
    from scipy.stats import binomtest

    row = needed.rows[-1]
    share = min(row.kept.values(), default=row.ships)
    exact = binomtest(round(share * needed.repeats), needed.repeats, alternative="greater")
    return share, float(exact.proportion_ci(SHARE_CONFIDENCE, method="exact").low)


def _format_sizes(samples: Mapping[str, int]) -> str:
    return " + ".join(f"{n} {tier}" for tier, n in samples.items())
