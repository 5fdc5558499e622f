"""Resize an image to a token budget: ``fitted_size`` chooses the size, ``fit`` resamples the pixels once.

A factor family (Qwen-VL) turns every f x f square of pixels into one token, so a size is a grid of rows x columns:

    stretch(rows, columns) = max(r, 1 / r) - 1      where r = (columns / W) / (rows / H), 0 for the image's own shape
    worth its tokens: no grid with up to 2 % fewer of them is stretched less
    best = the most rows · columns <= budget with stretch <= the limit and worth its tokens; then most rows

A last token or two is not worth a tenth of the shape: of 576 tokens, a page of 756 x 1008 pixels takes 27 x 21 squares
(567 tokens, stretch 4 %) and not 26 x 22 (572 tokens, 13 %). A larger budget never takes fewer tokens, and the tokens
taken are a budget that takes the same size. Only grids count on which the server's own ``smart_resize`` is the
identity and none of whose sides exceeds that of the native grid unless ``upscale``. An image within its budget takes
its native grid, whatever its stretch, as the server would make it (1 x 150 pixels become 28 x 700). LLaVA-OneVision
takes a rung of its ladder. Other families that resizing controls are shrunk in their own shape (``tile_sizes``).

Pixels are resampled bicubically with antialiasing, as the processors of the local families do; on the sizes of a factor
family that processor is then the identity. Two shortcuts are measured in PSNR against decoding everything and
resampling in one step:

* A JPEG is decoded at a half or a quarter of its sides (DCT scaling) where that leaves at least 3 times the target.
  On 150 real pages, charts and receipts: 42.6 dB at worst at 3 times, 40.4 at 2.5, 36.7 at 2. A one-bit halftone saved
  as JPEG is an exception: 37.8 dB at 3 times. A photograph (its EXIF states an exposure) is softer than a scan: 1.75
  times is enough, 40.3 dB at worst on drawn ones of 12 megapixels, through the sharpest lens tried.
* Where libvips is faster than Pillow, it decodes and resamples (``resample``); otherwise what is more than 6 times the
  target is first averaged over whole pixels (``reducing_gap``): 48 dB at worst on synthetic pages.

    fit("page.jpg", 576).image.size          # (588, 756), 567 tokens, for a page of 756 x 1008 pixels
"""

import math
from dataclasses import dataclass

from PIL import Image

from stakes.errors import BadInput, InfeasibleBudget
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry import smart_resize, tokens_as_sent, whole_number
from stakes.vision.geometry.factor import MAX_ASPECT, Factor
from stakes.vision.geometry.ladder import ladder
from stakes.vision.geometry.tiles import AnyRes
from stakes.vision.image import MAX_PIXELS
from stakes.vision.image.decode import Box, Picture, Source, read_source
from stakes.vision.image.resample import resampled, streamed
from stakes.vision.image.tile_sizes import nearest_size
from stakes.vision.image.trim import Bounds, margins

GAP, PHOTOGRAPH_GAP = 3.0, 1.75  # times the target that a reduced JPEG must leave
SLACK = 0.02  # share of a grid's tokens that may not be bought with more stretch
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Fitted:
    """An image at its budget: RGB pixels, the tokens they take, the tokens the image would take with no budget.

    ``box`` is the part of the upright original that is shown: all of it, or what ``trim`` left. A point goes back by

        x = box[0] + fitted x / scale[0],    y = box[1] + fitted y / scale[1]
    """

    image: Image.Image
    tokens: int
    native: int  # of the whole image, trimmed or not
    scale: tuple[float, float]  # fitted pixels per native pixel, along x and along y
    box: Bounds  # x0, y0, x1, y1 in pixels of the upright original

    @property
    def stretch(self) -> float:
        """How far the shape changed: 0 for not at all, 0.15 for one side 15 % too long relative to the other."""
        return max(self.scale) / min(self.scale) - 1


def fit(
    image: Source,
    budget: int,
    family: str = "qwen2.5-vl",
    *,
    stretch: float = 0.15,
    upscale: bool = False,
    decode_limit: int = MAX_PIXELS,
    trim: bool = False,
) -> Fitted:
    """Resize an image (PIL, bytes or path) to the most tokens <= budget whose last 2 % do not buy stretch.

    Nothing is enlarged beyond its native grid unless ``upscale``. ``decode_limit`` is the most pixels that are decoded.
    ``trim`` spends the budget on the page without its margins. Raises ``UnreadableImage``, ``UnknownFamily``,
    ``InfeasibleBudget`` with the smallest feasible budget, ``BadInput`` for a family that resizing cannot control.
    """
    source = image if isinstance(image, Image.Image) else read_source(image)
    picture = Picture(source, max_pixels=decode_limit)
    whole = size = fitted_size(*picture.size, budget, family, stretch=stretch, upscale=upscale)
    box = (0, 0, *picture.size)
    if trim:
        pixels, inner = picture.pixels(at_least=_enough(picture, size.width, size.height))
        stored = _outward(margins(pixels), inner, picture.size[::-1] if picture.sideways else picture.size)
        box = picture.upright_box(stored)
        shown = box[2] - box[0], box[3] - box[1]
        try:
            size = fitted_size(*shown, budget, family, stretch=stretch, upscale=upscale)
        except InfeasibleBudget:  # what is left is too thin for so few tokens
            return fit(image, budget, family, stretch=stretch, upscale=upscale, decode_limit=decode_limit)
        # What is left is enlarged, so a JPEG that was decoded at a reduced size may have to be decoded again.
        enough = _enough(picture, size.width, size.height)
        needed = tuple(math.ceil(n * side / part) for n, side, part in zip(enough, picture.size, shown, strict=True))
        decoded = (inner[3], inner[2]) if picture.sideways else (inner[2], inner[3])
        if decoded != picture.size and (decoded[0] < needed[0] or decoded[1] < needed[1]):
            picture = Picture(source, max_pixels=decode_limit)
            pixels, inner = picture.pixels(at_least=(needed[0], needed[1]))
        made = _resized(picture, pixels, _within(stored, inner, picture), size.width, size.height)
    else:
        made = resample(picture, size.width, size.height)
    scale = made.width / (box[2] - box[0]), made.height / (box[3] - box[1])
    return Fitted(made, size.tokens, whole.native, scale, box)


