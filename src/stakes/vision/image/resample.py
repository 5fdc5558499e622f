"""Bicubic resampling with antialiasing, by whichever library is faster for the pixels at hand.

libvips computes with the processor's vector instructions and Pillow does not: where an RGB image shrinks along both
sides, libvips takes a third to a half of Pillow's time. Gray images and enlargements are left to Pillow, which is
faster there, and so are boxes that begin or end within a pixel, which libvips cannot express, and large images, of
which libvips needs a copy.
"""

from typing import Any

from PIL import Image

Box = tuple[float, float, float, float]

GAP = 3.0  # times the target that Pillow's averaging over whole pixels leaves for the bicubic step
MOST_PIXELS = 16 << 20  # that libvips gets: with its copy an image takes 10 bytes a pixel, and 5 without

try:  # libvips comes in one wheel; without one for the machine Pillow does the same, slower
    import pyvips
except (ImportError, OSError):
    pyvips = None
else:
    pyvips.cache_set_max(0)  # its cache of operations would keep the pixels of past images


def resampled(pixels: Image.Image, size: tuple[int, int], box: Box) -> Image.Image:
    """The box of an image of mode "L" or "RGB" at this size (width, height)."""
    whole = int(box[0]), int(box[1]), int(box[2]), int(box[3])
    width, height = whole[2] - whole[0], whole[3] - whole[1]
    possible = pyvips is not None and pixels.mode == "RGB" and whole == box and width * height <= MOST_PIXELS
    if not possible or size[0] > width or size[1] > height:
        return pixels.resize(size, Image.Resampling.BICUBIC, box=box, reducing_gap=GAP)
    part = pixels if (width, height) == pixels.size else pixels.crop(whole)
    return Image.frombuffer("RGB", size, _shrunk(part, size), "raw", "RGB", 0, 1)


def _shrunk(pixels: Image.Image, size: tuple[int, int]) -> Any:
    """The bytes of an RGB image at a smaller size."""
    source = pyvips.Image.new_from_memory(pixels.tobytes(), *pixels.size, 3, "uchar")
    source.set_type(pyvips.GValue.gint_type, "concurrency", 1)  # requests share the cores already
    across, down = (new / old for new, old in zip(size, pixels.size, strict=True))
    made = source.resize(across, vscale=down, kernel="cubic", gap=0)  # no averaging first
    if (made.width, made.height) != size:
        raise AssertionError(f"libvips made {made.width}x{made.height} pixels, not {size[0]}x{size[1]}")
    return made.write_to_memory()
