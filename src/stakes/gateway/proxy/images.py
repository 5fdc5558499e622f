"""Turns the data URL of an image into one that takes fewer tokens: check, measure by its header, fit, encode.

All of it is slow and runs in ``Workers``. Measuring reads the header; pixels are decoded before the budget is known
only where a predictor looks at them.
An upright image within its budget is decoded to detect damage, then sent in its own bytes unless it is too long.

    image = measure("data:image/png;base64,…", "qwen2.5-vl", limits)
    fit_image(image, 256, "qwen2.5-vl", "png").url
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from PIL import Image

from stakes.budgets.options.tier_plan import TierOption
from stakes.errors import BadInput, InfeasibleBudget, UnreadableImage
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.settings import Encoding, Limits
from stakes.vision.geometry import accepted_size, count_tokens, tokens_as_sent
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.patches import BudgetPatches
from stakes.vision.geometry.tiles import DetailTiles
from stakes.vision.image.decode import Picture, open_image
from stakes.vision.image.modes import Pixels
from stakes.vision.image.png import write_png
from stakes.vision.image.resize import fit, fitted_size
from stakes.vision.image.statistics import page_statistics
from stakes.vision.image.trim import Bounds as Box
from stakes.vision.image.trim import margins

try:  # writes a megabyte in 0.04 ms and reads it in 0.1; the standard library takes 1.7 and 4
    from pybase64 import b64decode, b64encode
except ImportError:
    from base64 import b64decode, b64encode

if TYPE_CHECKING:
    from stakes.gateway.pdf.renderer import PdfPage

Bounds = Mapping[str, int]
NO_BOUNDS: Bounds = {}
JPEG_QUALITY = 95  # a convention, at 4:4:4 so that colored text stays sharp; PNG, the default, is lossless
_HEAD = re.compile(r"data:([a-z0-9.+/-]{0,64})((?:;[a-z0-9.=+_-]{1,64}){0,4}),", re.IGNORECASE)


@dataclass(frozen=True)
class MeasuredImage:
    """An image whose header was read: its bytes, its upright size and its native tokens.

    ``native``: where the service refuses its length, of the longest accepted size in its shape. ``low_detail``: the
    client asked for detail "low", and the family defines what that takes, whatever the size. ``bounds``: of the
    upstream's processor, where not the family's. ``most``: by the largest entry of an engine's menu, None where that is
    not above ``native``. ``page``: of a PDF, drawn in the size that fits. ``decode_bytes``: memory to decode it.
    ``trim``: its margins are cut off where so many tokens are left; 0: they stay.
    """

    data: bytes
    format: str
    width: int
    height: int
    native: int
    low_detail: bool = False
    bounds: Bounds = field(default_factory=dict)
    decode_bytes: int = 0
    most: int | None = None
    page: "PdfPage | None" = None
    trim: int = 0

    @property
    def limit(self) -> int:
        """The tokens that it can take at most: its native ones, unless an engine's parameter can give it more."""
        return self.native if self.most is None else self.most

    @property
    def identity(self) -> bytes:
        """What it is known by when it comes again."""
        return self.data if self.page is None else f"{self.page.key}.{self.page.index}".encode()


@dataclass(frozen=True)
class FittedImage:
    """What is sent to the upstream; ``url`` is None where the image is sent unchanged."""

    url: str | None
    tokens: int
    scale: tuple[float, float] = (1.0, 1.0)
    box: Box | None = None  # the part that is shown, where not all of it is


def is_data_url(url: str) -> bool:
    """Whether an address contains the image itself."""
    return url[:5].lower() == "data:"


def data_url(data: bytes, kind: str) -> str:
    """An image as a data URL."""
    return f"data:image/{kind};base64,{b64encode(data).decode()}"


def measure(url: str, family: str, limits: Limits, detail: object = None, bounds: Bounds = NO_BOUNDS) -> MeasuredImage:
    """Decode the base64 of a data URL strictly, and measure the image; ``detail`` is OpenAI's."""
    head = _HEAD.match(url[:512])
    if head is None or ";base64" not in head[2].lower():
        raise Refused(422, "bad_data_url", "an image's data URL is not of the form data:image/png;base64,…")
    if head[1] and not head[1].lower().startswith("image/"):
        raise Refused(422, "bad_data_url", f"the data URL of an image declares {head[1]}, which is not an image type")
    if (len(url) - head.end()) * 3 // 4 > limits.image_bytes + 2:
        raise _too_large(limits)
    data = read_base64(url[head.end() :], "an image")
    image, formula = measure_bytes(data, family, limits, bounds), named_family(family).formula
    if detail == "low" and isinstance(formula, DetailTiles | BudgetPatches) and formula.low_tokens:
        return replace(image, native=formula.low_tokens, low_detail=True)
    return image


