"""The formulas follow their processors under other settings too, such as engine parameters that set the tokens."""

import importlib
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stakes.errors import BadInput
from stakes.vision.geometry import smart_resize
from stakes.vision.geometry.patches import MENU, Gemma4
from stakes.vision.geometry.tiles import AnyRes, AspectTiles, SplitTiles

pytest.importorskip("transformers")

# Half a square, where Python rounds to the even number of squares, is one size in 28, so these sizes are added.
SIDES = (
    st.integers(1, 6000) | st.integers(0, 60).map(lambda k: 28 * k + 14) | st.integers(0, 60).map(lambda k: 32 * k + 16)
)


def _module(name: str) -> Any:
    return importlib.import_module(f"transformers.models.{name}")


def _sizes(count: int) -> list[tuple[int, int]]:
    generator = random.Random(7)
    return [(round(6000 ** generator.random()), round(6000 ** generator.random())) for _ in range(count)]


@given(SIDES, SIDES, st.sampled_from([28, 32]), st.integers(1, 400_000), st.integers(784, 20_000_000))
def test_smart_resize_is_the_original(width: int, height: int, factor: int, least: int, most: int) -> None:
    original = _module("qwen2_vl.image_processing_pil_qwen2_vl").smart_resize
    try:
        theirs = original(height, width, factor, least, most)[::-1]
    except ValueError:
        with pytest.raises(BadInput, match="aspect ratio"):
            smart_resize(width, height, factor, least, most)
    else:
        assert smart_resize(width, height, factor, least, most) == theirs


@pytest.mark.parametrize("most", [1, 6, 12, 24])
def test_internvl_with_other_numbers_of_tiles(most: int) -> None:
    processor = _module("got_ocr2.image_processing_pil_got_ocr2").GotOcr2ImageProcessorPil(
        size={"height": 448, "width": 448}, crop_to_patches=True, max_patches=most
    )
    for width, height in _sizes(300):
        tiles = processor.get_number_of_image_patches(height, width)
        assert AspectTiles(most=most).tokens(width, height) == 256 * tiles


@pytest.mark.parametrize(
    ("longest", "tile", "widest", "highest"),
    [(24, 8, 300, 300), (20, 8, 300, 300), (33, 8, 300, 300), (8, 8, 300, 300), (5097, 64, 600, 6)],
)
def test_idefics3_with_other_sizes(longest: int, tile: int, widest: int, highest: int) -> None:
    """Against the tiles that the processor cuts: its counter is wrong where the long side is no whole tile."""
    images = _module("idefics3.image_processing_pil_idefics3").Idefics3ImageProcessorPil(
        size={"longest_edge": longest}, max_image_size={"longest_edge": tile}, do_rescale=False, do_normalize=False
    )
    generator, formula = random.Random(7), SplitTiles(longest, tile, 169)
    for _ in range(30):
        width, height = generator.randint(1, widest), generator.randint(1, highest)
        cut = images(images=[Image.new("RGB", (width, height))], return_row_col_info=True)
        assert formula.tiles(width, height) == (cut["cols"][0][0], cut["rows"][0][0]), (width, height)


@pytest.mark.parametrize("budget", MENU)
def test_gemma4_at_every_budget_on_its_menu(budget: int) -> None:
    size = _module("gemma4.image_processing_pil_gemma4").get_aspect_ratio_preserving_size
    formula = replace(Gemma4(), max_soft_tokens=budget)
    for width, height in _sizes(300):
        h, w = size(height, width, 16, budget * 9, 3)
        assert formula.tokens(width, height) == h * w // 48**2 <= budget


def test_gemma4_refuses_a_budget_that_is_not_on_its_menu() -> None:
    with pytest.raises(BadInput, match="70, 140, 280, 560, 1120.*not 256"):
        Gemma4(256)


@given(st.integers(1, 2304), st.integers(1, 2304))
def test_an_image_that_fits_takes_the_canvas_that_covers_it(width: int, height: int) -> None:
    """The shortcut that ladders use."""
    assert AnyRes().covering(width, height) == AnyRes().canvas(width, height)
