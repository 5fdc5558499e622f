"""Images as the bytes of a file, valid or made up."""

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image


def encode(image: Image.Image, format_: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format_, **options)
    return out.getvalue()


def scene(width: int = 60, height: int = 40) -> Image.Image:
    """No symmetry: each corner has its own colour, and noise makes every format spend bytes."""
    noise = np.random.default_rng(5).integers(0, 40, (height, width, 3))
    noise[: height // 2, : width // 2, 0] += 200
    noise[: height // 2, width // 2 :, 1] += 200
    noise[height // 2 :, : width // 2, 2] += 200
    return Image.fromarray(noise.astype(np.uint8))


def same(one: Image.Image, other: Image.Image) -> bool:
    return np.array_equal(np.asarray(one), np.asarray(other))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *extra: bytes, depth: int = 8, colour: int = 2, pixels: bytes = b"") -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(extra) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def tiff(values: "np.ndarray[Any, Any]", bits: int, photometric: int = 1, kind: int = 1) -> bytes:
    """A TIFF of one gray page; ``photometric`` 0: 0 is white; kinds: 1 unsigned, 2 signed, 3 float."""
    height, width = values.shape
    data = packed(values, bits) if bits < 8 or bits == 12 else values.astype(f"<{'?uif'[kind]}{bits // 8}").tobytes()
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: photometric, 273: 0, 277: 1, 278: height, 279: len(data)}
    tags = {**tags, 273: 8 + 2 + 12 * (len(tags) + 1) + 4, 339: kind}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + struct.pack("<I", 0) + data


def packed(values: "np.ndarray[Any, Any]", bits: int) -> bytes:
    """Rows of whole bytes, the highest bit first."""
    ones = (values[..., None] >> np.arange(bits)[::-1]) & 1
    return np.packbits(ones.reshape(len(values), -1).astype(np.uint8), axis=1).tobytes()