def resample(picture: Picture, width: int, height: int) -> Image.Image:
    """The picture at this size, upright, RGB; its own pixels, untouched, where it has that size already."""
    enough = _enough(picture, width, height)
    plain, target = picture.plain_file(enough), (height, width) if picture.sideways else (width, height)
    if plain is not None and (made := streamed(plain, target)) is not None:
        return picture.upright(made)
    pixels, box = picture.pixels(at_least=enough)
    return _resized(picture, pixels, box, width, height)


def _enough(picture: Picture, width: int, height: int) -> tuple[int, int]:
    gap = PHOTOGRAPH_GAP if picture.photographed else GAP
    return math.ceil(gap * width), math.ceil(gap * height)


def _resized(picture: Picture, pixels: Image.Image, box: Box, width: int, height: int) -> Image.Image:
    target = (height, width) if picture.sideways else (width, height)
    if (box[2] - box[0], box[3] - box[1]) == target:
        return picture.upright(pixels if box == (0, 0, *pixels.size) else pixels.crop(box))
    return picture.upright(resampled(pixels, target, box))


def _outward(box: Bounds, inner: Box, stored: tuple[int, int]) -> Bounds:
    """A box of decoded pixels at native size, rounded outward."""
    across, down = stored[0] / inner[2], stored[1] / inner[3]
    x0, y0 = math.floor(box[0] * across), math.floor(box[1] * down)
    return x0, y0, min(stored[0], math.ceil(box[2] * across)), min(stored[1], math.ceil(box[3] * down))


def _within(stored: Bounds, inner: Box, picture: Picture) -> Box:
    """A box of the stored pixels at native size, in decoded pixels."""
    width, height = picture.size[::-1] if picture.sideways else picture.size
    across, down = inner[2] / width, inner[3] / height
    return stored[0] * across, stored[1] * down, stored[2] * across, stored[3] * down


@dataclass(frozen=True)
class FittedSize:
    """A size in pixels, the tokens that it takes, and the tokens that the image takes with no budget.

    Where the service refuses such a long image, ``native`` counts the longest accepted size in its shape.
    """

    width: int
    height: int
    tokens: int
    native: int


def fitted_size(
    width: int,
    height: int,
    budget: int,
    family: str = "qwen2.5-vl",
    *,
    stretch: float = 0.15,
    upscale: bool = False,
) -> FittedSize:
    """The size that ``fit`` gives an image of this size; ``tokens`` is what the family's own processor will count."""
    budget = whole_number(budget, "a budget", "tokens")
    if not (math.isfinite(stretch) and stretch >= 0):
        raise BadInput(f"stretch must be a number of at least 0 (0.15 allows 15 %), not {stretch!r}")
    known = named_family(family)
    if known.refusal is not None:
        raise BadInput(known.refusal)
    native = tokens_as_sent(family, width, height)
    if isinstance(known.formula, Factor):
        rule = known.formula
        factor, bounds = rule.factor, {"min_pixels": rule.min_pixels, "max_pixels": rule.max_pixels}
        size = rule.enlarged(width, height)
        rows, columns = best_grid(*size, budget, factor, stretch, **bounds, upscale=upscale)
        return FittedSize(columns * factor, rows * factor, rows * columns, native)
    if isinstance(known.formula, AnyRes) and native > budget:
        return _largest_rung(width, height, budget, family, native)
    return FittedSize(*nearest_size(width, height, budget, known, stretch, upscale), native)


def _largest_rung(width: int, height: int, budget: int, family: str, native: int) -> FittedSize:
    rungs = ladder(width, height, family)
    within = [rung for rung in rungs if rung.tokens <= budget]
    if not within:
        shown = ", ".join(str(rung.tokens) for rung in rungs[:6]) + (", …" if len(rungs) > 6 else "")
        what = f"no size of a {width}x{height} image takes {budget} tokens or fewer with {family}"
        raise InfeasibleBudget(f"{what}, only {shown}; the smallest feasible budget is {rungs[0].tokens}")
    return FittedSize(within[-1].width, within[-1].height, within[-1].tokens, native)


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
