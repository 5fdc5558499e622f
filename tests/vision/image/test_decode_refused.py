"""Bytes that cannot be decoded safely raise UnreadableImage, with one sentence of ours."""

import os
import random
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile
from tests.vision.image.image_files import chunk, encode, png, scene

from stakes.errors import BadInput, UnreadableImage
from stakes.vision.image import MAX_PIXELS
from stakes.vision.image.decode import FORMATS, one_scan, open_image, probe


def _scans() -> bytes:
    """A progressive JPEG whose last scan comes two hundred times."""
    data = encode(scene(), "JPEG", progressive=True)
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last * 200 + data[-2:]


def _half(format_: str) -> bytes:
    data = encode(scene(), format_)
    return data[: len(data) // 2]


def _text_bomb(kind: bytes) -> bytes:
    packed = zlib.compress(bytes(100_000_000), 9)
    head = {b"zTXt": b"k\0\0", b"iTXt": b"k\0\1\0\0\0", b"iCCP": b"k\0\0"}[kind]
    return png(1, 1, chunk(kind, head + packed), pixels=bytes(4))


GIF_HUGE = (
    b"GIF89a" + struct.pack("<HH", 65535, 65535) + b"\0\0\0," + struct.pack("<HHHH", 0, 0, 65535, 65535) + b"\0\2"
)
BMP_HUGE = b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, 2**30, 2**30, 1, 24, 0, 0, 0, 0, 0, 0)


REFUSED: dict[str, Callable[[], bytes]] = {
    "empty": bytes,
    "one byte": lambda: b"\x89",
    "text": lambda: b"hello, this is not an image at all",
    "garbage": lambda: random.Random(1).randbytes(5000),
    "svg": lambda: b"<svg xmlns='http://www.w3.org/2000/svg'></svg>",
    "pdf": lambda: b"%PDF-1.7\n",
    "ppm": lambda: encode(scene(), "PPM"),
    "ico": lambda: encode(scene(), "ICO"),
    "eps": lambda: encode(scene(), "EPS"),
    "tga": lambda: encode(scene(), "TGA"),
    "fits": lambda: b"SIMPLE  =                    T" + b" " * 2850,
    "header only": lambda: encode(scene(), "PNG")[:33],
    "no pixels": lambda: png(0, 5),
    "too few pixels": lambda: png(50, 50, pixels=bytes(100)),
    "huge png": lambda: png(100_000, 100_000),
    "huge png, just over": lambda: png(MAX_PIXELS // 1000 + 1, 1000),
    "huge gif": lambda: GIF_HUGE,
    "huge bmp": lambda: BMP_HUGE,
    "ztxt bomb": lambda: _text_bomb(b"zTXt"),
    "itxt bomb": lambda: _text_bomb(b"iTXt"),
    "colour profile bomb": lambda: _text_bomb(b"iCCP"),
    "many scans": _scans,
} | {f"half of a {format_}": partial(_half, format_) for format_ in FORMATS}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED.keys())
def test_unsafe_bytes_are_refused_in_one_sentence(make: Callable[[], bytes], tmp_path: Path) -> None:
    data = make()
    path = tmp_path / "a.png"
    path.write_bytes(data)
    for source in (data, path):
        with pytest.raises(UnreadableImage) as caught:
            open_image(source)
        text = str(caught.value)
        assert text.startswith("the ")
        assert "\n" not in text
        assert len(text) < 130
        assert "0x" not in text, "an address of Pillow's"
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_limits_are_checked_on_the_header() -> None:
    with pytest.raises(UnreadableImage, match="100x200 pixels, more than the 19999 allowed"):
        open_image(png(100, 200), max_pixels=19_999)
    with pytest.raises(UnreadableImage, match="100x200 pixels, more than the 19999 allowed"):
        probe(png(100, 200), max_pixels=19_999)
    with pytest.raises(UnreadableImage, match="100x200 pixels, more than the 19999 allowed"):
        open_image(Image.new("L", (100, 200)), max_pixels=19_999)


@pytest.mark.parametrize("name", ["missing.png", "", ".", "\0"])
def test_paths_without_an_image_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableImage):
        open_image(f"{tmp_path}/{name}")


@pytest.mark.parametrize("source", [None, 7, [b"bytes"], bytearray(b"bytes")])
def test_only_pillow_images_bytes_and_paths_are_sources(source: Any) -> None:
    with pytest.raises(BadInput, match="Pillow image, bytes or a path, not"):
        open_image(source)


def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableImage, match="is not a file"):
        open_image(tmp_path / "pipe")


@pytest.mark.parametrize("format_", FORMATS)
def test_truncated_images_are_refused_whatever_pillow_is_set_to(format_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    data = encode(scene(), format_)
    assert open_image(data).size == (60, 40)
    for part in (0.3, 0.6, 0.9, 0.98):
        with pytest.raises(UnreadableImage):
            open_image(data[: int(part * len(data))])


@settings(max_examples=300)
@given(st.sampled_from(FORMATS), st.data())
def test_flipped_bytes_give_an_image_or_the_named_error(format_: str, data: st.DataObject) -> None:
    damaged = bytearray(encode(scene(20, 16), format_))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        image = open_image(bytes(damaged), max_pixels=1_000_000)
    except UnreadableImage:
        return
    assert image.mode == "RGB"
    assert image.width * image.height <= 1_000_000


def test_only_a_sequential_jpeg_with_all_in_its_first_scan_is_not_counted() -> None:
    """As libjpeg recognizes a file of one scan; after a first scan of one component in three it reads the next."""
    whole = encode(scene(), "JPEG")
    assert one_scan(whole)
    assert one_scan(encode(scene().convert("L"), "JPEG", comment=b"x" * 300))
    assert not one_scan(encode(scene(), "JPEG", progressive=True))
    at = whole.index(b"\xff\xda")
    parted = whole[: at + 4] + b"\1" + whole[at + 5 :]
    for odd in (parted, whole[:at], whole[:2] + b"\xff\xd8" + whole[2:], b"\xff\xd8", b""):
        assert not one_scan(odd)
    with pytest.raises(UnreadableImage):
        open_image(parted[: at + 14] + 200 * (parted[at : at + 14] + b"\0" * 9))
