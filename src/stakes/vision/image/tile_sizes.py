"""Find the size of an image, in its own shape, that spends a budget best, for families that count tiles or patches.

Tokens need not grow with size (Gemini's tiles do not), so every whole number of pixels of the long side is tried, up to
16,384 (A0 at 300 dpi has 14,043). Above that each candidate is a 2,048th shorter than the one before, so that no image
takes much longer than a tenth of a second; the size of a longer image may be a 2,048th smaller than the best.

    nearest_size(1654, 2339, 96, family("pixtral"))      # (113, 160, 90)
"""

from collections.abc import Iterator
from functools import lru_cache

from stakes.errors import BadInput, InfeasibleBudget
from stakes.vision.geometry import MAX_RESIZABLE_ASPECT, Family, accepted_size, with_long_side

_EVERY_SIDE = 16384
_STEPS = 2048
_MAX_ENLARGED_SIDE = 4096  # no family that is searched by scale counts more tokens for a longer side
_ROUNDING = 1e-9


def nearest_size(
    width: int, height: int, budget: int, known: Family, stretch: float = 0.15, upscale: bool = False
) -> tuple[int, int, int]:
    """(width, height, tokens) of the largest size, in the image's own shape, with the most tokens <= budget.

    Sizes whose rounded short side stretches a thin image beyond the limit are left out.
    """
    largest = accepted_size(known.name, width, height)
    native = known.formula.tokens(*largest)
    too_thin = max(width, height) > MAX_RESIZABLE_ASPECT * min(width, height)
    if native <= budget and (too_thin or not upscale):
        return *largest, native
    if too_thin:
        raise InfeasibleBudget(
            f"an image of {width}x{height} is too thin to be resized: one side is more than {MAX_RESIZABLE_ASPECT} "
            f"times the other; crop it (the smallest feasible budget is {native})"
        )
    best = _search(width, height, budget, known, stretch, native)
    if isinstance(best, int):
        raise InfeasibleBudget(
            f"no size of a {width}x{height} image takes {budget} tokens or fewer with {known.name}; "
            f"the smallest feasible budget is {best}"
        )
    return best


@lru_cache(maxsize=4096)  # tens of milliseconds for a large page, and pages come in few sizes
def _search(
    width: int, height: int, budget: int, known: Family, stretch: float, native: int
) -> tuple[int, int, int] | int:
    """The best size and its tokens; where none fits, the fewest tokens of any size (errors would not be cached)."""
    best, smallest = None, native
    long = max(accepted_size(known.name, width, height))
    limit = 1 + stretch + _ROUNDING
    enlarged = range(long, max(long, _MAX_ENLARGED_SIDE) + 1)
    for side in enlarged if native <= budget else _shrinking(long):
        w, h = with_long_side(width, height, side)
        across, down = w * height, h * width
        if max(across, down) / min(across, down) > limit:
            continue
        try:
            tokens = known.formula.tokens(w, h)
        except BadInput:  # rounded to a shape on which the processor fails
            continue
        smallest = min(smallest, tokens)
        if tokens <= budget and (best is None or tokens > best[2]):
            best = w, h, tokens
            if tokens == budget:
                break
    return best or smallest


def _shrinking(long: int) -> Iterator[int]:
    side = long
    while side > _EVERY_SIDE:
        yield side
        side -= side // _STEPS
    yield from range(min(long, _EVERY_SIDE), 0, -1)
