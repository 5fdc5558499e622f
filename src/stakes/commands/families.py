"""``stakes families``: the model families whose visual tokens can be counted."""

from typing import Annotated, Any

import typer

from stakes.commands.output import AsJson, print_json


def families(
    width: Annotated[int, typer.Option(help="Width in pixels of the page that is counted.")] = 1654,
    height: Annotated[int, typer.Option(help="Height in pixels of the page that is counted.")] = 2339,
    as_json: AsJson = False,
) -> None:
    """List the known model families: the tokens of one page, what sets them, and where the rule is from.

    Example: stakes families --width 850 --height 1100
    """
    from stakes.vision.geometry import families as known
    from stakes.vision.geometry import tokens_as_sent
    from stakes.vision.geometry.families import offered_families

    rows: list[dict[str, Any]] = [
        {
            "family": name,
            "tokens": tokens_as_sent(name, width, height),
            "set_by": "the image size" if one.controllable_by_resizing else one.engine_parameter or "nothing",
            "hosted": one.hosted,
            "basis": "documentation" if one.documented else "processor",
            "source": one.source,
            "version": one.version,
        }
        for name, one in {**known(), **offered_families()}.items()
    ]
    if as_json:
        print_json({"width": width, "height": height, "families": rows})
        return
    longest = max(len(row["family"]) for row in rows)
    typer.echo(f"{'family':{longest}}  tokens of {width}x{height}, and what sets them (* from documentation)")
    for row in rows:
        mark = "*" if row["basis"] == "documentation" else " "
        typer.echo(f"{row['family']:{longest}}  {row['tokens']:>6}{mark} {row['set_by']}")
