"""Count the visual tokens of an image: one exact number per model family, without loading the model.

Visual tokens are what the language model reads for one image. The docstring of each formula says whether row breaks
and markers are among them. Local families are tested against their own Hugging Face processors.

    count_tokens("qwen2.5-vl", 1654, 2339)                              # 4956
    count_tokens("qwen2.5-vl", 1654, 2339, max_pixels=576 * 784)        # 560
    accepted_size("claude", 9921, 7016)                                 # (8000, 5658): no side above 8,000 pixels
    family("smolvlm").refusal                       # 'smolvlm: not controllable by resizing; use size.longest_edge …'
    replace(family("gemma4").formula, max_soft_tokens=560).tokens(1654, 2339)

``families`` holds the table of families, ``factor`` (Qwen-VL), ``tiles``, ``patches`` and ``views`` the formulas,
``ladder`` the token counts that AnyRes images can take.
"""

import operator
from dataclasses import replace

from stakes.errors import BadInput
from stakes.vision.geometry.factor import Factor, smart_resize
from stakes.vision.geometry.families import Family, Formula, families, family
from stakes.vision.geometry.families import family as named

__all__ = ["Family", "accepted_size", "count_tokens", "families", "family", "smart_resize", "tokens_as_sent"]

# Where an image is thinner than this, GPT-4o's shrinking of the long side to 2,048 leaves less than one pixel across.
MAX_RESIZABLE_ASPECT = 2048
# No image format has longer sides, and the arithmetic below would no longer be exact in floats.
_MAX_SIDE = 2**31 - 1


def count_tokens(
    family: str, width: int, height: int, *, min_pixels: int | None = None, max_pixels: int | None = None
) -> int:
    """Visual tokens of one image of this size, as the family's own processor counts them.

    ``min_pixels`` and ``max_pixels`` replace the checkpoint's bounds of a factor family (Qwen-VL); other families have
    none. Sizes on which the processor fails raise ``BadInput``.
    """
    return _formula(family, min_pixels, max_pixels).tokens(_side(width, "width"), _side(height, "height"))


def accepted_size(family: str, width: int, height: int) -> tuple[int, int]:
    """The image's own size, or the largest size in its shape where the service refuses such a long side (Claude)."""
    width, height, longest = _side(width, "width"), _side(height, "height"), named(family).longest_side
    if longest is None or max(width, height) <= longest:
        return width, height
    if max(width, height) > MAX_RESIZABLE_ASPECT * min(width, height):
        raise BadInput(
            f"an image of {width}x{height} has a side above {longest} pixels, which {family} rejects, "
            f"and one side is more than {MAX_RESIZABLE_ASPECT} times the other, too thin to be resized; crop it"
        )
    return with_long_side(width, height, longest)


def tokens_as_sent(family: str, width: int, height: int) -> int:
    """Tokens of an image with no budget, at the largest size that its service accepts."""
    return count_tokens(family, *accepted_size(family, width, height))


def with_long_side(width: int, height: int, side: int) -> tuple[int, int]:
    """The size in this shape with a long side of ``side``; the short side is rounded, to one pixel at least."""
    other = max(1, round(min(width, height) * side / max(width, height)))
    return (side, other) if width >= height else (other, side)


def whole_number(value: int, what: str, unit: str) -> int:
    """The value as an int of at least 1; ``BadInput`` names ``what`` otherwise. NumPy integers are accepted."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or number < 1:
        raise BadInput(f"{what} must be a whole number of {unit}, at least 1, not {value!r}")
    return number


def _side(value: int, what: str) -> int:
    side = whole_number(value, what, "pixels")
    if side > _MAX_SIDE:
        raise BadInput(f"{what} must be at most {_MAX_SIDE} pixels, not {side}")
    return side


def _formula(name: str, min_pixels: int | None, max_pixels: int | None) -> Formula:
    known = named(name)
    given = {"min_pixels": min_pixels, "max_pixels": max_pixels}
    bounds = {key: whole_number(value, key, "pixels") for key, value in given.items() if value is not None}
    if not bounds:
        return known.formula
    if not isinstance(known.formula, Factor):
        raise BadInput(f"{name} takes no {' or '.join(bounds)}; {known.engine_parameter or 'resizing'} sets its tokens")
    least, most = bounds.get("min_pixels"), bounds.get("max_pixels")
    rule = known.formula
    return replace(rule, min_pixels=least or rule.min_pixels, max_pixels=most or rule.max_pixels)
