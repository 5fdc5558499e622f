"""Bicubic resampling with antialiasing, by whichever library is faster for the pixels at hand.

libvips computes with the processor's vector instructions and Pillow does not: where an RGB image shrinks along both
sides, libvips takes a third to a half of Pillow's time. A plain PNG or JPEG it also decodes, line by line in the same
pass (``streamed``), so that no full-size pixels are held or copied. Gray images and enlargements are left to Pillow,
which is faster there, and so are boxes that begin or end within a pixel, which libvips cannot express, and large images
that are decoded already, of which libvips needs a copy.
"""

import logging
from typing import Any, NamedTuple

from PIL import Image

from stakes.vision.image.modes import Pixels
from stakes.vision.image.png import unpacked_png

Box = tuple[float, float, float, float]

GAP = 3.0  # times the target that Pillow's averaging over whole pixels leaves for the bicubic step
MOST_PIXELS = 16 << 20  # that libvips gets: with its copy an image takes 10 bytes a pixel, and 5 without
MOST_SHRUNK = 256  # times that libvips shrinks a side; it refuses more than some 500

try:  # libvips comes in one wheel; without one for the machine Pillow does the same, slower
    import pyvips
except (ImportError, OSError):
    pyvips = None
else:
    pyvips.cache_set_max(0)  # its cache of operations would keep the pixels of past images
    logging.getLogger("pyvips").setLevel(logging.ERROR)  # it warns of damaged files, about which Pillow decides


class PlainFile(NamedTuple):
    """A PNG or JPEG that decodes to 8-bit RGB in one pass; ``size``: as stored, at 1 / ``scale`` of its sides."""

    data: bytes
    format: str
    scale: int
    size: tuple[int, int]


def streamed(source: PlainFile, size: tuple[int, int]) -> Pixels | None:
    """The file at a smaller size; None where Pillow has to decode it, as it must where libvips finds any fault."""
    if pyvips is None or size[0] > source.size[0] or size[1] > source.size[1] or size == source.size:
        return None
    options = {"access": "sequential", "fail_on": "warning"}
    try:
        if source.format == "PNG":
            image = pyvips.Image.pngload_buffer(unpacked_png(source.data, source.size), **options)
        else:
            image = pyvips.Image.jpegload_buffer(source.data, shrink=source.scale, **options)
        if (image.width, image.height, image.bands, image.format) != (*source.size, 3, "uchar"):
            return None
        return _shrunk(image, source.size, size)
    except pyvips.Error:
        return None


def resampled(pixels: Image.Image, size: tuple[int, int], box: Box) -> Image.Image:
    """The box of an image of mode "L" or "RGB" at this size (width, height)."""
    whole = int(box[0]), int(box[1]), int(box[2]), int(box[3])
    width, height = whole[2] - whole[0], whole[3] - whole[1]
    possible = pyvips is not None and pixels.mode == "RGB" and whole == box and width * height <= MOST_PIXELS
    shrinks = size[0] <= width <= MOST_SHRUNK * size[0] and size[1] <= height <= MOST_SHRUNK * size[1]
    if not (possible and shrinks):
        return pixels.resize(size, Image.Resampling.BICUBIC, box=box, reducing_gap=GAP)
    part = pixels if (width, height) == pixels.size else pixels.crop(whole)
    return _shrunk(pyvips.Image.new_from_memory(part.tobytes(), *part.size, 3, "uchar"), part.size, size).image()


def _shrunk(source: Any, stored: tuple[int, int], size: tuple[int, int]) -> Pixels:
    """An RGB image of libvips at a smaller size."""
    source.set_type(pyvips.GValue.gint_type, "concurrency", 1)  # requests share the cores already
    made = source.resize(size[0] / stored[0], vscale=size[1] / stored[1], kernel="cubic", gap=0)  # no averaging first
    if (made.width, made.height) != size:
        raise AssertionError(f"libvips made {made.width}x{made.height} pixels, not {size[0]}x{size[1]}")
    return Pixels(bytes(made.write_to_memory()), size)
