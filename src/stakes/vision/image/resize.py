"""Resize an image to a token budget: ``fitted_size`` chooses the size, ``fit`` resamples the pixels once.

A factor family (Qwen-VL) takes a grid of squares (``grid_sizes``), LLaVA-OneVision a rung of its ladder. Other families
that resizing controls are shrunk in their own shape (``tile_sizes``).

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
from functools import cached_property

from PIL import Image

from stakes.errors import BadInput, InfeasibleBudget
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry import tokens_as_sent, whole_number
from stakes.vision.geometry.factor import Factor
from stakes.vision.geometry.ladder import ladder
from stakes.vision.geometry.tiles import AnyRes
from stakes.vision.image import MAX_PIXELS
from stakes.vision.image.decode import Box, Picture, Source, read_source
from stakes.vision.image.grid_sizes import best_grid
from stakes.vision.image.modes import Pixels
from stakes.vision.image.resample import as_packed, resampled, streamed, unpacked
from stakes.vision.image.tile_sizes import nearest_size
from stakes.vision.image.trim import Bounds, margins

GAP, PHOTOGRAPH_GAP = 3.0, 1.75  # times the target that a reduced JPEG must leave
AGAIN = 5 / 6  # of that is enough once a JPEG is decoded: 40.4 dB at worst for print, 40.7 for drawn photographs


@dataclass(frozen=True)
class Fitted:
    """An image at its budget: RGB pixels, the tokens they take, the tokens the image would take with no budget.

    ``box`` is the part of the upright original that is shown: all of it, or what ``trim`` left. A point goes back by

        x = box[0] + fitted x / scale[0],    y = box[1] + fitted y / scale[1]
    """

    pixels: Image.Image | Pixels  # as they were made
    tokens: int
    native: int  # of the whole image, trimmed or not
    scale: tuple[float, float]  # fitted pixels per native pixel, along x and along y
    box: Bounds  # x0, y0, x1, y1 in pixels of the upright original

    @cached_property
    def image(self) -> Image.Image:
        """The pixels as an image."""
        return self.pixels.image() if isinstance(self.pixels, Pixels) else self.pixels

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
    trim: int = False,
) -> Fitted:
    """Resize an image (PIL, bytes or path) to the most tokens <= budget whose last 2 % do not buy stretch.

    Nothing is enlarged beyond its native grid unless ``upscale``. ``decode_limit`` is the most pixels that are decoded.
    ``trim`` spends the budget on the page without its margins; a number: where so many native tokens are left. Raises
    ``UnreadableImage``, ``UnknownFamily``, ``InfeasibleBudget`` with the smallest feasible budget, ``BadInput`` for a
    family that resizing cannot control.
    """
    source = image if isinstance(image, Image.Image) else read_source(image)
    picture = Picture(source, max_pixels=decode_limit)
    whole = size = fitted_size(*picture.size, budget, family, stretch=stretch, upscale=upscale)
    box = (0, 0, *picture.size)
    if trim:
        pixels, inner = _decoded(picture, _enough(picture, size.width, size.height))
        stored = _outward(margins(pixels), inner, picture.size[::-1] if picture.sideways else picture.size)
        box = picture.upright_box(stored)
        shown = box[2] - box[0], box[3] - box[1]
        try:
            size = fitted_size(*shown, budget, family, stretch=stretch, upscale=upscale)
        except InfeasibleBudget:  # what is left is too thin for so few tokens
            size = FittedSize(0, 0, 0, 0)
        if size.native < trim:
            del picture, pixels  # it is decoded again as if nothing had been tried; both would not fit ``decode_bytes``
            return fit(image, budget, family, stretch=stretch, upscale=upscale, decode_limit=decode_limit)
        # What is left is enlarged, so a JPEG that was decoded at a reduced size may have to be decoded again.
        enough = _enough(picture, size.width * AGAIN, size.height * AGAIN)
        needed = tuple(math.ceil(n * side / part) for n, side, part in zip(enough, picture.size, shown, strict=True))
        decoded = (inner[3], inner[2]) if picture.sideways else (inner[2], inner[3])
        if decoded != picture.size and (decoded[0] < needed[0] or decoded[1] < needed[1]):
            del pixels  # one decoding at a time
            picture = Picture(source, max_pixels=decode_limit)
            pixels, inner = picture.pixels(at_least=(needed[0], needed[1]))
        made = _resized(picture, pixels, _within(stored, inner, picture), size.width, size.height)
    else:
        made = _resample(picture, size.width, size.height)
    scale = made.size[0] / (box[2] - box[0]), made.size[1] / (box[3] - box[1])
    return Fitted(made, size.tokens, whole.native, scale, box)


def resample(picture: Picture, width: int, height: int) -> Image.Image:
    """The picture at this size, upright, RGB; its own pixels, untouched, where it has that size already."""
    made = _resample(picture, width, height)
    return made.image() if isinstance(made, Pixels) else made


def _resample(picture: Picture, width: int, height: int) -> Image.Image | Pixels:
    enough = _enough(picture, width, height)
    plain, target = picture.plain_file(enough), (height, width) if picture.sideways else (width, height)
    if plain is not None and (made := streamed(plain, target)) is not None:
        return _upright(picture, made)
    pixels, box = picture.pixels(at_least=enough)
    return _resized(picture, pixels, box, width, height)


def _enough(picture: Picture, width: float, height: float) -> tuple[int, int]:
    gap = PHOTOGRAPH_GAP if picture.photographed else GAP
    return math.ceil(gap * width), math.ceil(gap * height)


def _decoded(picture: Picture, at_least: tuple[int, int]) -> tuple[Image.Image | Pixels, Box]:
    """The pixels as stored, as ``margins`` and libvips both read them, and the box of them that is the image."""
    plain = picture.plain_file(at_least)
    if plain is not None and (made := unpacked(plain)) is not None:
        return made, (0, 0, *made.size)
    pixels, box = picture.pixels(at_least=at_least)
    return as_packed(pixels), box


def _resized(picture: Picture, pixels: Image.Image | Pixels, box: Box, width: int, height: int) -> Image.Image | Pixels:
    target = (height, width) if picture.sideways else (width, height)
    if (box[2] - box[0], box[3] - box[1]) == target:
        image = pixels.image() if isinstance(pixels, Pixels) else pixels
        return picture.upright(image if box == (0, 0, *image.size) else image.crop(box))
    return _upright(picture, resampled(pixels, target, box))


def _upright(picture: Picture, made: Image.Image | Pixels) -> Image.Image | Pixels:
    if isinstance(made, Image.Image):
        return picture.upright(made)
    return made if picture.transpose is None else picture.upright(made.image())


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
