"""Bicubic resampling with antialiasing, by whichever library is faster for the pixels at hand.

libvips computes with the processor's vector instructions and Pillow does not: where an RGB image shrinks along both
sides, libvips takes a third to a half of Pillow's time. A plain PNG or JPEG it also decodes, line by line in the same
pass (``streamed``), so that no full-size pixels are held or copied, or all at once (``unpacked``) where its margins are
looked at first. Gray images and enlargements are left to Pillow, which is faster there, and so are boxes that begin or
end within a pixel, which libvips cannot express, and large images that Pillow decoded, of which libvips needs a copy.
"""

import logging
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from stakes.vision.image.modes import Pixels
from stakes.vision.image.png import unpacked_png

Box = tuple[float, float, float, float]

GAP = 3.0  # times the target that Pillow's averaging over whole pixels leaves for the bicubic step
MOST_PIXELS = 16 << 20  # of Pillow's that libvips gets: with its copy an image takes 10 bytes a pixel, and 5 without
LINES = 64  # that are decoded at a time
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
    try:
        image = _opened(source)
        return image and _shrunk(image, source.size, size)
    except pyvips.Error:
        return None


def unpacked(source: PlainFile) -> Pixels | None:
    """All pixels of the file; None where Pillow has to decode it."""
    width, height = source.size
    if pyvips is None:
        return None
    # NumPy asks for large pages of memory, libvips does not: 12 megapixels take 25 ms in place of 36.
    values = np.empty((height, 3 * width), dtype=np.uint8)
    try:
        image = _opened(source)
        if image is None:
            return None
        region = pyvips.Region.new(image)
        for top in range(0, height, LINES):
            count = min(LINES, height - top)
            lines = region.fetch(0, top, width, count)
            values[top : top + count] = np.frombuffer(lines, dtype=np.uint8).reshape(count, -1)
    except pyvips.Error:
        return None
    return Pixels(values.data.cast("B"), source.size)


def as_packed(image: Image.Image) -> Image.Image | Pixels:
    """RGB pixels as libvips reads them, unless the image is left to Pillow."""
    if pyvips is None or image.mode != "RGB" or image.width * image.height > MOST_PIXELS:
        return image
    return Pixels(image.tobytes(), image.size, image)


def _opened(source: PlainFile) -> Any:
    """The image of libvips, which decodes when pixels are asked for; None where the file is not what it seemed."""
    options = {"access": "sequential", "fail_on": "warning"}
    if source.format == "PNG":
        image = pyvips.Image.pngload_buffer(unpacked_png(source.data, source.size), **options)
    else:
        image = pyvips.Image.jpegload_buffer(source.data, shrink=source.scale, **options)
    return image if (image.width, image.height, image.bands, image.format) == (*source.size, 3, "uchar") else None


def resampled(pixels: Image.Image | Pixels, size: tuple[int, int], box: Box) -> Image.Image | Pixels:
    """The box of gray or RGB pixels at this size (width, height)."""
    whole = int(box[0]), int(box[1]), int(box[2]), int(box[3])
    width, height = whole[2] - whole[0], whole[3] - whole[1]
    packed = isinstance(pixels, Pixels) or (pixels.mode == "RGB" and pixels.width * pixels.height <= MOST_PIXELS)
    possible = pyvips is not None and packed and whole == box
    shrinks = size[0] <= width <= MOST_SHRUNK * size[0] and size[1] <= height <= MOST_SHRUNK * size[1]
    if not (possible and shrinks):
        image = pixels.image() if isinstance(pixels, Pixels) else pixels
        return image.resize(size, Image.Resampling.BICUBIC, box=box, reducing_gap=GAP)
    if isinstance(pixels, Image.Image):
        part = pixels if (width, height) == pixels.size else pixels.crop(whole)
        return _shrunk(pyvips.Image.new_from_memory(part.tobytes(), *part.size, 3, "uchar"), part.size, size)
    stored = pyvips.Image.new_from_memory(pixels.data, *pixels.size, 3, "uchar")
    return _shrunk(stored.crop(whole[0], whole[1], width, height), (width, height), size)


def _shrunk(source: Any, stored: tuple[int, int], size: tuple[int, int]) -> Pixels:
    """An RGB image of libvips at a smaller size."""
    source.set_type(pyvips.GValue.gint_type, "concurrency", 1)  # requests share the cores already
    made = source.resize(size[0] / stored[0], vscale=size[1] / stored[1], kernel="cubic", gap=0)  # no averaging first
    if (made.width, made.height) != size:
        raise AssertionError(f"libvips made {made.width}x{made.height} pixels, not {size[0]}x{size[1]}")
    return Pixels(bytes(made.write_to_memory()), size)
