"""Decode untrusted bytes into pixels: an upright RGB image, or a named error in one sentence.

* Six formats, recognized by content and never by name; no other format that Pillow can open is tried.
* The pixel limit is checked on the header, before any pixel is decoded. Its default, 89,478,485 pixels, is Pillow's own
  warning line: 256 MiB as RGB, A3 at 600 dpi. Pillow itself refuses twice that, whatever ``max_pixels`` says.
* A progressive JPEG may name thousands of scans, each decoded over the whole image: more than 100 are refused.
* Pillow's error texts carry addresses of objects (CVE-2026-22778), so none is repeated. Its warnings do not leak.
* EXIF orientation is applied, the first frame of an animation or page of a TIFF is used, color profiles are ignored,
  alpha is composited on white, values of 16 bits are scaled and not clipped.

No setting of Pillow is changed. A process that sets ``ImageFile.LOAD_TRUNCATED_IMAGES`` itself still gets an error for
a truncated image: a decoder that reads past the end of the bytes is stopped here.

    probe(data)          # ("JPEG", 2480, 3508), upright, without decoding
    open_image(data)     # a PIL image, mode "RGB"
"""

import io
import os
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from PIL import ExifTags, Image, ImageSequence
from PIL.TiffImagePlugin import TiffImageFile

from stakes.errors import BadInput, StakesError, UnreadableImage
from stakes.vision.image import MAX_PIXELS
from stakes.vision.image.modes import gray_or_rgb
from stakes.vision.image.resample import PlainFile

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MAX_SCANS, MAX_CHUNKS = 100, 4096

Source = Image.Image | bytes | str | os.PathLike[str]
Box = tuple[float, float, float, float]

