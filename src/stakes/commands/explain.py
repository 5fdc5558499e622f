"""``stakes explain``: which tier a question is in, why, and what it gets under a policy."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stakes.commands.inputs import SERVED_SIGNAL_HELP, parse_served_signal
from stakes.commands.output import AsJson, print_json


def explain(
    question: Annotated[str, typer.Argument(help="The question, as a user would ask it.")],
    policy: Annotated[Path | None, typer.Option(help="A policy file; without one, only the tier is shown.")] = None,
    task: Annotated[str | None, typer.Option(help="Its task, for a signal that reads tiers by task.")] = None,
    signal: Annotated[str | None, typer.Option(help=SERVED_SIGNAL_HELP)] = None,
    as_json: AsJson = False,
) -> None:
    """Show the tier of a question, its probability and the reason, and its budget under a policy.

    Example: stakes explain "What is the invoice total?" --policy policy.json
    """
    from stakes.budgets.policy import Policy

    if policy is None:
        reading = parse_served_signal(signal or "keywords", {"high": 1, "low": 0})(question, task)
        record: dict[str, object] = {"question": question, **asdict(reading), "budget": None, "cost": None}
    else:
        rules = Policy.load(policy)
        if signal:
            rules.use(parse_served_signal(signal, rules.costs))
        record = {"question": question, **asdict(rules.decide(question, task)), "policy": rules.fingerprint}
    if as_json:
        print_json(record)
        return
    typer.echo(f"tier         {record['tier']}")
    typer.echo(f"probability  {record['probability']:.2f}")
    typer.echo(f"why          {record['why']}")
    if policy is None:
        typer.echo("budget       none: give a policy with --policy to see it")
    else:
        typer.echo(f"budget       {record['budget']} visual tokens")
        typer.echo(f"cost         {record['cost']:g} for a wrong answer")
