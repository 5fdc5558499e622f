"""``stakes corrections``: what reviewers corrected becomes labelled samples for the next calibration."""

from pathlib import Path
from typing import Annotated

import typer

from stakes.commands.output import AsJson, print_json

app = typer.Typer(help="Bring reviewers' corrections back into calibration.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Bring reviewers' corrections back into calibration."""


@app.command()
def add(
    corrections: Annotated[
        Path, typer.Argument(help="Corrections as JSONL: request, or image and question; and the right answer.")
    ],
    samples: Annotated[Path, typer.Option(help="The samples file to append to; made if there is none.")],
    requests: Annotated[
        Path | None,
        typer.Option(help="What was asked, as JSONL: id (the request's), image, question, tier."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Append corrections to a samples file, each once; ``stakes calibrate`` on that file uses them.

    Example: stakes corrections add corrections.jsonl --samples samples.jsonl
    Example: stakes corrections add corrections.jsonl --samples samples.jsonl --requests asked.jsonl
    """
    from stakes.commands.inputs import check_distinct
    from stakes.data.corrections import add_corrections

    check_distinct(samples, corrections, *filter(None, [requests]))
    found = add_corrections(corrections, samples, requests)
    if as_json:
        return print_json({"samples": str(samples), "added": found.added, "known": found.known})
    typer.echo(f"{found.added} samples added to {samples}; {found.known} were there already.")
    return None
