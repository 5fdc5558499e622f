"""Images of any mode as gray or RGB on white: palettes, alpha, CMYK, gray of 16 and 32 bits; RGB pixels as bytes."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.TiffImagePlugin import BITSPERSAMPLE, PHOTOMETRIC_INTERPRETATION, SAMPLEFORMAT, TiffImageFile


class Pixels(NamedTuple):
    """RGB pixels, three bytes each, row by row; libvips and PNG have them like this, Pillow in four bytes."""

    data: bytes | memoryview
    size: tuple[int, int]
    original: Image.Image | None = None  # the same as an image, where it was one

    def image(self) -> Image.Image:
        """The same as an image."""
        return self.original or Image.frombuffer(
            "RGB", self.size, np.frombuffer(self.data, np.uint8), "raw", "RGB", 0, 1
        )


def gray_values(image: Image.Image) -> NDArray[np.uint8]:
    """[rows, columns]: the values of an image of mode "L".

    Pillow copies them into memory of NumPy's: 0.07 ms for 0.8 megapixels. ``np.asarray`` copies them twice, into memory
    that is new to the process: 0.7 ms.
    """
    values = np.empty((image.height, image.width), dtype=np.uint8)
    shared = Image.frombuffer("L", image.size, values, "raw", "L", 0, 1)
    shared.readonly = 0  # else it would copy itself before it is written
    shared.paste(image)
    return values


def gray_or_rgb(image: Image.Image) -> Image.Image:
    """The same picture in mode "L" or "RGB", on white. Gray stays one channel, which resizes in half the time.

    Pillow's own ``convert`` clips ``I;16`` at 255, drops a palette's transparency and shows colors of clear pixels.
    """
    if image.mode.startswith("I") or image.mode == "F":
        return _deep_gray(image)
    if image.has_transparency_data:
        layered = image if image.mode == "RGBA" else image.convert("RGBA")
        paper = Image.new("RGB", image.size, "white")
        paper.paste(layered, mask=layered.getchannel("A"))
        return paper
    if image.mode in ("L", "RGB"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def _deep_gray(image: Image.Image) -> Image.Image:
    """Gray values of more than 8 bits, scaled to 8.

    A TIFF's tags state its bits, its sign and whether 0 is white, which Pillow leaves to the reader: it reads 12 bits
    as 16 and unsigned 32 bits as signed, and mirrors where 0 is white up to 8 bits only.
    """
    values: NDArray[Any] = np.asarray(image)
    tags: Any = image.tag_v2 if isinstance(image, TiffImageFile) else {}
    bits = tags.get(BITSPERSAMPLE, (16,))[0]
    if image.mode.startswith("I;16"):
        gray = (values >> bits - 8).astype(np.uint8)  # as Pillow reads 16-bit RGB
    else:
        unsigned = image.mode == "I" and bits == 32 and tags.get(SAMPLEFORMAT, (1,))[0] == 1
        gray = _rescale(values.view(np.uint32) if unsigned else values, floats=image.mode == "F")
    if tags.get(PHOTOMETRIC_INTERPRETATION) == 0:
        gray = 255 - gray
    clear = image.info.get("transparency")
    if isinstance(clear, int):
        gray[values == clear] = 255
    return Image.fromarray(gray)


def _rescale(values: NDArray[Any], floats: bool) -> NDArray[np.uint8]:
    """32-bit integers or floats to 8 bits, where the file does not say which value is white.

    Values within 0..1 (floats only), 0..255 or 0..65535 are taken to fill that range. Any other values are spread from
    their least to their greatest.
    """
    numbers = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    least, most = float(numbers.min()), float(numbers.max())
    white = next((top for top in ((1.0,) if floats else ()) + (255.0, 65535.0) if most <= top), None)
    if least < 0 or white is None:
        numbers, white = numbers - least, (most - least) or 1.0
    gray: NDArray[np.uint8] = np.rint(numbers * (255.0 / white)).astype(np.uint8)
    return gray
