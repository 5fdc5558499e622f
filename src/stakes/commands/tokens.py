"""``stakes tokens``: how many visual tokens an image takes, and what a budget makes of it."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from stakes.commands.output import AsJson, print_json

_SIZE = re.compile(r"(\d{1,10})\s*[x×X]\s*(\d{1,10})")


def tokens(
    image: Annotated[str, typer.Argument(help="An image file, or a size such as 1654x2339.")],
    family: Annotated[str, typer.Option(help="The model family, such as qwen2.5-vl, pixtral, claude.")] = "qwen2.5-vl",
    budget: Annotated[int | None, typer.Option(help="Visual tokens that the image may take.")] = None,
    as_json: AsJson = False,
) -> None:
    """Count the visual tokens of an image, and with a budget say which size spends it best.

    Example: stakes tokens page.png --family qwen2.5-vl --budget 576
    """
    from stakes.vision.geometry import accepted_size, tokens_as_sent
    from stakes.vision.geometry import family as named_family

    known = named_family(family)
    width, height = _size(image)
    record: dict[str, Any] = {
        "image": image,
        "family": family,
        "width": width,
        "height": height,
        "native": tokens_as_sent(family, width, height),
        "controllable_by_resizing": known.controllable_by_resizing,
        "engine_parameter": known.engine_parameter,
        "source": known.source,
        "version": known.version,
        "budget": budget,
        "fitted": None if budget is None else _fitted(width, height, budget, family),
    }
    if as_json:
        print_json(record)
        return
    typer.echo(f"image    {width}x{height}")
    largest = accepted_size(family, width, height)
    shrunk = "" if largest == (width, height) else f" at {largest[0]}x{largest[1]}, the largest that it takes,"
    typer.echo(f"native   {record['native']} visual tokens{shrunk} in {family} ({known.source}, read {known.version})")
    fitted = record["fitted"]
    if fitted is None:
        typer.echo(f"budget   none: {known.refusal or 'give one with --budget to see the size that spends it'}")
        return
    across, down = fitted["scale"]
    typer.echo(f"budget   {budget} visual tokens")
    typer.echo(f"fitted   {fitted['width']}x{fitted['height']}, scaled by {across:.3f} across and {down:.3f} down")
    typer.echo(f"spends   {fitted['tokens']} visual tokens, {fitted['tokens'] / budget:.1%} of the budget")


def _size(image: str) -> tuple[int, int]:
    """A file's size from its header, upright; a size in words where no file has that name."""
    size = _SIZE.fullmatch(image.strip())
    if size and not Path(image).exists():
        return int(size[1]), int(size[2])
    from stakes.vision.image.decode import probe

    _, width, height = probe(image)
    return width, height


def _fitted(width: int, height: int, budget: int, family: str) -> dict[str, object]:
    from stakes.vision.image.resize import fitted_size

    size = fitted_size(width, height, budget, family)
    return {
        "width": size.width,
        "height": size.height,
        "tokens": size.tokens,
        "scale": [size.width / width, size.height / height],
    }
