"""Which tokens are blank, from their pixels, and which of them fill up a budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.tiny import image_processor

from stakes.vision.deletion.blank import InkFilter, blank_tokens, byte_range, nearest_to_ink, value_range

SIDE = 28


def paper(level: int = 250) -> Any:
    """3 x 4 tokens of one level."""
    return np.full((3 * SIDE, 4 * SIDE, 3), level, np.uint8)


def blank(page: Any, tolerance: int = 8) -> list[int]:
    return [int(i) for i in blank_tokens(*byte_range(page, SIDE), tolerance).nonzero()[0]]


def test_one_dark_pixel_in_one_channel_is_ink() -> None:
    page = paper()
    assert blank(page) == list(range(12))
    page[SIDE + 27, 2 * SIDE, 1] = 241
    assert blank(page) == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert blank(page, tolerance=9) == list(range(12))


def test_a_solid_box_is_not_background() -> None:
    page = paper()
    page[:SIDE, : 2 * SIDE] = (200, 30, 30)
    assert blank(page) == list(range(2, 12))


def test_dark_paper_and_noise_within_the_tolerance_are_background() -> None:
    noise = np.random.default_rng(0).integers(0, 9, (3 * SIDE, 4 * SIDE, 3), dtype=np.uint8)
    assert blank(paper(20) + noise) == list(range(12))
    assert blank(paper(20) + 2 * noise) == []


def test_the_patches_of_a_processor_have_the_levels_of_their_pixels() -> None:
    processor = image_processor("qwen2_5_vl")
    from PIL import Image

    page = np.random.default_rng(1).integers(0, 256, (3 * SIDE, 4 * SIDE, 3), dtype=np.uint8)
    values = processor(images=[Image.fromarray(page)], return_tensors="pt")["pixel_values"]
    for found, expected in zip(
        value_range(values, 4, processor.image_mean, processor.image_std), byte_range(page, SIDE), strict=True
    ):
        assert np.array_equal(found, expected)


def test_blank_tokens_fill_up_from_the_ink_outwards() -> None:
    blank = np.ones(20, np.bool_)
    blank[[7, 11]] = False  # of 4 rows of 5: (1, 2) and (2, 1)
    order = nearest_to_ink(blank, 5).tolist()
    assert order[:2] == [7, 11]
    assert sorted(order[2:8]) == [2, 6, 8, 10, 12, 16]
    assert order[-1] == 19
    assert sorted(order) == list(range(20))
    assert nearest_to_ink(np.ones(6, np.bool_), 3).tolist() == list(range(6))


@given(st.integers(0, 60), st.integers(1, 60), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_the_encoder_reads_all_ink_and_at_least_the_budget(ink: int, budget: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = np.full((60, 3), 255)
    inked = rng.choice(60, ink, replace=False)
    low[inked] = 10
    kept = InkFilter(8, budget).keep(low, np.full((60, 3), 255), 10)
    tokens = torch.arange(60) if kept.tokens is None else kept.tokens
    assert len(tokens) == max(ink, budget)
    assert tokens.tolist() == sorted(set(tokens.tolist()))
    assert set(inked.tolist()) <= set(tokens.tolist())
    assert kept.ink == ink
    assert (kept.tokens is None) == (max(ink, budget) == 60)


@pytest.mark.parametrize("budget", [1, 7, 12])
def test_a_blank_page_still_has_its_budget(budget: int) -> None:
    kept = InkFilter(0, budget).keep(*byte_range(paper(), SIDE), 4)
    assert kept.ink == 0
    assert (12 if kept.tokens is None else len(kept.tokens)) == budget
