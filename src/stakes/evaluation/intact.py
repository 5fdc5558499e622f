"""Will this image open when its turn comes? Its size, once it is known to be whole, for little more than its header.

A file cut short has a good header, and would stop a run after an hour of paid answers. A PNG carries checksums and its
own end, a JPEG ends in a marker: where those are there, nothing is decoded. All else is decoded once, which settles it.

>>> import io; from PIL import Image; file = io.BytesIO(); Image.new("L", (40, 30)).save(file, "PNG")
>>> whole_size(file.getvalue(), "page.png")
(40, 30)
"""

import zlib

from stakes.errors import UnreadableImage
from stakes.vision.decode import open_image, probe

JPEG_END = b"\xff\xd9"
TAIL = 64  # bytes in which a JPEG's end must stand; cameras put a few of their own after it


def whole_size(data: bytes, name: str) -> tuple[int, int]:
    """Upright (width, height) of an image that can be decoded; ``name`` is what a person finds it by."""
    try:
        kind, width, height = probe(data)
        if not (kind == "JPEG" and JPEG_END in data[-TAIL:]) and not (kind == "PNG" and _sound_png(data)):
            open_image(data)
    except UnreadableImage as error:
        raise UnreadableImage(f"{name}: {error} (stakes data check names every such image)") from None
    return width, height


def _sound_png(data: bytes) -> bool:
    """Whether every chunk up to the end is there with its checksum; 8 bytes of signature come first."""
    at = 8
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        body, check = memoryview(data)[at + 4 : at + 8 + size], data[at + 8 + size : at + 12 + size]
        if zlib.crc32(body).to_bytes(4, "big") != check:
            return False
        if data[at + 4 : at + 8] == b"IEND":
            return True
        at += 12 + size
    return False
