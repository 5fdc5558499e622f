"""How does an image of any pixel format become grey or RGB? Alpha lies on white paper; 16 bits are scaled, not clipped.

Pillow's own ``convert`` clips ``I;16`` at 255, drops a palette's transparency and shows hidden colours of clear pixels.
A TIFF of more than 8 bits says itself how many it has and whether 0 is white, which Pillow leaves to the reader.
What stays grey stays one channel, which resizes in less than half the time and becomes the same RGB afterwards.

    flatten(Image.open("scan.tiff"))      # mode "L" or "RGB"
"""

from typing import Any

import numpy as np
from PIL import Image
from PIL.TiffImagePlugin import BITSPERSAMPLE, PHOTOMETRIC_INTERPRETATION, SAMPLEFORMAT, TiffImageFile


def flatten(image: Image.Image) -> Image.Image:
    """The same picture in mode "L" or "RGB", on white."""
    if image.mode.startswith("I") or image.mode == "F":
        return _deep(image)
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        paper = Image.new("RGB", image.size, "white")
        paper.paste(layered, mask=layered.getchannel("A"))
        return paper
    if image.mode in ("L", "RGB"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def _deep(image: Image.Image) -> Image.Image:
    """Grey values beyond 8 bits.

    A file does not say what white is for "I" (32-bit whole numbers) and "F" (floats): values within 0..1 (floats only),
    0..255 or 0..65535 are taken to fill that range, and anything else is spread from its least to its greatest value.
    """
    values: np.ndarray[Any, np.dtype[Any]] = np.asarray(image)
    bits, unsigned, mirrored = _stated(image)
    if image.mode.startswith("I;16"):
        grey = (values >> bits - 8).astype(np.uint8)  # as Pillow reads 16-bit RGB
    else:
        whole = image.mode == "I"
        grey = _spread(values.view(np.uint32) if whole and unsigned else values, whole)
    if mirrored:
        grey = 255 - grey
    clear = image.info.get("transparency")
    if isinstance(clear, int):
        grey[values == clear] = 255
    return Image.fromarray(grey)


def _stated(image: Image.Image) -> tuple[int, bool, bool]:
    """Bits of a deep grey value, whether 32 of them have no sign, and whether 0 is white; as a TIFF's tags say.

    Pillow reads 12 bits as 16 and 32 without a sign as 32 with one, and mirrors where 0 is white up to 8 bits only.
    """
    if not isinstance(image, TiffImageFile):
        return 16, False, False
    bits, kinds = image.tag_v2.get(BITSPERSAMPLE, (16,)), image.tag_v2.get(SAMPLEFORMAT, (1,))
    return bits[0], bits[0] == 32 and kinds[0] == 1, image.tag_v2.get(PHOTOMETRIC_INTERPRETATION) == 0


def _spread(values: "np.ndarray[Any, np.dtype[Any]]", whole: bool) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    numbers = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    least, most = float(numbers.min()), float(numbers.max())
    white = next((top for top in (() if whole else (1.0,)) + (255.0, 65535.0) if most <= top), None)
    if least < 0 or white is None:
        numbers, white = numbers - least, (most - least) or 1.0
    grey: np.ndarray[Any, np.dtype[np.uint8]] = np.rint(numbers * (255.0 / white)).astype(np.uint8)
    return grey
