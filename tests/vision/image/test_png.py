"""write_png: exact pixels with either deflate, and about as small as Pillow's files."""

import importlib
import io
import sys
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from tests.vision.image.image_files import chunk

from stakes.data import synthetic as pages
from stakes.errors import BadInput
from stakes.vision.image import png
from stakes.vision.image.modes import Pixels
from stakes.vision.image.png import unpacked_png, write_png


def pixels(data: bytes) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
        image.verify()  # every checksum
    with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
        assert image.mode == "RGB"
        return np.asarray(image)


@given(st.integers(1, 90), st.integers(1, 90), st.integers(0, 3))
def test_png_round_trip_is_exact(width: int, height: int, seed: int) -> None:
    noise = np.random.default_rng(seed).integers(0, 1 << (2 * seed + 2), (height, width, 3)).astype(np.uint8)
    data = write_png(Image.fromarray(noise))
    assert (pixels(data) == noise).all()
    assert write_png(Pixels(noise.tobytes(), (width, height))) == data


def test_a_page_is_about_as_small_as_pillows() -> None:
    for seed in range(3):
        page = pages.draw("forms", seed, "test").image.resize((560, 784))
        usual = io.BytesIO()
        page.save(usual, "PNG", compress_level=1)
        assert len(write_png(page)) < 1.35 * len(usual.getvalue())


def test_without_isal_it_is_zlib(monkeypatch: pytest.MonkeyPatch) -> None:
    image = pages.draw("signs", 0, "test").image
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "isal", None)
        plain = importlib.reload(png).write_png(image)
    again = importlib.reload(png).write_png(image)
    assert (pixels(plain) == pixels(again)).all()


def noise(width: int = 70, height: int = 50) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("size", [(70, 50), (400, 300)])  # one stored block, and several
def test_noise_is_unpacked_to_the_same_pixels(size: tuple[int, int]) -> None:
    pytest.importorskip("isal", reason="ISA-L has no wheel for this machine")
    data = noise(*size)
    unpacked = unpacked_png(data, size)
    assert len(unpacked) > 3 * size[0] * size[1]
    assert (pixels(unpacked) == pixels(data)).all()


def whole_chunk(data: bytes, rows: bytes) -> bytes:
    """The PNG with other packed rows in its only chunk of them."""
    return data[:33] + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


DAMAGED: dict[str, Callable[[bytes, bytes], bytes]] = {
    "the sum of the chunk": lambda data, _: data[:-14] + bytes([data[-14] ^ 1]) + data[-13:],
    "the sum of the rows": lambda data, packed: whole_chunk(data, packed[:-1] + bytes([packed[-1] ^ 1])),
    "no sum of the rows": lambda data, packed: whole_chunk(data, packed[:-4]),
    "cut": lambda data, packed: whole_chunk(data, packed[:-40]),
    "a row too many": lambda data, packed: whole_chunk(data, zlib.compress(zlib.decompress(packed) + bytes(211))),
    "a row too few": lambda data, packed: whole_chunk(data, zlib.compress(zlib.decompress(packed)[:-211])),
    "bytes after the rows": lambda data, packed: whole_chunk(data, packed + b"more"),
    "a small window": lambda data, packed: whole_chunk(data, b"\x48\x0d" + packed[2:]),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_file_with_anything_wrong_stays_packed(what: str) -> None:
    data = noise()
    damaged = DAMAGED[what](data, data[41:-16])
    assert unpacked_png(damaged, (70, 50)) is damaged


def test_what_follows_the_end_of_a_file_is_not_read() -> None:
    data = noise()
    assert unpacked_png(data + chunk(b"IDAT", b"more"), (70, 50)) == unpacked_png(data, (70, 50)) != data


def test_a_file_that_packs_well_or_is_large_stays_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    page = write_png(Image.new("RGB", (300, 300)))
    assert unpacked_png(page, (300, 300)) is page
    data = noise()
    monkeypatch.setattr(png, "_MOST_UNPACKED", 50 * 211 - 1)
    assert unpacked_png(data, (70, 50)) is data
    monkeypatch.setattr(png, "_MOST_UNPACKED", 50 * 211)
    monkeypatch.setattr(png, "isal_zlib", None)
    assert unpacked_png(data, (70, 50)) is data


def test_other_modes_are_refused() -> None:
    with pytest.raises(BadInput, match="not RGBA"):
        write_png(Image.new("RGBA", (4, 4)))
