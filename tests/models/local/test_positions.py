"""Positions of a prompt with images are those of stock ``get_rope_index``."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.tiny import tiny

from stakes.models.local.qwen_vl import rope_positions

SIDES = st.integers(1, 12).map(lambda n: 2 * n)
IMAGES = st.lists(st.tuples(st.integers(1, 5), SIDES, SIDES), min_size=1, max_size=4)  # text before, rows, columns


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
@settings(max_examples=30, deadline=None)
@given(images=IMAGES, after=st.integers(0, 5))
def test_positions_are_those_of_stock(family: str, images: list[tuple[int, int, int]], after: int) -> None:
    model: Any = tiny(family)
    token = model.processor.image_token_id
    grid = [(1, rows, columns) for _, rows, columns in images]
    parts = [[1] * text + [token] * (rows * columns // 4) for text, rows, columns in images]
    ids = torch.tensor([one for part in parts for one in part] + [1] * after)
    kinds = (ids == token).int()[None]
    stock, _ = model.model.model.get_rope_index(ids[None], mm_token_type_ids=kinds, image_grid_thw=torch.tensor(grid))
    assert np.array_equal(rope_positions((ids == token).numpy(), grid, 2), stock[:, 0].numpy())
