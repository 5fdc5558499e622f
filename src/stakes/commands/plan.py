"""``stakes plan``: from curves and costs to budgets, before any model runs."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.certainty import Ceilings, Confidence, EstimatorName, ceilings, tier_numbers, tier_words
from stakes.commands.output import AsJson, print_json
from stakes.commands.plan_samples import Wish, plan_samples
from stakes.errors import BadInput, InfeasibleBudget

if TYPE_CHECKING:
    from stakes.budgets.curve import Curve
    from stakes.budgets.estimators.choose import Terms


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
    from stakes.budgets.elicit import costs_from_effort
    from stakes.budgets.estimators.choose import Terms
    from stakes.budgets.grid import check_floor
    from stakes.budgets.plan import make_plan

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
    from stakes.commands.plan_page import print_plan

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
    from stakes.budgets.by_document import by_document
    from stakes.budgets.estimators import fit
    from stakes.budgets.estimators.choose import choose
    from stakes.evaluation.outcomes import read_outcomes

    if estimator == "bootstrap":
        raise BadInput("the estimator 'bootstrap' makes a choice and no curves to plan with; calibrate with it instead")
    if path is None or path.suffix != ".jsonl":
        return estimator, fit(estimator, measured)
    found = choose(by_document(read_outcomes(path), terms.costs), terms, estimator)
    return found.estimator, found.curves
