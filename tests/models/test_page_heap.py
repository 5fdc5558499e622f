"""Pages of one size become patches together: the same numbers as one by one, in the order in which they were given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.models.recorded import fresh
from tests.models.tiny import picture

from stakes.models import Request
from stakes.models.fast.patches import Patches
from stakes.models.local.qwen_vl import QwenVL, runs, stacked

SIZES = [(112, 84), (112, 84), (84, 112), (112, 84), (150, 120), (84, 112)]  # 150 x 120: the processor resizes it


def model() -> QwenVL:
    made = fresh("qwen2_5_vl", fast=True)
    assert isinstance(made, QwenVL)
    return made


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("sizes", [SIZES, SIZES[:2], SIZES[4:5], [SIZES[0], *SIZES[2:4]]])
def test_a_heap_is_its_pages_one_by_one_bit_for_bit(sizes: list[tuple[int, int]], given: bool) -> None:
    one = model()
    pages = [picture(*size, seed=i) for i, size in enumerate(sizes)]
    alone = [one._pixels(page, False, (150, 120) not in sizes) for page in pages]  # two frames where one page has two
    heap, grid = one.heap(pages, [False] * len(pages), [np.asarray(page) for page in pages] if given else ())
    assert grid == [shape for _, shape in alone]
    assert torch.equal(heap, torch.cat([values for values, _ in alone]))


def test_neighbours_of_one_size_go_together_and_others_alone() -> None:
    pages = [picture(*size, seed=i) for i, size in enumerate(SIZES)]
    found = list(runs(model().processor.patches, pages, [False] * 6))
    assert [len(images) for images, _ in found] == [2, 1, 1, 1, 1]
    assert [len(pixels) for _, pixels in found] == [2, 1, 1, 0, 1]
    assert [image for images, _ in found for image in images] == pages
    assert [len(pixels) for _, pixels in runs(None, pages, [False] * 6)] == [0] * 6


def test_the_pixels_that_are_given_are_the_ones_that_are_seen() -> None:
    """An image that was opened already is not read again."""
    one, page = model(), picture(112, 84)
    black = np.zeros((84, 112, 3), np.uint8)
    expected = one.processor.patches
    assert expected is not None
    heap, _ = one.heap([page], [False], [black])
    assert torch.equal(heap, expected.of_stack(torch.from_numpy(black)[None]))
    assert not torch.equal(heap, one.heap([page], [False])[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_table_of_16_bits_holds_the_float32_numbers_cast(dtype: torch.dtype) -> None:
    """``vision_fast.embed`` casts pixels to the kernel's type before it multiplies, so nothing else may change."""
    patches = model().processor.patches
    assert patches is not None
    stack = stacked([np.asarray(picture(112, 84, seed)) for seed in range(3)], torch.device("cpu"))
    whole = patches.of_stack(stack)
    assert torch.equal(patches.of_stack(stack, dtype), whole.to(dtype))
    assert not torch.equal(whole.to(dtype).float(), whole)


def test_a_call_looks_up_each_size_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks: list[tuple[int, ...]] = []
    real = Patches.of_stack

    def noted(self: Patches, pixels: torch.Tensor, *more: Any) -> torch.Tensor:
        stacks.append(tuple(pixels.shape))
        return real(self, pixels, *more)

    one = model()
    assert one.processor.patches is not None  # learning it looks up a page of its own
    monkeypatch.setattr(Patches, "of_stack", noted)
    pages = [picture(*((112, 84), (84, 112))[i % 2], seed=i) for i in range(6)]
    answers = one.answer([Request(page, "What?") for page in pages])
    assert sorted(stacks) == [(3, 84, 112, 3), (3, 112, 84, 3)]
    again = model()
    assert [one.text for one in answers] == [again.answer([Request(page, "What?")])[0].text for page in pages]
