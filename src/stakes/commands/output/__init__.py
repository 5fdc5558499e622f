"""Command output: tables for people, or one JSON object for scripts."""

import json
import math
import platform
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.aliases import with_old_keys
from stakes.files import clean

if TYPE_CHECKING:
    from stakes.budgets.policy import Policy
    from stakes.experiments.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def print_json(record: object) -> None:
    """Print one JSON object, with keys of version 0.1 next to their new names; infinities and NaN become null."""
    typer.echo(json.dumps(with_old_keys(clean(record)), ensure_ascii=False, indent=1))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table as wide as the terminal, or at least 160 columns when the output is not a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(columns):
        numeric = all(
            isinstance(row[i], int | float) or str(row[i])[:1].isdigit() for row in rows if row[i] not in ("", None)
        )
        table.add_column(column, justify="right" if numeric and rows else "left", overflow="fold")
    for row in rows:
        table.add_row(*(show(cell) for cell in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(160, console.width))
    console.print(table)


def print_measured(table: "Table") -> None:
    """Print a measured table and its findings."""
    print_table(table.title, table.columns, table.rows)
    for line in table.findings:
        typer.echo(f"  - {line}")
    typer.echo("")


def save_record(path: Path, record: object) -> None:
    """Write a JSON file whole or not at all; infinities and NaN become null."""
    from stakes.evaluation.fingerprint import save_json

    save_json(path, clean(record))


def versions() -> dict[str, str]:
    """The machine, and the versions of the packages that can change a figure; those not installed are absent."""
    from stakes.commands.output.installed import version

    packages = {name: version(name) for name in ("stakes", "torch", "transformers", "numpy", "pillow")}
    here = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    return here | {name: found for name, found in packages.items() if found is not None}


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as Markdown."""
    lines = [columns, ["---"] * len(columns), *([show(cell) for cell in row] for row in rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def format_by_tier(values: Mapping[str, object]) -> str:
    """``high 576, low 32``"""
    return ", ".join(f"{tier} {value}" for tier, value in values.items())


def show(value: object) -> str:
    """A table cell: rates to three decimals, tiny p-values in scientific notation, empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    if math.isinf(value):
        return "never" if value > 0 else "-inf"
    if value != 0 and abs(value) < 0.001:
        return f"{value:.2g}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) >= 10 else f"{value:.3f}"


def print_next(*words: object) -> None:
    """Print the command that comes next, ready to be copied."""
    typer.echo(f"Next: stakes {shlex.join(map(str, words))}")


def print_serve(file: Path, policy: "Policy") -> None:
    """Print the command that serves a policy, in front of its own model where that can be served."""
    model, upstream = policy.model, "http://127.0.0.1:8000/v1"
    if model is not None and model.name != "ocr":
        upstream = model.endpoint or model.name
    print_next("serve", "--policy", file, "--upstream", upstream)
