"""How does a data URL become one that spends fewer tokens? Checked, measured by its header, fitted, encoded again.

Everything here is slow and runs in workers. Measuring decodes base64 and reads a header; no pixel is touched before the
budget is known. An image that is within its budget and stands upright is decoded, so that a damaged one is found, and
then sent on in its own bytes, unless its side is longer than the service accepts.

    one = measure("data:image/png;base64,…", "qwen2.5-vl", limits)
    shrink(one, 256, "qwen2.5-vl", "png").url
"""

import asyncio
import base64
import binascii
import io
import re
import struct
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np
from PIL import Image

from stakes.errors import BadInput, InfeasibleBudget, UnreadableImage
from stakes.gateway.proxy import images as base64_text
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.settings import Encoding, Limits
from stakes.vision.geometry import accepted_size, count_tokens
from stakes.vision.image.decode import Picture, probe
from stakes.vision.image.resize import fit, fitted_size

# How is an image written as PNG in little time? Rows as they are, and the fastest deflate that is installed.
#
# Pillow tries five filters on every row and spends more on it than on decoding and resizing together: 31 ms for a
# page of
# 576 tokens. Unfiltered rows take 18 ms by zlib at level 1 and come out a tenth smaller (pages are paper and ink, not
# gradients); with ISA-L's deflate (``pip install isal``, part of ``stakes[gateway]``) 5 ms. The pixels are the same.
#
#     write_png(image)[:8]                              # b'\x89PNG\r\n\x1a\n'


try:
    from isal.isal_zlib import compress
except ImportError:  # no wheel for this machine: slower, and no worse
    from zlib import compress


_RGB, _UNFILTERED = 2, 0


def write_png(image: Image.Image) -> bytes:
    """The bytes of an RGB image (PNG, 8 bits a channel, no filter)."""
    if image.mode != "RGB":
        raise BadInput(f"only RGB images are written here, not {image.mode}; convert it first")
    width, height = image.size
    rows = np.empty((height, 1 + 3 * width), dtype=np.uint8)
    rows[:, 0] = _UNFILTERED
    rows[:, 1:] = np.asarray(image).reshape(height, 3 * width)
    head = struct.pack(">IIBBBBB", width, height, 8, _RGB, 0, 0, 0)
    data = compress(rows.data, 1)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))


_HEAD = re.compile(r"data:([a-z0-9.+/-]{0,64})((?:;[a-z0-9.=+_-]{1,64}){0,4}),", re.IGNORECASE)
_UNREADABLE = "an image cannot be read: it is damaged, or none of PNG, JPEG, WebP, GIF, BMP and TIFF"
JPEG_QUALITY = 95  # a convention, at 4:4:4 so that coloured text stays sharp; PNG, the default, loses nothing


@dataclass(frozen=True)
class Measured:
    """An image whose header was read: its bytes, its upright size and the tokens that it takes with no budget.

    ``native`` of one that the service refuses for its length is that of the longest size in its shape that is not.
    """

    data: bytes
    format: str
    width: int
    height: int
    native: int


@dataclass(frozen=True)
class Shrunk:
    """What goes to the upstream in its place: ``url`` is None where the image is sent as it came."""

    url: str | None
    tokens: int
    scale: tuple[float, float]


def is_data_url(url: str) -> bool:
    """Tell whether an address holds the image itself."""
    return url[:5].lower() == "data:"


def measure(url: str, family: str, limits: Limits) -> Measured:
    """Undo the base64 of a data URL, strictly, and measure what it holds."""
    head = _HEAD.match(url[:512])
    if head is None or ";base64" not in head[2].lower():
        raise Refused(422, "bad_data_url", "an image's data URL is not of the form data:image/png;base64,…")
    if head[1] and not head[1].lower().startswith("image/"):
        raise Refused(422, "bad_data_url", "a data URL in the place of an image does not say that it is one")
    if (len(url) - head.end()) * 3 // 4 > limits.image_bytes + 2:
        raise _too_large(limits)
    try:
        data = base64_text.decode(url[head.end() :])
    except ValueError:
        raise Refused(422, "bad_base64", "an image's base64 is damaged") from None
    return measure_bytes(data, family, limits)


def measure_bytes(data: bytes, family: str, limits: Limits) -> Measured:
    """Read the header; the pixel limit is checked on it, before anything is decoded."""
    if len(data) > limits.image_bytes:
        raise _too_large(limits)
    try:
        kind, width, height = probe(data, max_pixels=limits.pixels)
    except UnreadableImage as error:
        raise _refusal(error, limits) from None
    if min(width, height) < limits.side:
        raise Refused(422, "image_too_small", f"an image has a side of fewer than {limits.side} pixels")
    try:
        native = count_tokens(family, *accepted_size(family, width, height))
    except BadInput as error:  # so thin that the family's own processor refuses it
        raise Refused(422, "image_too_thin", str(error)) from None
    return Measured(data, kind.lower(), width, height, native)


