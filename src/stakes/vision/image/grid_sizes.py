"""Find the grid of squares that spends a budget best, for families that turn a square of pixels into one token.

With f x f pixels to a token (28 in Qwen2.5-VL) a size is a grid of rows x columns:

    stretch(rows, columns) = max(r, 1 / r) - 1      where r = (columns / W) / (rows / H), 0 for the image's own shape
    worth its tokens: no grid with up to 2 % fewer of them is stretched less
    best = the most rows · columns <= budget with stretch <= the limit and worth its tokens; then most rows

A last token or two is not worth a tenth of the shape: of 576 tokens, a page of 756 x 1008 pixels takes 27 x 21 squares
(567 tokens, stretch 4 %) and not 26 x 22 (572 tokens, 13 %). A larger budget never takes fewer tokens, and the tokens
taken are a budget that takes the same size. Only grids count on which the server's own ``smart_resize`` is the
identity and none of whose sides exceeds that of the native grid unless ``upscale``. An image within its budget takes
its native grid, whatever its stretch, as the server would make it (1 x 150 pixels become 28 x 700).

    best_grid(756, 1008, 576)      # (27, 21)
"""

import math

from stakes.errors import InfeasibleBudget
from stakes.vision.geometry import smart_resize
from stakes.vision.geometry.factor import MAX_ASPECT

SLACK = 0.02  # share of a grid's tokens that may not be bought with more stretch
_ROUNDING = 1e-9


def best_grid(
    width: int,
    height: int,
    budget: int,
    factor: int = 28,
    stretch: float = 0.15,
    *,
    min_pixels: int = 56 * 56,
    max_pixels: int = 28 * 28 * 16384,
    upscale: bool = False,
) -> tuple[int, int]:
    """(rows, columns) of the squares that spend the budget best; ``InfeasibleBudget`` names the smallest budget.

    For a given number of rows the most columns reach the most tokens, so the search walks rows down from
    sqrt(budget (1 + stretch) H / W) and stops after about a seventh of the way. From the grid with the most tokens it
    goes to the least stretched grid within 2 % below, and repeats until that grid stays.
    """
    native_width, native_height = smart_resize(width, height, factor, min_pixels, max_pixels)
    native = native_height // factor, native_width // factor
    least, most = -(-min_pixels // factor**2), max_pixels // factor**2
    # Rounding may push a thin image's native grid past the aspect ratio that the processor accepts (40 x 7990 pixels
    # become 1 x 285 squares), or a thin one's past max_pixels: sent at that size it would be refused or resized again.
    native_tokens = native[0] * native[1]
    stable = least <= native_tokens <= most and max(native) <= MAX_ASPECT * min(native)
    if stable and not upscale and budget >= native_tokens:
        return native
    rows_cap, columns_cap = (most, most) if upscale else native
    spendable = min(budget, most)
    shape, limit = width / height, 1 + stretch + _ROUNDING
    highest = min(rows_cap, math.isqrt(int(spendable * limit / shape) + 1) + 1)

    def widest(rows: int, cap: int) -> int:
        return min(int(rows * shape * limit), cap // rows, columns_cap, MAX_ASPECT * rows)

    most_tokens, enough = 0, least
    for rows in range(highest, 0, -1):
        if rows * int(rows * shape * limit) < enough:
            break
        columns = widest(rows, spendable)
        fits = rows <= MAX_ASPECT * columns and _stretched(width, height, rows, columns) < limit
        if fits and rows * columns >= enough:
            most_tokens = enough = rows * columns
    holds_native = stable and budget >= native_tokens
    if holds_native and most_tokens < native_tokens:
        return native

    def least_stretched(cap: int) -> tuple[int, int] | None:
        enough = max(least, math.ceil(cap * (1 - SLACK)), native_tokens if holds_native else 0)
        best, best_rank = None, (limit, 0)
        for rows in range(highest, 0, -1):
            if rows * int(rows * shape * limit) < enough:
                break
            fewest, most_columns = max(-(-enough // rows), -(-rows // MAX_ASPECT)), widest(rows, cap)
            if fewest > most_columns:
                continue
            for nearest in (int(rows * shape), int(rows * shape) + 1):
                columns = min(max(nearest, fewest), most_columns)
                rank = _stretched(width, height, rows, columns), -rows * columns
                if rank < best_rank:
                    best, best_rank = (rows, columns), rank
        return best

    best, reached = None, 0
    while most_tokens != reached:
        best, reached = least_stretched(most_tokens), most_tokens
        assert best is not None  # one grid of so many tokens is known
        most_tokens = best[0] * best[1]
    if best is None:
        smallest = _smallest(width, height, limit, (least, most), (rows_cap, columns_cap))
        if stable and (smallest is None or native_tokens < smallest):
            smallest = native_tokens
        raise InfeasibleBudget(
            f"no size of a {width}x{height} image takes {budget} tokens or fewer within a stretch of {stretch:g}; "
            + (f"the smallest feasible budget is {smallest}" if smallest else "allow more stretch")
        )
    return best


def _stretched(width: int, height: int, rows: int, columns: int) -> float:
    """1 + stretch. Whole numbers are divided once, so that a grid and its mirror image compare equal."""
    across, down = columns * height, rows * width
    return max(across, down) / min(across, down)


def _smallest(width: int, height: int, limit: float, bounds: tuple[int, int], caps: tuple[int, int]) -> int | None:
    """Fewest tokens, within the bounds, of any grid within the stretch."""
    least, most = bounds
    smallest = None
    for rows in range(1, caps[0] + 1):
        fewest = max(math.ceil(rows * width / height / limit), 1)
        if smallest is not None and rows * fewest >= smallest:
            break
        columns = max(fewest, -(-least // rows), -(-rows // MAX_ASPECT))
        most_columns = min(caps[1], MAX_ASPECT * rows, most // rows)
        within = columns <= most_columns and _stretched(width, height, rows, columns) < limit
        if within and (smallest is None or rows * columns < smallest):
            smallest = rows * columns
    return smallest
