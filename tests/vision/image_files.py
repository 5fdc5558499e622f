"""Images as the bytes of a file, sound or made up."""

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
