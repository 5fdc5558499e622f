"""Pages of one size become patches together: the same numbers as one by one, in the given order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.models.fast.captured import fresh
from tests.models.tiny import picture

from stakes.models import Request
from stakes.models.fast.patches import PatchTable
from stakes.models.local.image_cache import PagePixels
from stakes.models.local.qwen_vl import QwenVL, same_size_runs, upload_pages

SIZES = [(112, 84), (112, 84), (84, 112), (112, 84), (150, 120), (84, 112)]  # 150 x 120: the processor resizes it


def model() -> QwenVL:
    made = fresh("qwen2_5_vl", fast=True)
    assert isinstance(made, QwenVL)
    return made


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("sizes", [SIZES, SIZES[:2], SIZES[4:5], [SIZES[0], *SIZES[2:4]]])
def test_packed_patches_equal_those_of_each_page_bit_for_bit(sizes: list[tuple[int, int]], given: bool) -> None:
    one = model()
    pages = [picture(*size, seed=i) for i, size in enumerate(sizes)]
    alone = [one._pixels(page, False, (150, 120) not in sizes) for page in pages]  # two frames where one page has two
    given_pixels = [PagePixels(np.asarray(page)) for page in pages] if given else ()
    patches, grid, _ = one.pack_patches(pages, [False] * len(pages), given_pixels)
    assert grid == [shape for _, shape in alone]
    assert torch.equal(patches, torch.cat([values for values, _ in alone]))


def test_neighbors_of_one_size_are_one_run() -> None:
    pages = [picture(*size, seed=i) for i, size in enumerate(SIZES)]
    runs = list(same_size_runs(model().processor.patch_table, pages, [False] * 6))
    assert [len(images) for images, _ in runs] == [2, 1, 1, 1, 1]
    assert [len(pixels) for _, pixels in runs] == [2, 1, 1, 0, 1]
    assert [image for images, _ in runs for image in images] == pages
    assert [len(pixels) for _, pixels in same_size_runs(None, pages, [False] * 6)] == [0] * 6


def test_given_pixels_are_used() -> None:
    """An image that was opened already is not read again."""
    one, page = model(), picture(112, 84)
    black = np.zeros((84, 112, 3), np.uint8)
    table = one.processor.patch_table
    assert table is not None
    patches = one.pack_patches([page], [False], [PagePixels(black)]).patches
    assert torch.equal(patches, table.patchify_stack(torch.from_numpy(black)[None]))
    assert not torch.equal(patches, one.pack_patches([page], [False])[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_table_of_16_bits_holds_the_float32_numbers_cast(dtype: torch.dtype) -> None:
    """``vision_encoder.embed_patches`` casts pixels to the kernel's type before it multiplies them."""
    table = model().processor.patch_table
    assert table is not None
    stack = upload_pages([PagePixels(np.asarray(picture(112, 84, seed))) for seed in range(3)], torch.device("cpu"))
    whole = table.patchify_stack(stack)
    assert torch.equal(table.patchify_stack(stack, dtype), whole.to(dtype))
    assert not torch.equal(whole.to(dtype).float(), whole)


def test_a_call_looks_up_each_size_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks: list[tuple[int, ...]] = []
    real = PatchTable.patchify_stack

    def spy(self: PatchTable, pixels: torch.Tensor, *more: Any) -> torch.Tensor:
        stacks.append(tuple(pixels.shape))
        return real(self, pixels, *more)

    one = model()
    assert one.processor.patch_table is not None  # learning it looks up a page of its own
    monkeypatch.setattr(PatchTable, "patchify_stack", spy)
    pages = [picture(*((112, 84), (84, 112))[i % 2], seed=i) for i in range(6)]
    answers = one.answer([Request(page, "What?") for page in pages])
    assert sorted(stacks) == [(3, 84, 112, 3), (3, 112, 84, 3)]
    again = model()
    assert [one.text for one in answers] == [again.answer([Request(page, "What?")])[0].text for page in pages]
