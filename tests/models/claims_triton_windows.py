"""What ``test_triton_windows`` runs in Triton's interpreter: windows beside ``plain_ops``, and who takes the kernel."""

from __future__ import annotations

from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.models.tiny import image_processor, picture, tiny
from torch import Tensor

from stakes.models.fast import torch_ops as plain
from stakes.models.fast import triton_ops as fast
from stakes.models.fast.triton_attention import Shape, attend_windows, takes_windows
from stakes.models.fast.vision_packed import PackedEncoder

WINDOWS = [[1], [4], [16], [36], [64], [64, 48, 64, 36, 1, 16, 4], [3, 0, 17]]


def drawn(lengths: list[int], heads: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States, angles that differ from half to half, and ends."""
    torch.manual_seed(0)
    count = sum(lengths)
    ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
    return torch.randn(count, 3, heads, width, dtype=dtype), torch.randn(count, width), torch.randn(count, width), ends


def far(found: Tensor, truth: Tensor) -> float:
    """Relative to the largest."""
    assert found.shape == truth.shape
    return float((found.double() - truth.double()).abs().max() / truth.double().abs().max())


@pytest.mark.parametrize("lengths", WINDOWS)
@pytest.mark.parametrize(("heads", "width"), [(4, 80), (3, 64), (2, 16), (2, 72)])
def test_a_window_sees_itself_turned(heads: int, width: int, lengths: list[int]) -> None:
    """In float32, where no rounding hides a wrong channel: 80 of the 7B model, 64 of the embedded reader."""
    states, cos, sin, ends = drawn(lengths, heads, width, torch.float32)
    truth = plain.attend_turned(states.double(), cos.double(), sin.double(), ends, lengths, max(lengths), width**-0.5)
    assert far(attend_windows(states, cos, sin, ends, max(lengths), width**-0.5), truth) < 1e-5


@pytest.mark.parametrize("together", [1, 2, 4, 16])
def test_heads_come_one_after_another_however_many_a_program_has(together: int) -> None:
    states, cos, sin, ends = drawn([5, 12], 6, 80, torch.float32)
    expected = plain.attend_turned(states, cos, sin, ends, [5, 12], 12, 0.1)
    assert far(attend_windows(states, cos, sin, ends, 12, 0.1, Shape(heads=together)), expected) < 1e-5


def test_in_16_bits_it_is_as_near_to_the_truth_as_turning_and_attending() -> None:
    """In float16: the interpreter multiplies no bfloat16, with which ``test_gpu_windows`` asks the same."""
    lengths = [64, 36, 48]
    states, cos, sin, ends = drawn(lengths, 2, 80, torch.float16)
    truth = plain.attend_turned(states.double(), cos.double(), sin.double(), ends, lengths, 64, 80**-0.5)
    theirs = far(plain.attend_turned(states, cos, sin, ends, lengths, 64, 80**-0.5), truth)
    assert far(attend_windows(states, cos, sin, ends, 64, 80**-0.5), truth) <= 1.5 * theirs


def test_queries_and_keys_are_rounded_as_when_they_are_turned_alone() -> None:
    """Keys that differ after rounding alone: scores so steep that each row sees its best key and nothing else."""
    states, cos, sin, ends = drawn([64], 2, 80, torch.float16)
    turned = plain.turn(states[:, :2].flatten(1, 2), cos, sin)
    query, key = (x.float().transpose(0, 1) for x in turned.chunk(2, 1))
    best = (query @ key.transpose(1, 2)).argmax(-1)  # [heads, S]
    expected = torch.stack([states[best[i], 2, i] for i in range(2)], 1)
    assert torch.equal(attend_windows(states, cos, sin, ends, 64, 1e4), expected)


@pytest.mark.parametrize(
    ("dtype", "angles", "cuda", "longest", "expected"),
    [
        (torch.bfloat16, torch.float32, True, 64, True),
        (torch.float16, torch.float32, True, 1, True),
        (torch.bfloat16, torch.float32, True, 65, False),  # whole images
        (torch.float32, torch.float32, True, 64, False),  # whose products would be rounded to tf32
        (torch.bfloat16, torch.bfloat16, True, 64, False),  # angles by which every product is rounded
        (torch.bfloat16, torch.float32, False, 64, False),
    ],
)
def test_short_windows_in_16_bits_on_a_gpu_take_the_kernel(
    dtype: torch.dtype, angles: torch.dtype, cuda: bool, longest: int, expected: bool
) -> None:
    states: Any = SimpleNamespace(dtype=dtype, is_cuda=cuda)
    cos: Any = SimpleNamespace(dtype=angles)
    assert takes_windows(states, cos, longest) is expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.version, "hip", "6.4")
        assert takes_windows(states, cos, longest) is False


def test_what_the_kernel_does_not_take_is_turned_and_attended() -> None:
    states, cos, sin, ends = drawn([70, 9], 2, 16, torch.float32)
    expected = plain.attend_turned(states, cos, sin, ends, [70, 9], 70, 0.25)
    assert far(fast.attend_turned(states, cos, sin, ends, [70, 9], 70, 0.25), expected) < 1e-5


@torch.inference_mode()
def test_an_encoder_with_the_kernel_has_the_plain_ones_features() -> None:
    visual = tiny("qwen2_5_vl").model.model.visual
    calls = []

    def windows(states: Any, cos: Any, sin: Any, ends: Any, lengths: Any, longest: int, scale: float) -> Any:
        if longest > 64:
            return plain.attend_turned(states, cos, sin, ends, lengths, longest, scale)
        calls.append(longest)
        return attend_windows(states, cos, sin, ends, longest, scale)

    inputs = image_processor("qwen2_5_vl")(images=[picture(260, 130)], return_tensors="pt")
    pixels, grid = inputs["pixel_values"], [tuple(row) for row in inputs["image_grid_thw"].tolist()]
    ops = SimpleNamespace(**{**vars(plain), "attend_turned": windows})
    expected = PackedEncoder(visual)(pixels, grid)
    assert far(PackedEncoder(visual, ops)(pixels, grid), expected) < 1e-5
    assert calls == [16, 16], "two of three blocks have windows"