def shrink(one: Measured, budget: int, family: str, encoding: Encoding) -> Shrunk:
    """The image at its budget, by pixels."""
    try:
        as_it_came = one.native <= budget and accepted_size(family, one.width, one.height) == (one.width, one.height)
        if as_it_came and _is_sound_and_upright(one):
            return Shrunk(None, one.native, (1.0, 1.0))
        fitted = fit(one.data, budget, family, decode_limit=one.width * one.height)
    except UnreadableImage:
        raise unreadable() from None
    except InfeasibleBudget as error:
        raise infeasible(error) from None
    if encoding == "jpeg":
        out = io.BytesIO()
        fitted.image.save(out, "JPEG", quality=JPEG_QUALITY, subsampling=0)
        data = out.getvalue()
    else:
        data = write_png(fitted.image)
    return Shrunk(data_url(data, encoding), fitted.tokens, fitted.scale)


def data_url(data: bytes, kind: str) -> str:
    """An image as an address that holds it."""
    return f"data:image/{kind};base64,{base64_text.encode(data)}"


def unreadable() -> Refused:
    """Pillow's own words are never repeated: they have carried addresses of objects (CVE-2026-22778)."""
    return Refused(422, "unreadable_image", _UNREADABLE, soft=True)


def foretell(one: Measured, budget: int, family: str) -> Shrunk:
    """What ``shrink`` would spend, by arithmetic alone: no pixel is decoded, and the image goes on as it came."""
    if one.native <= budget:
        return Shrunk(None, one.native, (1.0, 1.0))
    try:
        size = fitted_size(one.width, one.height, budget, family)
    except InfeasibleBudget as error:
        raise infeasible(error) from None
    return Shrunk(None, size.tokens, (1.0, 1.0))


def infeasible(error: InfeasibleBudget) -> Refused:
    """No size of the image takes as few tokens as it was granted."""
    return Refused(422, "infeasible_budget", str(error), soft=True)


def _is_sound_and_upright(one: Measured) -> bool:
    """Decode it whole; False where EXIF lays it on its side, which some servers do not undo."""
    picture = Picture(one.data, max_pixels=one.width * one.height)
    if not picture.sideways:
        picture.pixels()
    return not picture.sideways


def _refusal(error: UnreadableImage, limits: Limits) -> Refused:
    """A bomb is refused whatever the setting; what merely cannot be read may be passed on by a fail-open gateway."""
    if "pixels" in str(error):
        return Refused(422, "too_many_pixels", f"an image has more than {limits.pixels} pixels; send a smaller one")
    if "scans" in str(error):
        return Refused(422, "too_many_scans", "an image is a JPEG of too many scans; save it again as a plain one")
    return unreadable()


def _too_large(limits: Limits) -> Refused:
    return Refused(413, "image_too_large", f"an image has more than {limits.image_bytes} bytes; send a smaller one")


# How do an image's bytes become text that JSON can carry, and back? Base64, strictly, by the fastest codec there is.
#
# pybase64 (part of ``stakes[gateway]``) reads a page of a megabyte in 0.1 ms where the standard library takes 4, and
# writes one in 0.04 instead of 1.7. Both refuse what is not base64 from end to end.
#
#     decode(encode(b"page"))                           # b'page'


try:
    import pybase64
except ImportError:  # no wheel for this machine: slower, and no worse
    pybase64 = None


def encode(data: bytes) -> str:
    """Bytes as text."""
    if pybase64 is not None:
        text: str = pybase64.b64encode_as_string(data)
        return text
    return base64.b64encode(data).decode("ascii")


def decode(text: str) -> bytes:
    """Text as bytes; ``ValueError`` where a character is none of base64's, or the padding is not as it must be."""
    if pybase64 is not None:
        data: bytes = pybase64.b64decode(text, validate=True)
        return data
    return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)


# Where is the slow work done? In a few threads off the event loop, with a time limit and a full house that says so.
#
# Pillow lets go of the interpreter while it decodes, resizes and encodes, so threads are enough. A thread cannot be
# stopped: work that ran past its time keeps its place until it ends, which the pixel and scan limits keep short, and
# new work is refused once ``waiting`` places are taken.


P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """A bounded pool; used from one event loop."""

    def __init__(self, limits: Limits) -> None:
        self._pool = ThreadPoolExecutor(limits.workers, thread_name_prefix="stakes-fit")
        self._places, self._seconds = limits.waiting, limits.fit_s
        self.inside = 0  # pieces of work running or waiting

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``work`` returns or raises; 503 where nobody is free in time."""
        if self.inside >= self._places:
            raise Refused(503, "busy", "all workers are busy; try again in a moment", soft=True, retry_after=1)
        loop = asyncio.get_running_loop()
        self.inside += 1
        future = self._pool.submit(work, *args, **kwargs)
        future.add_done_callback(lambda _: _tell(loop, self._left))
        try:
            async with asyncio.timeout(self._seconds) as limit:
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Refused(
                503, "fit_timeout", f"the images were not ready in {self._seconds:g} s; send smaller ones", soft=True
            ) from None

    def close(self) -> None:
        """Take no more work; what runs is left to end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _left(self) -> None:
        self.inside -= 1


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:  # the loop has ended before the thread did
        return