def read_base64(text: str, what: str) -> bytes:
    """The bytes of base64, read strictly."""
    try:
        return bytes(b64decode(text, validate=True))
    except ValueError:  # any other character, or wrong padding
        raise Refused(422, "bad_base64", f"the base64 of {what} is damaged") from None


def measure_bytes(data: bytes, family: str, limits: Limits, bounds: Bounds = NO_BOUNDS) -> MeasuredImage:
    """Read the header; the pixel limit is checked on it, before anything is decoded."""
    if len(data) > limits.image_bytes:
        raise _too_large(limits)
    try:
        picture = Picture(data, max_pixels=limits.pixels, header_only=True)
    except UnreadableImage as error:
        raise _refusal(error, limits) from None
    image = measure_size(*picture.size, family, limits, bounds, data, picture.format.lower())
    return replace(image, decode_bytes=picture.decode_bytes)


def measure_size(
    width: int,
    height: int,
    family: str,
    limits: Limits,
    bounds: Bounds = NO_BOUNDS,
    data: bytes = b"",
    kind: str = "",
) -> MeasuredImage:
    """An image of this size; its own bytes are needed to fit it, not to predict its tokens."""
    if min(width, height) < limits.side:
        raise Refused(422, "image_too_small", f"an image has a side of fewer than {limits.side} pixels")
    try:
        native = count_tokens(family, *accepted_size(family, width, height), **bounds)
    except BadInput as error:  # so thin that the family's own processor refuses it
        raise Refused(422, "image_too_thin", str(error)) from None
    return MeasuredImage(data, kind, width, height, native, bounds=bounds)


def measure_page(page: "PdfPage", family: str, limits: Limits, bounds: Bounds = NO_BOUNDS) -> MeasuredImage:
    """A page of a PDF, in its size at 200 dpi."""
    return replace(measure_size(page.width, page.height, family, limits, bounds), page=page)


def page_url(image: MeasuredImage, page: "PdfPage", encoding: Encoding) -> str:
    """A page of a PDF in its own size, for an engine that is told how many tokens it takes."""
    return _encode(page.draw(image.width, image.height), encoding)


def fit_image(image: MeasuredImage, budget: int, family: str, encoding: Encoding) -> FittedImage:
    """The image resized to its budget; ``InfeasibleBudget`` where no size of its shape is within it."""
    size = (image.width, image.height)
    if image.page is not None:
        return _draw_page(image, image.page, budget, family, encoding)
    if image.low_detail and image.native > budget:
        raise InfeasibleBudget(f"an image of detail low takes {image.native} tokens in {family}, above {budget}")
    try:
        target = count_tokens(family, image.width, image.height) if image.low_detail else budget
        limit = image.width * image.height
        fitted = fit(image.data, target, family, decode_limit=limit, trim=image.trim) if image.trim else None
        whole = fitted is None or fitted.box == (0, 0, *size)
        if whole and image.native <= budget and accepted_size(family, *size) == size:
            picture = Picture(image.data, max_pixels=limit)
            if not picture.sideways:  # rotated by EXIF, which some servers ignore: then it is written upright
                picture.pixels()  # detects damage
                return FittedImage(None, image.native)
        fitted = fitted or fit(image.data, target, family, decode_limit=limit)
    except UnreadableImage:
        raise unreadable() from None
    tokens = image.native if image.low_detail else _as_counted(image, *fitted.pixels.size, budget, family)
    return FittedImage(_encode(fitted.pixels, encoding), tokens, fitted.scale, None if whole else fitted.box)


