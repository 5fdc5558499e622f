"""``stakes plan``: from curves and costs to budgets, before any model runs."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.calibrate import (
    Ceilings,
    Confidence,
    EstimatorName,
    MaxHarm,
    check_confidence,
    parse_ceilings,
    parse_harm,
)
from stakes.commands.options.inputs import Costs, tier_numbers, tier_words
from stakes.commands.output import AsJson, format_by_tier, print_json, print_next
from stakes.errors import BadInput, InfeasibleBudget

if TYPE_CHECKING:
    from stakes.budgets.curve import Curve
    from stakes.budgets.policy import Policy


def plan(
    curves: Annotated[
        Path | None, typer.Option(help="Measured curves: JSON, a policy, or a .jsonl log of outcomes.")
    ] = None,
    published: Annotated[str | None, typer.Option(help="The paper's curves: docvqa, chartqa, infographicvqa.")] = None,
    cost: Costs = None,
    effort: Annotated[
        list[str] | None, typer.Option(help='What a mistake takes, in place of --cost: tier="20 minutes" or tier=$35.')
    ] = None,
    count: Annotated[
        list[str] | None, typer.Option(help="Samples per tier, as tier=n; once per tier. Default: those measured.")
    ] = None,
    mean_budget: Annotated[
        int | None, typer.Option(help="Tokens per image on average, over all samples. Default: the policy's, or 304.")
    ] = None,
    total: Annotated[int | None, typer.Option(help="Tokens in all, in place of --mean-budget.")] = None,
    floor: Annotated[int | None, typer.Option(help="The smallest budget permitted to any tier.")] = None,
    max_harm: MaxHarm = None,
    pair: Annotated[list[str] | None, typer.Option(help="Budgets to compare with uniform, as tier=budget.")] = None,
    mix: Annotated[bool, typer.Option("--mix", help="Let one tier use two budgets, to spend the whole total.")] = False,
    estimator: EstimatorName = None,
    samples: Annotated[bool, typer.Option("--samples", help="Estimate how many questions to label.")] = False,
    confidence: Confidence = None,
    ceiling: Ceilings = None,
    power: Annotated[float, typer.Option(help="With --samples: the probability of getting the certificate.")] = 0.8,
    per_document: Annotated[float, typer.Option(help="With --samples: questions per document, on average.")] = 1.0,
    likeness: Annotated[
        float, typer.Option(help="With --samples: a document's share of the difficulty, 0 to 1.")
    ] = 0.3,
    repeats: Annotated[int, typer.Option(help="With --samples: simulated calibrations per size.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Choose the budgets that minimize cost-weighted error under a hard total, and show how far the costs may be off.

    Of a policy, everything that is not given is the policy's own: costs, mean budget, floor, counts and the curves that
    its budgets were chosen on. A log is fitted by calibrate's estimator; curves of a file are taken as they are.

    Example: stakes plan --curves policy.json --cost total=20 --cost date=5 --cost other=1
    Example: stakes plan --published docvqa --effort high="20 minutes" --effort low="1 minute"
    Example: stakes plan --published docvqa --samples --ceiling high=0.20 --per-document 2
    """
    from stakes.budgets.curve import PAPER_MEAN, check_floor
    from stakes.budgets.curve_files import read_policy
    from stakes.budgets.harm import harm_report
    from stakes.budgets.plan import costs_from_effort, make_plan
    from stakes.calibration.certify.certificate import CONFIDENCE, Certification
    from stakes.calibration.certify.power import Design, Search, samples_needed
    from stakes.calibration.estimators import DEFAULT
    from stakes.commands.output.plan import (
        certified_share,
        print_needed,
        print_plan,
        print_policy_differs,
        print_size,
    )

    if (curves is None) == (published is None):
        raise BadInput("give either --curves FILE or --published docvqa, and not both")
    if cost and effort:
        raise BadInput("give costs by --cost or by --effort, and not both")
    check_floor(floor)
    measured, source = _read_curves(curves, published)
    policy = None if curves is None else read_policy(curves)
    if effort:
        costs = costs_from_effort(tier_words("--effort", effort))
    elif cost:
        costs = tier_numbers("--cost", cost, float)
    else:
        costs = {"high": 5.0, "low": 1.0} if policy is None else policy.costs
    if mean_budget is None:
        mean_budget = PAPER_MEAN if policy is None else policy.mean_budget
    limits = parse_harm(max_harm, costs) or (None if policy is None else policy.max_harm)
    if samples:
        if total is not None or floor is not None or pair or mix:
            raise BadInput("--samples takes --mean-budget, and none of --total, --floor, --pair and --mix")
        level = check_confidence(CONFIDENCE if confidence is None else confidence)
        design = Design(tier_numbers("--count", count or [], float), per_document, likeness)
        search = Search(power, repeats=repeats, estimator=estimator or DEFAULT)
        goal = Certification(level, parse_ceilings(ceiling), max_harm=limits)
        needed = samples_needed(measured, costs, mean_budget, goal, design, search, print_size)
        if as_json:
            share, lower = (None, None) if needed.needed is None else certified_share(needed)
            print_json({"source": source, **needed.record(), "share": share, "share_at_least": lower})
        else:
            limited = f", with harm limits of {format_by_tier(limits)}" if limits else ""
            print_needed(needed, f"{source}{limited}")
        return
    if ceiling or confidence is not None:
        raise BadInput("--ceiling and --confidence need answers to certify: add --samples here, or calibrate --certify")
    counts = {tier: max(c.counts) for tier, c in measured.items()} if policy is None else policy.counts
    if count:
        counts = tier_numbers("--count", count, int)
    tokens = mean_budget * sum(counts.values()) if total is None else total
    stated = DEFAULT if curves is not None and curves.suffix == ".jsonl" else "raw"  # a log is fitted, rates are given
    name = estimator or (stated if policy is None else policy.estimator)
    fitted = _fit(curves, measured, name, costs, policy)
    if name != "raw":
        source = f"{source}, curves by {name}"
    if floor is None and policy is not None and policy.floor > 1:
        floor = policy.floor
    if total is None:
        check_mean(fitted, counts, mean_budget, floor)
    named = tier_numbers("--pair", pair, int) if pair else None
    labelled = policy is not None and not count and all(plan.questions for plan in policy.tiers.values())
    questions = {tier: plan.questions or {} for tier, plan in policy.tiers.items()} if policy and labelled else counts
    result = make_plan(fitted, costs, questions, tokens, floor, pair=named, mix=mix, max_harm=limits)
    harm = harm_report(fitted, result, floor)
    if as_json:
        served = None if policy is None else policy.budgets
        print_json(
            {
                "source": source,
                "estimator": name,
                "policy_budgets": served,
                **result.record(),
                "harm": harm and harm.record(),
            }
        )
        return
    if harm is not None:
        typer.echo(f"{harm}\n")
    print_plan(result, measured, source, name, fitted=fitted, stated=bool(cost or effort or policy))
    if policy is not None and policy.budgets != result.allocation.budgets:
        print_policy_differs(policy)
    if policy is not None and curves is not None:
        print_next("report", curves)
    elif set(costs) == {"high", "low"}:  # the tiers of synthetic pages
        given = [word for tier, each in costs.items() for word in ("--cost", f"{tier}={each:g}")]
        largest = max(max(curve.budgets) for curve in measured.values())  # calibrate refuses a mean above its grid
        print_next("calibrate", "--pages", "receipts", *given, "--mean-budget", min(mean_budget, largest))


