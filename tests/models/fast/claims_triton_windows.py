"""Run by ``test_triton_windows`` in Triton's interpreter: window attention against ``torch_ops``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.models.tiny import image_processor, picture, tiny
from torch import Tensor

from stakes.models.fast import torch_ops, triton_ops
from stakes.models.fast.torch_ops import Segments
from stakes.models.fast.triton_attention import WindowLaunch, supports_window_attention, window_attention
from stakes.models.fast.vision_packed import PackedEncoder

CPU = torch.device("cpu")
WINDOWS = [[1], [4], [16], [36], [64], [64, 48, 64, 36, 1, 16, 4], [3, 0, 17]]


def random_windows(
    lengths: list[int], heads: int, width: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Segments]:
    """Queries, keys and values, rotary factors that differ from half to half, and segments."""
    torch.manual_seed(0)
    count = sum(lengths)
    cos, sin = torch.randn(count, width), torch.randn(count, width)
    return torch.randn(count, 3, heads, width, dtype=dtype), cos, sin, Segments.of(lengths, CPU)


def relative_error(found: Tensor, truth: Tensor) -> float:
    """Relative to the largest value."""
    assert found.shape == truth.shape
    return float((found.double() - truth.double()).abs().max() / truth.double().abs().max())


@pytest.mark.parametrize("lengths", WINDOWS)
@pytest.mark.parametrize(("heads", "width"), [(4, 80), (3, 64), (2, 16), (2, 72)])
def test_rope_and_attention_within_windows(heads: int, width: int, lengths: list[int]) -> None:
    """In float32, where no rounding hides a wrong channel: 80 of the 7B model, 64 of the embedded reader."""
    qkv, cos, sin, segments = random_windows(lengths, heads, width, torch.float32)
    truth = torch_ops.rope_attention(qkv.double(), cos.double(), sin.double(), segments, width**-0.5)
    assert relative_error(window_attention(qkv, cos, sin, segments, width**-0.5), truth) < 1e-5


@pytest.mark.parametrize("together", [1, 2, 4, 16])
def test_any_number_of_heads_per_program(together: int) -> None:
    qkv, cos, sin, segments = random_windows([5, 12], 6, 80, torch.float32)
    expected = torch_ops.rope_attention(qkv, cos, sin, segments, 0.1)
    assert relative_error(window_attention(qkv, cos, sin, segments, 0.1, WindowLaunch(heads=together)), expected) < 1e-5


def test_in_16_bits_it_is_as_close_to_the_truth_as_two_steps() -> None:
    """In float16: the interpreter multiplies no bfloat16, which ``test_gpu_windows`` tests."""
    qkv, cos, sin, segments = random_windows([64, 36, 48], 2, 80, torch.float16)
    truth = torch_ops.rope_attention(qkv.double(), cos.double(), sin.double(), segments, 80**-0.5)
    two_steps = relative_error(torch_ops.rope_attention(qkv, cos, sin, segments, 80**-0.5), truth)
    assert relative_error(window_attention(qkv, cos, sin, segments, 80**-0.5), truth) <= 1.5 * two_steps


def test_queries_and_keys_are_rounded_as_in_a_step_of_their_own() -> None:
    """Keys that differ after rounding alone: scores so steep that each row sees its best key and nothing else."""
    qkv, cos, sin, segments = random_windows([64], 2, 80, torch.float16)
    rotated = torch_ops.apply_rope(qkv[:, :2].flatten(1, 2), cos, sin)
    query, key = (x.float().transpose(0, 1) for x in rotated.chunk(2, 1))
    best = (query @ key.transpose(1, 2)).argmax(-1)  # [heads, S]
    expected = torch.stack([qkv[best[i], 2, i] for i in range(2)], 1)
    assert torch.equal(window_attention(qkv, cos, sin, segments, 1e4), expected)


@pytest.mark.parametrize(
    ("dtype", "factors", "cuda", "max_seqlen", "expected"),
    [
        (torch.bfloat16, torch.float32, True, 64, True),
        (torch.float16, torch.float32, True, 1, True),
        (torch.bfloat16, torch.float32, True, 65, False),  # whole images
        (torch.float32, torch.float32, True, 64, False),  # whose products would be rounded to tf32
        (torch.bfloat16, torch.bfloat16, True, 64, False),  # factors with which every product is rounded
        (torch.bfloat16, torch.float32, False, 64, False),
    ],
)
def test_short_windows_in_16_bits_on_a_gpu_use_the_kernel(
    dtype: torch.dtype, factors: torch.dtype, cuda: bool, max_seqlen: int, expected: bool
) -> None:
    qkv: Any = SimpleNamespace(dtype=dtype, is_cuda=cuda)
    cos: Any = SimpleNamespace(dtype=factors)
    assert supports_window_attention(qkv, cos, max_seqlen) is expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.version, "hip", "6.4")
        assert supports_window_attention(qkv, cos, max_seqlen) is False


def test_longer_sequences_take_two_steps() -> None:
    qkv, cos, sin, segments = random_windows([70, 9], 2, 16, torch.float32)
    expected = torch_ops.rope_attention(qkv, cos, sin, segments, 0.25)
    assert relative_error(triton_ops.rope_attention(qkv, cos, sin, segments, 0.25), expected) < 1e-5


@torch.inference_mode()
def test_an_encoder_with_the_kernel_has_the_same_features() -> None:
    visual = tiny("qwen2_5_vl").model.model.visual
    calls = []

    def attention(qkv: Any, cos: Any, sin: Any, segments: Segments, scale: float) -> Any:
        if segments.max_seqlen > 64:
            return torch_ops.rope_attention(qkv, cos, sin, segments, scale)
        calls.append(segments.max_seqlen)
        return window_attention(qkv, cos, sin, segments, scale)

    inputs = image_processor("qwen2_5_vl")(images=[picture(260, 130)], return_tensors="pt")
    pixels, grid = inputs["pixel_values"], [tuple(row) for row in inputs["image_grid_thw"].tolist()]
    ops = SimpleNamespace(**{**vars(torch_ops), "rope_attention": attention})
    expected = PackedEncoder(visual)(pixels, grid)
    assert relative_error(PackedEncoder(visual, ops)(pixels, grid), expected) < 1e-5
    assert calls == [16, 16], "two of three blocks have windows"
