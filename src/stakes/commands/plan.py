"""``stakes plan``: from curves and costs to budgets, before any model runs."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.budgets.curve import Curve
from stakes.budgets.plan import Plan
from stakes.commands.calibrate_options import Ceilings, Confidence, EstimatorName, ceilings, tier_numbers, tier_words
from stakes.commands.output import AsJson, print_json, print_table, show
from stakes.commands.plan_samples import Wish, plan_samples
from stakes.errors import BadInput, InfeasibleBudget

if TYPE_CHECKING:
    from stakes.budgets.curve import Curve
    from stakes.calibration.estimators.choose import Terms


def plan(
    curves: Annotated[
        Path | None, typer.Option(help="Measured curves: a JSON file, a policy, or a .jsonl log of outcomes.")
    ] = None,
    published: Annotated[
        str | None, typer.Option(help="Use the paper's curves: docvqa, chartqa or infographicvqa.")
    ] = None,
    cost: Annotated[
        list[str] | None, typer.Option(help="Cost of a mistake, as tier=cost; once per tier. Default: high=5, low=1.")
    ] = None,
    effort: Annotated[
        list[str] | None,
        typer.Option(help='What a mistake takes: tier="20 minutes" or tier=$35; in place of --cost.'),
    ] = None,
    count: Annotated[
        list[str] | None, typer.Option(help="Samples per tier, as tier=n; once per tier. Default: those measured.")
    ] = None,
    mean_budget: Annotated[int, typer.Option(help="Tokens per image on average, over all samples.")] = 304,
    total: Annotated[int | None, typer.Option(help="Tokens in all, in place of --mean-budget.")] = None,
    floor: Annotated[int | None, typer.Option(help="The smallest budget permitted to any tier.")] = None,
    pair: Annotated[
        list[str] | None, typer.Option(help="A choice to compare with uniform, as tier=budget; once per tier.")
    ] = None,
    mix: Annotated[bool, typer.Option("--mix", help="Let one tier use two budgets, to spend what is left.")] = False,
    estimator: EstimatorName = None,
    samples: Annotated[
        bool,
        typer.Option("--samples", help="How many questions to label for a certificate, if these were true."),
    ] = False,
    confidence: Confidence = None,
    ceiling: Ceilings = None,
    power: Annotated[float, typer.Option(help="With --samples: the chance that the certificate is then had.")] = 0.8,
    per_document: Annotated[float, typer.Option(help="With --samples: questions a document, on average.")] = 1.0,
    likeness: Annotated[
        float, typer.Option(help="With --samples: how much of a question's difficulty is its document's, 0 to 1.")
    ] = 0.3,
    repeats: Annotated[int, typer.Option(help="With --samples: calibrations to imagine for each number.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Choose the budgets that minimise cost-weighted error under a hard total, and say what they rest on.

    Example: stakes plan --published docvqa --effort high="20 minutes" --effort low="1 minute"
    Example: stakes plan --published docvqa --samples --ceiling high=0.20 --per-document 2
    """
    from stakes.budgets.curve import check_floor
    from stakes.budgets.plan import costs_from_effort, make_plan
    from stakes.calibration.estimators.choose import Terms

    if (curves is None) == (published is None):
        raise BadInput("give either --curves FILE or --published docvqa, and not both")
    if cost and effort:
        raise BadInput("give costs by --cost or by --effort, and not both")
    check_floor(floor)
    measured, source = _curves(curves, published)
    fitted: Mapping[str, Curve] = measured
    if effort:
        costs = costs_from_effort(tier_words("--effort", effort))
    else:
        costs = tier_numbers("--cost", cost, float) if cost else {"high": 5.0, "low": 1.0}
    if samples:
        if total is not None or floor is not None or pair or mix:
            raise BadInput("--samples takes --mean-budget, and none of --total, --floor, --pair and --mix")
        shares = tier_numbers("--count", count, float) if count else None
        wish = Wish(confidence, power, ceilings(ceiling), per_document, likeness, repeats, estimator)
        plan_samples(measured, source, costs, mean_budget, shares, wish, as_json)
        return
    if ceiling or confidence is not None:
        raise BadInput("--ceiling and --confidence need answers to certify: add --samples here, or calibrate --certify")
    counts = tier_numbers("--count", count, int) if count else {tier: max(c.counts) for tier, c in measured.items()}
    tokens = mean_budget * sum(counts.values()) if total is None else total
    chosen = tier_numbers("--pair", pair, int) if pair else None
    name = estimator or "raw"
    if name != "raw":
        name, fitted = _fitted(curves, measured, name, Terms(costs, counts, tokens, floor))
        source = f"{source}, curves by {name}"
    if total is None:
        _check_mean(fitted, counts, mean_budget, floor)
    made = make_plan(fitted, costs, counts, tokens, floor, pair=chosen, mix=mix)
    if as_json:
        print_json({"source": source, "estimator": name, **made.record()})
        return

    print_plan(made, measured, source, name, stated=bool(cost or effort))


def _check_mean(curves: "Mapping[str, Curve]", counts: Mapping[str, int], mean_budget: int, floor: int | None) -> None:
    """Say the smallest mean budget, where the one asked for is below it; a total is for those who think in totals."""
    permitted = {tier: [b for b in curve.budgets if b >= (floor or 1)] for tier, curve in curves.items()}
    if not counts or min(counts.values()) < 1 or set(counts) != set(curves) or not all(permitted.values()):
        return  # whatever is wrong there is told by the plan
    least = sum(count * permitted[tier][0] for tier, count in counts.items()) / sum(counts.values())
    if mean_budget < least:
        raise InfeasibleBudget(
            f"a mean budget of {mean_budget} is too small: the smallest permitted budgets take {least:g} an image; "
            f"give --mean-budget {math.ceil(least)} or more, or measure smaller budgets"
        )


def _curves(path: Path | None, published: str | None) -> "tuple[dict[str, Curve], str]":
    if path is not None:
        from stakes.budgets.curve_files import read_curves

        return read_curves(path), str(path)
    from stakes.experiments.published import curves
    from stakes.experiments.published_tables import NAMES, PER_TIER

    if published not in PER_TIER:
        raise BadInput(f"there are no published curves of {published!r}; choose one of {', '.join(PER_TIER)}")
    return curves(published), f"published curves of {NAMES[published]} (the paper's, not this project's)"


def _fitted(
    path: Path | None, measured: "dict[str, Curve]", estimator: str, terms: "Terms"
) -> "tuple[str, Mapping[str, Curve]]":
    """The estimator's name and its curves; a log of outcomes also tells it which answers are of one document."""
    from stakes.calibration.by_document import by_document
    from stakes.calibration.estimators import fit
    from stakes.calibration.estimators.choose import choose
    from stakes.evaluation.outcome_log import read_outcomes

    if estimator == "bootstrap":
        raise BadInput("the estimator 'bootstrap' makes a choice and no curves to plan with; calibrate with it instead")
    if path is None or path.suffix != ".jsonl":
        return estimator, fit(estimator, measured)
    found = choose(by_document(read_outcomes(path), terms.costs), terms, estimator)
    return found.estimator, found.curves


# How a plan reads to a person: tables, and a sentence wherever a number needs one.


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
    from stakes.report.terminal import curves_text, frontier_text, room

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