_SUBFILE_TYPE, _PREVIEW, _MASK = 254, 1, 4  # a tag of TIFF, and two bits of it
_TRANSPOSE = {  # EXIF orientation -> what puts the stored pixels upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_MIRRORED_X = {_TRANSPOSE[orientation] for orientation in (2, 3, 6, 7)}  # after width and height are swapped
_MIRRORED_Y = {_TRANSPOSE[orientation] for orientation in (3, 4, 7, 8)}


def probe(source: Source, *, max_pixels: int = MAX_PIXELS) -> tuple[str, int, int]:
    """(format, width, height) from the header alone, upright; the format of a Pillow image made in memory is "".

    A PNG that states its orientation after its pixels, which is rare, is reported as stored.
    """
    picture = Picture(source, max_pixels=max_pixels, header_only=True)
    return picture.format, *picture.size


def open_image(source: Source, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """The decoded image: upright, RGB, on white, without metadata."""
    picture = Picture(source, max_pixels=max_pixels)
    pixels, _ = picture.pixels()
    return picture.upright(pixels)


class Picture:
    """An image that is open and within its limits; ``pixels`` decodes it, ``upright`` applies its orientation.

    Orientation is applied last so that it can be done on a small image. ``size`` is upright; ``sideways`` says that the
    stored pixels have width and height swapped.
    """

    def __init__(self, source: Source, *, max_pixels: int = MAX_PIXELS, header_only: bool = False) -> None:
        self._own = not isinstance(source, Image.Image)
        with _guarded():
            self._data = b"" if isinstance(source, Image.Image) else read_source(source)
            self._image = source if isinstance(source, Image.Image) else _open(self._data)
            width, height = self._image.size
            if width * height > max_pixels:
                raise UnreadableImage(
                    f"the image has {width}x{height} pixels, more than the {max_pixels} allowed; send a smaller one"
                )
            if width < 1 or height < 1:
                raise UnreadableImage(f"the image has {width}x{height} pixels; at least one is needed")
            # A PNG may state its orientation after its pixels.
            if self._image.format == "PNG" and not (header_only or plain_png(self._data)):
                self._image.load()
            orientation = _orientation(self._image)
        self.transpose = _TRANSPOSE.get(orientation)
        self.sideways = orientation >= 5 and self.transpose is not None
        stored = self._image.format or ""
        self.format = "JPEG" if stored == "MPO" else stored
        self.size = (height, width) if self.sideways else (width, height)

    @property
    def decode_bytes(self) -> int:
        """Memory that decoding takes at its peak, about; measured per pixel for each format and mode."""
        image, each = self._image, 16 if self.format == "WEBP" else 5  # libwebp's animation decoder holds two canvases
        if image.mode in ("I", "F"):
            each = 40  # rescaled in float64
        elif image.info.get("progressive"):
            each = 12  # a JPEG's coefficients of all scans
        return image.width * image.height * (each + 5 * image.has_transparency_data)

    @property
    def photographed(self) -> bool:
        """Whether the file states an exposure time; a scan, a screenshot or a rendering does not."""
        if not self._own or self.format != "JPEG":
            return False
        try:
            return ExifTags.Base.ExposureTime in Image.Image.getexif(self._image).get_ifd(ExifTags.IFD.Exif)
        except Exception:  # damaged metadata state nothing
            return False

    def pages(self) -> int:
        """Number of pages of a TIFF, of which the first is read; previews and masks of a page are not counted."""
        image, count = self._image, 0
        if not (self._own and isinstance(image, TiffImageFile)):
            return 1
        with _QUIET, suppress(Exception):  # a damaged page after the first hides what follows it
            for _ in ImageSequence.Iterator(image):
                count += not image.tag_v2.get(_SUBFILE_TYPE, 0) & (_PREVIEW | _MASK)
        with _guarded():
            image.seek(0)
        return max(1, count)

    def pixels(self, at_least: tuple[int, int] | None = None) -> tuple[Image.Image, Box]:
        """The pixels as stored, mode "L" or "RGB", and the box of them that is the image; to be called once.

        Where ``at_least`` gives an upright size that is enough, a JPEG is decoded at a half or a quarter of its sides,
        still no smaller than that; the box is then a fraction of a pixel smaller than the pixels. An eighth is never
        used: on real pages it fell to 37.9 dB of the full decoding where it left 3 times the target.
        """
        with _guarded():
            image, box = self._image, None
            if at_least is not None and self._own and self.format == "JPEG":
                width, height = at_least[::-1] if self.sideways else at_least
                drafted = image.draft(None, (max(width, image.width // 8 + 1), height))
                box = drafted[1] if drafted else None
            image.load()
            return gray_or_rgb(image), box or (0, 0, *image.size)

    def plain_file(self, at_least: tuple[int, int]) -> PlainFile | None:
        """The bytes, where they decode to 8-bit RGB in one pass at the scale that ``pixels`` would choose."""
        if not self._data or self._image.mode != "RGB" or self.format not in ("PNG", "JPEG"):
            return None
        width, height = self._image.size
        if self.format == "PNG":
            return PlainFile(self._data, "PNG", 1, (width, height)) if plain_png(self._data) else None
        wanted = at_least[::-1] if self.sideways else at_least
        room = min(width // wanted[0], height // wanted[1])
        scale = 4 if room >= 4 else 2 if room >= 2 else 1
        if width % scale or height % scale or not one_scan(self._data):
            return None
        return PlainFile(self._data, "JPEG", scale, (width // scale, height // scale))

    def upright_box(self, box: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
        """A box of the pixels as stored, at native size, where it lies in the upright image."""
        x0, y0, x1, y1 = (box[1], box[0], box[3], box[2]) if self.sideways else box
        if self.transpose in _MIRRORED_X:
            x0, x1 = self.size[0] - x1, self.size[0] - x0
        if self.transpose in _MIRRORED_Y:
            y0, y1 = self.size[1] - y1, self.size[1] - y0
        return x0, y0, x1, y1

    def upright(self, image: Image.Image) -> Image.Image:
        """An image made of the stored pixels with the EXIF orientation applied, as RGB of its own."""
        turned = image.transpose(self.transpose) if self.transpose is not None else image
        rgb = turned if turned.mode == "RGB" and turned is not self._image else turned.convert("RGB")
        rgb.info.clear()
        return rgb


def read_source(source: bytes | str | os.PathLike[str]) -> bytes:
    """The bytes of an image, or of the file at a path."""
    if isinstance(source, bytes):
        return source
    if not isinstance(source, str | os.PathLike):
        raise BadInput(f"an image is a Pillow image, bytes or a path, not {type(source).__name__}")
    path = Path(source)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe or a device would hang
            raise UnreadableImage(f"{path} is not a file; give the path of an image")
        return path.read_bytes()
    except OSError:
        raise UnreadableImage(f"no image can be read at {path}; check the path") from None


def _open(data: bytes) -> Image.Image:
    if not data:
        raise UnreadableImage("the image is empty (0 bytes)")
    image = Image.open(_Bytes(data), formats=FORMATS)
    if image.format in ("JPEG", "MPO") and not one_scan(data) and data.count(b"\xff\xda") > MAX_SCANS:
        raise UnreadableImage(f"the JPEG has more than {MAX_SCANS} scans; save it again as a plain JPEG")
    return image


def one_scan(data: bytes) -> bool:
    """Whether a JPEG is sequential and its first scan holds every component, so that no decoder looks for a second.

    Read off the segments before that scan, because counting markers takes a tenth as long as decoding. False where
    anything is unusual; the scans are then counted.
    """
    at, components = 2, 0
    while at + 10 <= len(data) and data[at] == 0xFF:
        kind, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if kind == 0xDA:
            return 0 < components == data[at + 4]
        if kind in (0xC0, 0xC1):  # the frame: baseline or extended sequential
            components = data[at + 9]
        elif kind not in (0xC4, 0xDB, 0xDD, 0xFE) and not 0xE0 <= kind <= 0xEF:  # tables, comments, applications
            return False
        at += 2 + length
    return False


def plain_png(data: bytes) -> bool:
    """Whether a PNG holds 8-bit RGB without transparency or interlacing, and nothing but its end after its pixels.

    So no orientation comes after them. A truncated file, and one of very many chunks, is not plain.
    """
    if data[:8] != b"\x89PNG\r\n\x1a\n" or data[24:26] != b"\x08\x02" or data[28:29] != b"\x00":
        return False
    at, seen = 8, b""
    for _ in range(MAX_CHUNKS):
        kind = data[at + 4 : at + 8]
        if kind == b"IEND":
            return seen == b"IDAT"
        if kind in (b"", b"tRNS", b"acTL") or (seen == b"IDAT" and kind != b"IDAT"):
            return False
        at, seen = at + 12 + int.from_bytes(data[at : at + 4], "big"), kind
    return False


def _orientation(image: Image.Image) -> int:
    if image.format == "TIFF":  # Pillow applies it itself, and states the upright size from the start
        return 1
    try:
        # Not the PNG's own method, which decodes first.
        value = Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
    except Exception:  # damaged metadata: every viewer shows such an image as it is stored
        return 1
    return value if isinstance(value, int) else 1


class _Bytes(io.BytesIO):
    """Bytes that raise when read past their end, so that no decoder fills a truncated image with gray."""

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if not data and size:
            raise EOFError
        return data


class _Quiet:
    """Silences Pillow's warnings while any thread is inside.

    ``warnings.catch_warnings`` alone is not safe in threads: two that overlap restore each other's filters.
    """

    def __init__(self) -> None:
        self._lock, self._threads, self._filters = threading.Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._threads == 0:
                self._filters.enter_context(warnings.catch_warnings())
                warnings.filterwarnings("ignore", module=r"PIL\.")
            self._threads += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._threads -= 1
            if self._threads == 0:
                self._filters.close()


_QUIET = _Quiet()


@contextmanager
def _guarded() -> Iterator[None]:
    """Turns whatever Pillow raises into one sentence of ours."""
    try:
        with _QUIET:
            yield
    except StakesError:
        raise
    except Image.DecompressionBombError:
        raise UnreadableImage("the image has more pixels than can be decoded safely; send a smaller one") from None
    except Exception:
        raise UnreadableImage(
            "the image cannot be decoded: it is damaged, truncated, or none of PNG, JPEG, WebP, GIF, BMP and TIFF"
        ) from None
