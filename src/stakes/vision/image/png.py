"""Write an image as PNG fast: unfiltered rows, and ISA-L's deflate where it is installed."""

import struct

import numpy as np
from PIL import Image

from stakes.errors import BadInput
from stakes.vision.image.resample import Pixels

try:  # both are part of stakes[gateway]; without a wheel for the machine the standard library does the same, slower
    from isal.isal_zlib import compress, crc32
except ImportError:
    from zlib import compress, crc32

_RGB, _UNFILTERED = 2, 0  # PNG's color type and row filter


def write_png(image: Image.Image | Pixels) -> bytes:
    """An RGB image as PNG: 8 bits a channel, unfiltered rows, ISA-L's deflate where it is installed.

    Pillow tries five filters on every row, which takes longer than decoding and resizing: 31 ms for an image of 576
    tokens. Unfiltered rows take 18 ms with zlib at level 1 and 5 ms with ISA-L, and come out a tenth smaller, because
    document pages are ink on paper and not gradients.
    """
    if isinstance(image, Image.Image):
        if image.mode != "RGB":
            raise BadInput(f"write_png takes RGB images, not {image.mode}; convert it first")
        image = Pixels(image.tobytes(), image.size)
    width, height = image.size
    rows = np.empty((height, 1 + 3 * width), dtype=np.uint8)
    rows[:, 0] = _UNFILTERED
    rows[:, 1:] = np.frombuffer(image.data, np.uint8).reshape(height, 3 * width)
    head = struct.pack(">IIBBBBB", width, height, 8, _RGB, 0, 0, 0)
    data = compress(rows.data, 1)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc32(data, crc32(kind)))
