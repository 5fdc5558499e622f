r"""How is an image written as PNG in little time? Rows as they are, and the fastest deflate that is installed.

Pillow tries five filters on every row and spends more on it than on decoding and resizing together: 31 ms for a page of
576 tokens. Unfiltered rows take 18 ms by zlib at level 1 and come out a tenth smaller (pages are paper and ink, not
gradients); with ISA-L's deflate (``pip install isal``, part of ``stakes[gateway]``) 5 ms. The pixels are the same.

    write_png(image)[:8]                              # b'\x89PNG\r\n\x1a\n'
"""

import struct
import zlib

import numpy as np
from PIL import Image

try:
    from isal.isal_zlib import compress
except ImportError:  # no wheel for this machine: slower, and no worse
    from zlib import compress

from stakes.errors import BadInput

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
