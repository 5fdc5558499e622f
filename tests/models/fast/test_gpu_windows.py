"""On a real GPU: RoPE and window attention in one kernel are as close to the truth as in two steps.

python -m pytest tests/models/fast/test_gpu_windows.py          # one CUDA GPU; skips without
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from tests.models.tiny import image_processor, picture, tiny
from torch import Tensor

from stakes.models.fast import torch_ops
from stakes.models.fast.cuda_graphs import CudaGraphs
from stakes.models.fast.torch_ops import Segments
from stakes.models.fast.vision_packed import PackedEncoder

DEVICE = torch.device("cuda")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
pytest.importorskip("triton")
PAGE = [64] * 54 + [48] * 9  # windows of a page of 54 x 72 patches
KINDS = [torch.bfloat16, torch.float16]


def relative_error(found: Tensor, truth: Tensor) -> float:
    """By norm."""
    return float((found.double() - truth.double()).norm() / truth.double().norm())


def random_windows(
    lengths: list[int], heads: int, width: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Segments]:
    """Queries, keys and values as a matrix product leaves them, rotary factors of random angles, and segments."""
    torch.manual_seed(0)
    count = sum(lengths)
    qkv = torch.randn(count, 3, heads, width, device=DEVICE, dtype=dtype)
    angles = 60 * torch.rand(count, width, device=DEVICE)
    return qkv, angles.cos(), angles.sin(), Segments.of(lengths, DEVICE)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(("heads", "width"), [(16, 80), (3, 64), (2, 16), (5, 72), (4, 128)])
@pytest.mark.parametrize("lengths", [PAGE, [1], [4, 4], [16] * 5, [36, 64, 1, 48, 16, 4], [32] * 3 + [8]])
@torch.inference_mode()
def test_one_kernel_is_as_close_to_the_truth_as_two_steps(
    lengths: list[int], heads: int, width: int, dtype: torch.dtype
) -> None:
    from stakes.models.fast import triton_ops
    from stakes.models.fast.triton_attention import window_attention

    qkv, cos, sin, segments = random_windows(lengths, heads, width, dtype)
    scale = width**-0.5
    truth = torch_ops.rope_attention(qkv.double(), cos.double(), sin.double(), segments, scale)
    query, key = triton_ops.apply_rope(qkv[:, :2].flatten(1, 2), cos, sin).chunk(2, 1)
    two_steps = torch_ops.varlen_attention(query, key, qkv[:, 2], segments, scale, False)
    out = triton_ops.rope_attention(qkv, cos, sin, segments, scale)
    assert torch.equal(out, window_attention(qkv, cos, sin, segments, scale)), "not by the kernel"
    assert relative_error(out, truth) <= 1.2 * relative_error(two_steps, truth)


@torch.inference_mode()
def test_offsets_beyond_32_bits_are_right() -> None:
    """The last window begins 2^31 numbers into the batch."""
    from stakes.models.fast.triton_attention import window_attention

    count = 64 * (2**31 // (64 * 3840) + 2)
    if torch.cuda.mem_get_info()[0] < 4 * 3840 * count:
        pytest.skip("needs 9 GB")
    qkv = torch.zeros(count, 3, 16, 80, device=DEVICE, dtype=torch.bfloat16)
    last, cos, sin, one = random_windows([64], 16, 80, torch.bfloat16)
    qkv[-64:] = last
    all_cos, all_sin = (torch.zeros(count, 80, device=DEVICE) for _ in range(2))
    all_cos[-64:], all_sin[-64:] = cos, sin
    out = window_attention(qkv, all_cos, all_sin, Segments.of([64] * (count // 64), DEVICE), 80**-0.5)
    assert torch.equal(out[-64:], window_attention(last, cos, sin, one, 80**-0.5))
    assert not out[:-64].any()


@torch.inference_mode()
def test_a_captured_kernel_reads_the_current_values() -> None:
    from stakes.models.fast import triton_ops

    qkv, cos, sin, segments = random_windows(PAGE, 16, 80, torch.bfloat16)
    graphs = CudaGraphs(DEVICE)

    def work() -> Tensor:
        return triton_ops.rope_attention(qkv, cos, sin, segments, 80**-0.5)

    for call in range(4):
        qkv.copy_(torch.randn(qkv.shape, device=DEVICE))
        out = graphs("windows", work).clone()
        assert torch.equal(out, work()), call
    assert len(graphs._graphs) == 1


@pytest.mark.parametrize("count", [1, 4])
@torch.inference_mode()
def test_the_encoder_is_as_close_to_the_truth_as_the_stock_one(count: int) -> None:
    from stakes.models.fast import triton_ops

    pages = [picture(*size, seed=i) for i, size in enumerate([(150, 120), (260, 130), (64, 300), (224, 224)][:count])]
    inputs = image_processor("qwen2_5_vl")(images=pages, return_tensors="pt")
    pixels, grid = inputs["pixel_values"].to(DEVICE), inputs["image_grid_thw"].to(DEVICE)
    model = deepcopy(tiny("qwen2_5_vl").model).to(DEVICE)

    def cast(dtype: torch.dtype) -> Any:
        one = deepcopy(model).to(dtype).model
        one.visual.rotary_pos_emb.inv_freq = model.model.visual.rotary_pos_emb.inv_freq  # as it is loaded
        return one

    def stock(dtype: torch.dtype) -> Tensor:
        encoded = cast(dtype).get_image_features(pixels.to(dtype), grid, return_dict=True)
        return torch.cat(encoded.pooler_output)

    truth, in_16_bits = stock(torch.float64), stock(torch.bfloat16)
    encoder = PackedEncoder(cast(torch.bfloat16).visual, triton_ops)
    shapes: Any = [tuple(row) for row in grid.tolist()]
    for _ in range(3):  # the second call is captured, the third replayed
        assert relative_error(encoder(pixels.bfloat16(), shapes), truth) <= 1.5 * relative_error(in_16_bits, truth)
