"""``stakes tokens``: how many visual tokens an image takes, and what a budget makes of it."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from stakes.commands.output import AsJson, print_json, print_next

_SIZE = re.compile(r"(\d{1,10})\s*[x×X]\s*(\d{1,10})")


def tokens(
    image: Annotated[str, typer.Argument(help="An image file, or a size such as 1654x2339.")],
    family: Annotated[str, typer.Option(help="The model family, such as pixtral, or its numbers.")] = "qwen2.5-vl",
    budget: Annotated[int | None, typer.Option(help="Visual tokens that the image may take.")] = None,
    as_json: AsJson = False,
) -> None:
    """Count the visual tokens of an image, and with a budget show the size that spends it best.

    Example: stakes tokens page.png --family qwen2.5-vl --budget 576
    """
    from stakes.vision.geometry import accepted_size, tokens_as_sent
    from stakes.vision.geometry import family as named_family
    from stakes.vision.image.decode import probe
    from stakes.vision.image.resize import fitted_size

    known = named_family(family)
    size_typed = _SIZE.fullmatch(image.strip())
    if size_typed and not Path(image).exists():
        width, height = int(size_typed[1]), int(size_typed[2])
    else:
        _, width, height = probe(image)
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
        "fitted": None,
    }
    if budget is not None:
        size = fitted_size(width, height, budget, family)
        scale = [size.width / width, size.height / height]
        record["fitted"] = {"width": size.width, "height": size.height, "tokens": size.tokens, "scale": scale}
    if as_json:
        print_json(record)
        return
    typer.echo(f"image    {width}x{height}")
    largest = accepted_size(family, width, height)
    shrunk = "" if largest == (width, height) else f" at {largest[0]}x{largest[1]}, the largest that it takes,"
    typer.echo(f"native   {record['native']} visual tokens{shrunk} in {family} ({known.source}, read {known.version})")
    if budget is None:
        typer.echo(f"budget   none: {known.refusal or 'give one with --budget to see the size that spends it'}")
        if not known.refusal:
            print_next("tokens", image, "--family", family, "--budget", 304)
        return
    typer.echo(f"budget   {budget} visual tokens")
    typer.echo(f"fitted   {size.width}x{size.height}, scaled by {scale[0]:.3f} across and {scale[1]:.3f} down")
    typer.echo(f"spends   {size.tokens} visual tokens, {size.tokens / budget:.1%} of the budget")
