"""write_png: exact pixels with either deflate, and about as small as Pillow's files."""

import importlib
import io
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from stakes.data import synthetic as pages
from stakes.errors import BadInput
from stakes.vision.image import png
from stakes.vision.image.png import write_png
from stakes.vision.image.resample import Pixels


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


def test_other_modes_are_refused() -> None:
    with pytest.raises(BadInput, match="not RGBA"):
        write_png(Image.new("RGBA", (4, 4)))