def _encode(image: Image.Image | Pixels, encoding: Encoding) -> str:
    """The data URL of a fitted image."""
    if encoding == "png":
        return data_url(write_png(image), "png")
    out, whole = io.BytesIO(), image.image() if isinstance(image, Pixels) else image
    whole.save(out, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    return data_url(out.getvalue(), "jpeg")


def _draw_page(image: MeasuredImage, page: "PdfPage", budget: int, family: str, encoding: Encoding) -> FittedImage:
    """A page of a PDF, drawn in the size that its budget allows; its scale and box are of its size at 200 dpi."""
    box = _shown(image, family, page.margins)
    try:
        size = fitted_size(box[2] - box[0], box[3] - box[1], budget, family)
    except InfeasibleBudget:  # as in ``fit``: what is left may be too thin for so few tokens
        box = 0, 0, image.width, image.height
        size = fitted_size(image.width, image.height, budget, family)
    tokens = _as_counted(image, size.width, size.height, budget, family)
    scale = size.width / (box[2] - box[0]), size.height / (box[3] - box[1])
    return FittedImage(_encode(page.draw(size.width, size.height, box), encoding), tokens, scale, box)


def _shown(image: MeasuredImage, family: str, find_margins: Callable[[], Box]) -> Box:
    """The part of an image that is shown: all of it, or what lies within its margins where that is enough."""
    if image.trim:
        x0, y0, x1, y1 = box = find_margins()
        if tokens_as_sent(family, x1 - x0, y1 - y0) >= image.trim:
            return box
    return 0, 0, image.width, image.height


def predict_fit(image: MeasuredImage, budget: int, family: str) -> FittedImage:
    """The tokens that ``fit_image`` would take, without decoding a pixel; the image is sent unchanged."""
    if image.native <= budget:
        return FittedImage(None, image.native)
    size = fitted_size(image.width, image.height, budget, family)
    return FittedImage(None, _as_counted(image, size.width, size.height, budget, family))


def predict_budgets(
    option: TierOption, family: str, images: Sequence[MeasuredImage], abandoned: Event | None = None
) -> list[int]:
    """What the tier's predictor gives each image; a PDF's page and an image of low detail get the fixed budget.

    The image is decoded, and trimmed, as calibration does it, so that its statistics are the same there and here. It
    ends early where nobody waits.
    """
    assert option.predictor is not None
    found = []
    for image in images:
        check_awaited(abandoned)
        if image.page is not None or image.low_detail:
            found.append(option.budget)
            continue
        try:
            pixels = open_image(image.data, max_pixels=image.width * image.height)
        except UnreadableImage:
            raise unreadable() from None
        shown = pixels.crop(_shown(image, family, partial(margins, pixels)))
        found += option.predictor.predict([page_statistics(shown)], option.budget).tolist()
    return found


def _as_counted(image: MeasuredImage, width: int, height: int, budget: int, family: str) -> int:
    """The tokens of a fitted size; an upstream that enlarges it again beyond the budget makes that infeasible."""
    tokens = count_tokens(family, width, height, **image.bounds)
    if tokens > budget:
        size = f"an image of {image.width}x{image.height}"
        raise InfeasibleBudget(f"{size} takes {tokens} tokens at least, because the upstream enlarges it; give as many")
    return tokens


def check_awaited(abandoned: Event | None) -> None:
    """Refuse to go on once nobody waits, after a time limit or a disconnect."""
    if abandoned is not None and abandoned.is_set():
        raise Refused(503, "fit_timeout", "nobody waits for these images any more")


def unreadable() -> Refused:
    """A damaged image; Pillow's own message is not repeated: some carried addresses of objects (CVE-2026-22778)."""
    message = "an image cannot be read: it is damaged, or none of PNG, JPEG, WebP, GIF, BMP and TIFF"
    return Refused(422, "unreadable_image", message, passable=True)


def _refusal(error: UnreadableImage, limits: Limits) -> Refused:
    """A decompression bomb is always refused; a fail-open gateway may forward what it merely cannot read."""
    if "pixels" in str(error):
        return Refused(422, "too_many_pixels", f"an image has more than {limits.pixels} pixels; send a smaller one")
    if "scans" in str(error):
        return Refused(422, "too_many_scans", "an image is a JPEG with too many scans; save it as a baseline JPEG")
    return unreadable()


def _too_large(limits: Limits) -> Refused:
    return Refused(413, "image_too_large", f"an image has more than {limits.image_bytes} bytes; send a smaller one")
