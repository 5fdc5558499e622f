"""How many visual tokens does an image take? One exact answer per model family, without the model.

Visual tokens are what the language model reads for one image. Each formula's docstring says whether row breaks and
markers are among them; local families are tested against their own Hugging Face processors.

    count_tokens("qwen2.5-vl", 1654, 2339)                              # 4956
    count_tokens("qwen2.5-vl", 1654, 2339, max_pixels=576 * 784)        # 560
    accepted_size("claude", 9921, 7016)                                 # (8000, 5658): no side above 8,000 pixels
    family("smolvlm").refusal                       # 'smolvlm: not controllable by resizing; use size.longest_edge …'
    replace(family("gemma4").formula, max_soft_tokens=560).tokens(1654, 2339)
"""

import operator
from dataclasses import replace

from stakes.errors import BadInput
from stakes.vision.geometry.families import Factor, Family, Formula, families, family, smart_resize
from stakes.vision.geometry.families import family as named

__all__ = [
    "MOST_ASPECT",
    "Family",
    "accepted_size",
    "count_tokens",
    "families",
    "family",
    "grid",
    "smart_resize",
    "tokens_as_sent",
    "with_long_side",
]

# Thinner, less than one pixel is left across where GPT-4o shrinks the long side to 2,048: no resizing helps.
MOST_ASPECT = 2048
# No image format goes further, and the arithmetic below would leave exact floats behind.
_MOST_PIXELS_A_SIDE = 2**31 - 1


def count_tokens(
    family: str, width: int, height: int, *, min_pixels: int | None = None, max_pixels: int | None = None
) -> int:
    """Visual tokens of one image of this size, as the family's own processor counts them.

    ``min_pixels`` and ``max_pixels`` replace the checkpoint's bounds of a factor family (Qwen-VL); other families
    have none. Sizes that the processor fails on are ``BadInput``.
    """
    return _formula(family, min_pixels, max_pixels).tokens(_side(width, "width"), _side(height, "height"))


def accepted_size(family: str, width: int, height: int) -> tuple[int, int]:
    """The image's own size, or the largest in its shape where its service refuses a side so long (Claude)."""
    width, height, longest = _side(width, "width"), _side(height, "height"), named(family).longest_side
    if longest is None or max(width, height) <= longest:
        return width, height
    if max(width, height) > MOST_ASPECT * min(width, height):
        raise BadInput(
            f"an image of {width}x{height} has a side above {longest} pixels, which {family} rejects, "
            f"and one side is more than {MOST_ASPECT} times the other, too thin to be resized; crop it"
        )
    return with_long_side(width, height, longest)


def tokens_as_sent(family: str, width: int, height: int) -> int:
    """Tokens of an image with no budget, as large as its service takes it."""
    return count_tokens(family, *accepted_size(family, width, height))


def with_long_side(width: int, height: int, side: int) -> tuple[int, int]:
    """The size in this shape with a long side of ``side``; the short side is rounded, to one pixel at least."""
    other = max(1, round(min(width, height) * side / max(width, height)))
    return (side, other) if width >= height else (other, side)


def grid(
    family: str, width: int, height: int, *, min_pixels: int | None = None, max_pixels: int | None = None
) -> tuple[int, int]:
    """Columns and rows of tokens of one image, for the factor families (Qwen-VL)."""
    formula = _formula(family, min_pixels, max_pixels)
    if not isinstance(formula, Factor):
        raise BadInput(f"{family}: its tokens form no single grid; only factor families (Qwen-VL) have one")
    return formula.grid(_side(width, "width"), _side(height, "height"))


def _formula(name: str, min_pixels: int | None, max_pixels: int | None) -> Formula:
    known = named(name)
    bounds = {
        key: _whole(value, key, least=1)
        for key, value in (("min_pixels", min_pixels), ("max_pixels", max_pixels))
        if value is not None
    }
    if not bounds:
        return known.formula
    if not isinstance(known.formula, Factor):
        raise BadInput(f"{name} takes no {' or '.join(bounds)}; {known.engine_parameter or 'resizing'} sets its tokens")
    return replace(known.formula, **bounds)


def _side(value: int, what: str) -> int:
    side = _whole(value, what, least=1)
    if side > _MOST_PIXELS_A_SIDE:
        raise BadInput(f"{what} must be at most {_MOST_PIXELS_A_SIDE} pixels, not {side}")
    return side


def _whole(value: int, what: str, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise BadInput(f"{what} must be a whole number of pixels, at least {least}, not {value!r}")
    return number
