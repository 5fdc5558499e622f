"""``stakes reproduce``: the paper's tables, recomputed or measured, beside the published figures."""

from collections import Counter
from typing import Annotated

import typer

from stakes.commands.output import AsJson, print_json, print_table
from stakes.errors import BadInput

TABLES = {"published": "every published figure that follows from others, recomputed"}


def reproduce(
    table: Annotated[str, typer.Argument(help="Which table: " + "; ".join(f"{k} ({v})" for k, v in TABLES.items()))],
    every: Annotated[bool, typer.Option("--every", help="List the figures that follow, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Recompute the paper's figures and say which follow.

    Example: stakes reproduce published --every
    """
    if table not in TABLES:
        raise BadInput(f"there is no table {table!r}; choose one of {', '.join(TABLES)}")
    from stakes.experiments.published import checks

    found = checks()
    count: Counter[str] = Counter(check.verdict for check in found)
    if as_json:
        print_json({"table": table, "verdicts": dict(count), "checks": [check.record() for check in found]})
        return
    listed = [check for check in found if every or check.verdict != "follows"]
    rows = [
        (c.table, c.what, c.printed, "" if c.recomputed is None else c.recomputed, c.how, c.verdict) for c in listed
    ]
    title = "Published figures, recomputed" if every else "Published figures that do not follow from the others"
    print_table(title, ["table", "figure", "printed", "recomputed", "how", "verdict"], rows)
    typer.echo("; ".join(f"{n} {verdict}" for verdict, n in count.most_common()) + ".")
    if not every:
        typer.echo("All of them: stakes reproduce published --every")
