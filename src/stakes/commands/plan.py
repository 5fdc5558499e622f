"""``stakes plan``: from curves and costs to budgets, before any model runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from stakes.budgets.curve import Curve

from stakes.commands.output import AsJson, print_json
from stakes.errors import BadInput

N = TypeVar("N", int, float)


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
    as_json: AsJson = False,
) -> None:
    """Choose the budgets that minimise cost-weighted error under a hard total, and say what they rest on.

    Example: stakes plan --published docvqa --effort high="20 minutes" --effort low="1 minute"
    """
    from stakes.budgets.elicit import costs_from_effort
    from stakes.budgets.plan import make_plan

    if (curves is None) == (published is None):
        raise BadInput("give either --curves FILE or --published docvqa, and not both")
    if cost and effort:
        raise BadInput("give costs by --cost or by --effort, and not both")
    measured, source = _curves(curves, published)
    if effort:
        costs = costs_from_effort(_words("--effort", effort))
    else:
        costs = _numbers("--cost", cost, float) if cost else {"high": 5.0, "low": 1.0}
    counts = _numbers("--count", count, int) if count else {tier: max(c.counts) for tier, c in measured.items()}
    tokens = mean_budget * sum(counts.values()) if total is None else total
    chosen = _numbers("--pair", pair, int) if pair else None
    made = make_plan(measured, costs, counts, tokens, floor, pair=chosen, mix=mix)
    if as_json:
        print_json({"source": source, **made.record()})
        return
    from stakes.commands.plan_page import print_plan

    print_plan(made, measured, source)


def _curves(path: Path | None, published: str | None) -> "tuple[dict[str, Curve], str]":
    if path is not None:
        from stakes.budgets.curve_files import read_curves

        return read_curves(path), str(path)
    from stakes.experiments.published import curves
    from stakes.experiments.published_tables import NAMES, PER_TIER

    if published not in PER_TIER:
        raise BadInput(f"there are no published curves of {published!r}; choose one of {', '.join(PER_TIER)}")
    return curves(published), f"published curves of {NAMES[published]} (the paper's, not this project's)"


def _words(option: str, words: list[str]) -> dict[str, str]:
    read: dict[str, str] = {}
    for word in words:
        tier, equals, value = word.partition("=")
        if not equals or not tier.strip():
            raise BadInput(f"{option} takes tier=value, such as high=5, not {word!r}")
        if tier in read:
            raise BadInput(f"{option} names tier {tier!r} twice; keep one")
        read[tier] = value
    return read


def _numbers(option: str, words: list[str], kind: type[N]) -> dict[str, N]:
    numbers = {}
    for tier, value in _words(option, words).items():
        try:
            numbers[tier] = kind(value)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise BadInput(f"{option} {tier}={value}: {value!r} is not {what}") from None
    return numbers
