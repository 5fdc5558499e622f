"""``stakes explain``: which tier a request is in, why, and what it gets under a policy."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.options.inputs import SERVED_SIGNAL_HELP, Undecided, parse_served_signal, use_signal
from stakes.commands.output import AsJson, print_json, print_serve
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.signals import Prompt, Signal


def explain(
    question: Annotated[str, typer.Argument(help="The question, as a user would ask it.")] = "",
    policy: Annotated[Path | None, typer.Option(help="A policy file; without one, only the tier is shown.")] = None,
    system: Annotated[str, typer.Option(help="The system text of the request.")] = "",
    schema: Annotated[Path | None, typer.Option(help="A file with the JSON schema of the answer.")] = None,
    request: Annotated[
        Path | None, typer.Option(help="A file with a whole request body, of chat completions, responses or messages.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Its task, for a signal that reads tiers by task.")] = None,
    signal: Annotated[str | None, typer.Option(help=SERVED_SIGNAL_HELP)] = None,
    undecided: Undecided = None,
    as_json: AsJson = False,
) -> None:
    """Show the tier of a request, the reason and all of its fields, and its budget under a policy.

    Example: stakes explain "What is the invoice total?" --policy policy.json
    Example: stakes explain "Process this." --system "Extract the IBAN." --schema schema.json
    Example: stakes explain --request body.json
    """
    from stakes.budgets.policy import Policy

    prompt = _prompt(question, system, schema, request, task)
    if policy is None:
        reader = parse_served_signal(signal or "requests", {"high": 1, "low": 0}, undecided)
        record: dict[str, object] = {**asdict(reader(prompt, task)), "budget": None, "cost": None}
    else:
        rules = Policy.load(policy)
        use_signal(rules, signal, undecided)
        reader = rules.reader
        decision = rules.decide(prompt, task)
        escalate = None if decision.escalate is None else decision.escalate.model_dump()
        predictor = None if decision.predictor is None else decision.predictor.model_dump()
        record = {**asdict(decision), "escalate": escalate, "predictor": predictor, "policy": rules.fingerprint}
    record = {"question": prompt.question, **record, "fields": dict(_fields(reader, prompt))}
    if as_json:
        print_json(record)
        return
    typer.echo(f"tier         {record['tier']}")
    typer.echo(f"probability  {record['probability']:.2f}")
    typer.echo(f"why          {record['why']}")
    for name, tier in _fields(reader, prompt):
        typer.echo(f"field        {name}: {tier}")
    if policy is None:
        typer.echo("budget       none: give a policy with --policy to see it")
    else:
        typer.echo(f"budget       {record['budget']} visual tokens")
        if not decision.option.fixed:
            by = " (by confidence)" if decision.option.reads_confidence else ""
            typer.echo(f"option       {decision.option}{by}")
        typer.echo(f"cost         {record['cost']:g} for a wrong answer")
        print_serve(policy, rules)


def _prompt(question: str, system: str, schema: Path | None, request: Path | None, task: str | None) -> "Prompt":
    from stakes.signals.prompt import Prompt, read_prompt, read_schema

    if request is None:
        if not (question or system or schema):
            raise BadInput("there is nothing to explain; give a question, --system and --schema, or --request FILE")
        fields = read_schema(_read_json(schema)) if schema is not None else ()
        if schema is not None and not fields:
            raise BadInput(f"{schema} holds no field; it should be a JSON schema or a list of names")
        return Prompt(question, system, fields, task=task)
    if question or system or schema:
        raise BadInput("a request body says everything; give --request alone, or a question with --system and --schema")
    body = _read_json(request)
    if not isinstance(body, dict) or not ("messages" in body or "input" in body):
        raise BadInput(f"{request} is no request body: it has neither messages nor input")
    return read_prompt("responses" if "input" in body else "chat", body, task)


def _read_json(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not a JSON file ({error})") from None


def _fields(reader: "Signal", prompt: "Prompt") -> list[tuple[str, str]]:
    """All fields of the request with their tiers, by a signal that reads fields."""
    from stakes.signals import RequestSignal

    return reader.find_fields(prompt) if isinstance(reader, RequestSignal) else []
