"""How a command speaks: a page of tables for people, or one JSON object for machines."""

import json
import math
from collections.abc import Sequence
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def print_json(record: object) -> None:
    """One object on stdout; infinities and NaN, which JSON has no word for, become null."""
    typer.echo(json.dumps(clean(record), ensure_ascii=False, indent=1))


def clean(value: Any) -> Any:
    """The same with null for what JSON has no word for."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table as wide as the terminal, or as wide as it needs when the output is no terminal."""
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


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table for a page of the documentation."""
    lines = [columns, ["---"] * len(columns), *([show(cell) for cell in row] for row in rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def show(value: object) -> str:
    """Numbers as a person writes them: rates to three decimals, tiny p-values in powers of ten, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    if math.isinf(value):
        return "never" if value > 0 else "-inf"
    if value != 0 and abs(value) < 0.001:
        return f"{value:.2g}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) >= 10 else f"{value:.3f}"