def check_mean(curves: "Mapping[str, Curve]", counts: Mapping[str, int], mean_budget: int, floor: int | None) -> None:
    """Refuse a mean budget below the smallest possible one, and name that; ``make_plan`` would name a total."""
    permitted = {tier: [b for b in curve.budgets if b >= (floor or 1)] for tier, curve in curves.items()}
    if not counts or min(counts.values()) < 1 or set(counts) != set(curves) or not all(permitted.values()):
        return  # make_plan explains what is wrong there
    least = sum(count * permitted[tier][0] for tier, count in counts.items()) / sum(counts.values())
    if mean_budget < least:
        raise InfeasibleBudget(
            f"a mean budget of {mean_budget} is too small: the smallest permitted budgets take {least:g} per image; "
            f"give --mean-budget {math.ceil(least)} or more, or measure smaller budgets"
        )


def _read_curves(path: Path | None, published: str | None) -> "tuple[dict[str, Curve], str]":
    """The curves by tier, and where they come from."""
    if path is not None:
        from stakes.budgets.curve_files import read_curves

        return read_curves(path), str(path)
    from stakes.experiments.published import curves
    from stakes.experiments.published_arms import NAMES, PER_TIER

    if published not in PER_TIER:
        raise BadInput(f"there are no published curves of {published!r}; choose one of {', '.join(PER_TIER)}")
    return curves(published), f"published curves of {NAMES[published]} (the paper's, not this project's)"


def _fit(
    path: Path | None,
    measured: "dict[str, Curve]",
    estimator: str,
    costs: Mapping[str, float],
    policy: "Policy | None" = None,
) -> "dict[str, Curve]":
    """The estimator's curves: of a policy, those that its budgets were chosen on.

    A log of outcomes also shows the estimator how errors correlate within documents.
    """
    from stakes.calibration.by_document import by_document
    from stakes.calibration.estimators import fit
    from stakes.evaluation.outcome_log import read_outcomes

    if policy is not None and policy.estimator == estimator:
        return {tier: curve for tier, plan in policy.tiers.items() if (curve := plan.chosen_on)}
    if path is None or path.suffix != ".jsonl" or estimator == "raw":
        return fit(estimator, measured)
    table = by_document(read_outcomes(path), costs)
    return fit(estimator, table.curves(), table)
