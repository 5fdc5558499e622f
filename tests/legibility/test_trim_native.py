"""``benchmarks.trim_native``: lines of every version are compared in the pixels of the whole page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

pytest.importorskip("rapidocr", reason="needs the extra [ocr]")

from benchmarks.trim_native import MOVED, background, erased, page_row, set_rows, shifted

from stakes.data.sample import Sample
from stakes.legibility.engine import TextLine

TEXTS = {(120, 100): "Total 4,500", (120, 300): "Paid by Ogden"}  # by the upper left corner of the ink
SIZE = (120, 20)
BOX = (100, 80, 400, 400)


class Reader:
    """Finds black bars, and reads which one it is by where it was on the page; ``blind`` versions miss the first."""

    def __init__(self, blind: str) -> None:
        self.blind, self.engine = blind, self

    def lines(self, digest: str, size: tuple[int, int], pixels: Callable[[], NDArray[np.uint8]]) -> list[TextLine]:
        image = pixels()
        assert image.shape[:2] == size[::-1]
        dark = image[..., 0] < 128
        tops = [int(y) for y in np.flatnonzero(dark.any(1)) if y == 0 or not dark[y - 1].any()]
        left = int(np.flatnonzero(dark.any(0))[0])
        version = "trimmed" if image.shape[1] == BOX[2] - BOX[0] else digest.rpartition("-")[2]
        found = [_line(text, left, top) for text, top in zip(TEXTS.values(), tops, strict=True)]
        return found[1:] if version == self.blind else found

    def recognize(self, pixels: NDArray[np.uint8], quad: NDArray[np.float32]) -> TextLine:
        left, top = (int(value) for value in quad[0])
        text = "Total 4,500" if (pixels[top : top + 20, left : left + 120] < 128).all() else ""
        return _line(text, left, top)


def _line(text: str, left: int, top: int) -> TextLine:
    right, bottom = left + SIZE[0], top + SIZE[1]
    positions = tuple((i + 0.5) / len(text) for i in range(len(text)))
    return TextLine(((left, top), (right, top), (right, bottom), (left, bottom)), text, 0.9, positions)


@pytest.fixture
def page() -> Image.Image:
    image = Image.new("RGB", (500, 500), (250, 240, 230))
    for left, top in TEXTS:
        image.paste("black", (left, top, left + SIZE[0], top + SIZE[1]))
    image.paste("white", (0, 0, 500, 30))  # something in the margin
    return image


def row_of(page: Image.Image, blind: str) -> dict[str, Any]:
    samples = [
        Sample(id=key, question="?", answers=(key,), size=page.size, digest="ab12", load=lambda: page)
        for key in ("4500", "Ogden", "nobody")
    ]
    return page_row(Reader(blind), samples, page, BOX)  # type: ignore[arg-type]


def test_nothing_is_lost_where_every_version_is_read_alike(page: Image.Image) -> None:
    row = row_of(page, "none")
    assert (row["located"], row["lines"]) == (["4500", "Ogden"], 2)
    for version in ("trimmed", "erased", "moved"):
        assert not any(row[version].values()), version


@pytest.mark.parametrize("blind", ["trimmed", "erased", "moved"])
def test_a_line_that_one_version_does_not_find_is_lost_there_only(page: Image.Image, blind: str) -> None:
    row = row_of(page, blind)
    for version in ("trimmed", "erased", "moved"):
        gone = version == blind
        assert row[version]["lost"] == row[version]["nowhere"] == ["4500"] * gone
        assert row[version]["not_read"] == row[version]["not_seen"] == [0] * gone
    assert row["trimmed"]["strip_lost"] == row["trimmed"]["strip_not_read"] == [], "its ink is in the crop"
    trimmed, _, moved = set_rows("drawn", [{"located": [], **row}])
    assert (trimmed[4], moved[4]) == (int(blind == "trimmed"), int(blind == "moved"))


def test_controls_keep_the_ink(page: Image.Image) -> None:
    assert background(page) == (250, 240, 230)
    whole, without, moved = (np.asarray(one) for one in (page, erased(page, BOX), shifted(page)))
    assert (without[80:400, 100:400] == whole[80:400, 100:400]).all()
    assert (without[:80] == (250, 240, 230)).all()
    assert (moved[MOVED[1] :, MOVED[0] :] == whole).all()
    assert (moved[: MOVED[1]] == (250, 240, 230)).all()
