"""On a real GPU: windows of patches in one kernel are as near to the truth as turned first and then attended.

python -m pytest tests/models/test_gpu_windows.py          # one CUDA GPU; skips without
"""

from __future__ import annotations

from copy import deepcopy
from itertools import accumulate
from typing import Any

import pytest
import torch
from tests.models.tiny import image_processor, picture, tiny
from torch import Tensor

from stakes.models.fast import torch_ops as plain_ops
from stakes.models.fast.cuda_graphs import Graphs
from stakes.models.fast.vision_packed import PackedEncoder

DEVICE = torch.device("cuda")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
pytest.importorskip("triton")
PAGE = [64] * 54 + [48] * 9  # windows of a page of 54 x 72 patches
KINDS = [torch.bfloat16, torch.float16]


def far(found: Tensor, truth: Tensor) -> float:
    """Relative, by norm."""
    return float((found.double() - truth.double()).norm() / truth.double().norm())


def drawn(lengths: list[int], heads: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States as a matrix product leaves them, cosines and sines of random angles, and ends."""
    torch.manual_seed(0)
    count = sum(lengths)
    states = torch.randn(count, 3, heads, width, device=DEVICE, dtype=dtype)
    angles = 60 * torch.rand(count, width, device=DEVICE)
    ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=DEVICE)
    return states, angles.cos(), angles.sin(), ends


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(("heads", "width"), [(16, 80), (3, 64), (2, 16), (5, 72), (4, 128)])
@pytest.mark.parametrize("lengths", [PAGE, [1], [4, 4], [16] * 5, [36, 64, 1, 48, 16, 4], [32] * 3 + [8]])
@torch.inference_mode()
def test_windows_are_as_near_to_the_truth_as_turned_and_attended(
    lengths: list[int], heads: int, width: int, dtype: torch.dtype
) -> None:
    from stakes.models.fast import triton_ops
    from stakes.models.fast.triton_attention import attend_windows

    states, cos, sin, ends = drawn(lengths, heads, width, dtype)
    more: Any = (ends, lengths, max(lengths), width**-0.5)
    truth = plain_ops.attend_turned(states.double(), cos.double(), sin.double(), *more)
    query, key = triton_ops.turn(states[:, :2].flatten(1, 2), cos, sin).chunk(2, 1)
    apart: Any = (*more, False)
    composed = plain_ops.attend_packed(query, key, states[:, 2], *apart)
    found = triton_ops.attend_turned(states, cos, sin, *more)
    assert torch.equal(found, attend_windows(states, cos, sin, ends, max(lengths), width**-0.5)), "not by the kernel"
    assert far(found, truth) <= 1.2 * far(composed, truth)


@torch.inference_mode()
def test_patches_that_32_bits_do_not_count_are_where_they_belong() -> None:
    """The last window begins 2^31 numbers into the heap."""
    from stakes.models.fast.triton_attention import attend_windows

    count = 64 * (2**31 // (64 * 3840) + 2)
    if torch.cuda.mem_get_info()[0] < 4 * 3840 * count:
        pytest.skip("needs 9 GB")
    states = torch.zeros(count, 3, 16, 80, device=DEVICE, dtype=torch.bfloat16)
    last, cos, sin, _ = drawn([64], 16, 80, torch.bfloat16)
    states[-64:] = last
    all_cos, all_sin = (torch.zeros(count, 80, device=DEVICE) for _ in range(2))
    all_cos[-64:], all_sin[-64:] = cos, sin
    ends = torch.arange(0, count + 1, 64, device=DEVICE, dtype=torch.int32)
    found = attend_windows(states, all_cos, all_sin, ends, 64, 80**-0.5)
    expected = attend_windows(last, cos, sin, ends[:2].clone(), 64, 80**-0.5)
    assert torch.equal(found[-64:], expected)
    assert not found[:-64].any()


@torch.inference_mode()
def test_a_recorded_kernel_reads_what_stands_there_now() -> None:
    from stakes.models.fast import triton_ops

    states, cos, sin, ends = drawn(PAGE, 16, 80, torch.bfloat16)
    graphs = Graphs(DEVICE)

    def work() -> Tensor:
        return triton_ops.attend_turned(states, cos, sin, ends, PAGE, 64, 80**-0.5)

    for turn in range(4):
        states.copy_(torch.randn(states.shape, device=DEVICE))
        found = graphs("windows", work).clone()
        assert torch.equal(found, work()), turn
    assert len(graphs._made) == 1


@pytest.mark.parametrize("count", [1, 4])
@torch.inference_mode()
def test_an_encoder_is_as_near_to_the_truth_as_the_stock_one(count: int) -> None:
    from stakes.models.fast import triton_ops

    pages = [picture(*size, seed=i) for i, size in enumerate([(150, 120), (260, 130), (64, 300), (224, 224)][:count])]
    inputs = image_processor("qwen2_5_vl")(images=pages, return_tensors="pt")
    pixels, grid = inputs["pixel_values"].to(DEVICE), inputs["image_grid_thw"].to(DEVICE)
    model = deepcopy(tiny("qwen2_5_vl").model).to(DEVICE)

    def of_kind(dtype: torch.dtype) -> Any:
        one = deepcopy(model).to(dtype).model
        one.visual.rotary_pos_emb.inv_freq = model.model.visual.rotary_pos_emb.inv_freq  # as it is loaded
        return one

    def stock(dtype: torch.dtype) -> Tensor:
        found = of_kind(dtype).get_image_features(pixels.to(dtype), grid, return_dict=True)
        return torch.cat(found.pooler_output)

    truth, theirs = stock(torch.float64), stock(torch.bfloat16)
    ours = PackedEncoder(of_kind(torch.bfloat16).visual, triton_ops)
    shapes: Any = [tuple(row) for row in grid.tolist()]
    for _ in range(3):  # the second time is recorded, the third replayed
        assert far(ours(pixels.bfloat16(), shapes), truth) <= 1.5 * far(theirs, truth)
