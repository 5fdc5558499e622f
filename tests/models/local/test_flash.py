"""Flash attention gets no 4-D mask and reads position ids: its calling convention, by a reference in torch.

No flash kernel runs on a CPU. The stand-in follows its contract to the letter (a 2-D mask or none; with none and a
batch of one, a gap in the position ids is the seam between two packed sequences, which here is an error).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.models.tiny import FAMILIES, blank, picture, tiny
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from stakes.models import Request

NAME = "flash_reference"


def reference(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float, **more: Any
) -> tuple[Any, None]:
    positions = more.get("position_ids")
    if attention_mask is None and positions is not None and len(query) == 1 and positions.shape[-1] > 1:
        assert (positions.diff() == 1).all(), "taken for two packed sequences"
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    length, queries = key.shape[2], query.shape[2]
    seen = torch.ones(len(key), length, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    assert seen.shape == (len(key), length)
    column = torch.arange(length)
    row = column[length - queries :, None]
    allowed = (seen[:, None, None] & (column <= row)) | (column == row)
    weights = (query @ key.transpose(2, 3) * scaling).masked_fill(~allowed, float("-inf")).softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), None


@pytest.fixture
def flash() -> Iterator[None]:
    ALL_ATTENTION_FUNCTIONS.register(NAME, reference)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, flash_attention_mask)
    yield
    for table in (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS):
        table._global_mapping.pop(NAME)


@pytest.mark.usefixtures("flash")
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_the_same_under_the_flash_convention(family: str) -> None:
    model = tiny(family)
    config = model.model.model.language_model.config
    requests = [
        Request(picture(150, 120, 1), "What?", 6, "deletion"),
        Request(blank(60, 80), "Who is it?", 3, "deletion", "random"),
        Request(picture(150, 120, 1), "What?", 6, "deletion", "fastv"),
        Request(picture(90, 170, 2), "Where is the total?", 9, "deletion", "fastv"),
    ]
    expected = [answer.text for answer in model.answer(requests)]
    before = config._attn_implementation
    try:
        config._attn_implementation_internal = NAME
        assert config._attn_implementation == NAME
        assert [answer.text for answer in model.answer(requests)] == expected
        assert [model.answer([request])[0].text for request in requests] == expected
    finally:
        config._attn_implementation_internal = before
