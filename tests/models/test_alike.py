"""Whole images of one size may go to cuDNN's attention: which do, and what a cuDNN that fails comes to."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from stakes.models.fast import torch_ops as plain_ops

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.mark.parametrize(
    ("lengths", "dtype", "device", "causal", "expected"),
    [
        ([3888] * 32, BF16, CUDA, False, True),
        ([3888] * 5, FP16, CUDA, False, True),
        ([3888] * 4, FP16, CUDA, False, False),  # so few that they are recorded
        ([512] * 33, BF16, CUDA, False, True),
        ([512] * 32, BF16, CUDA, False, False),
        ([511] * 99, BF16, CUDA, False, False),  # as short as windows
        ([64] * 600, BF16, CUDA, False, False),
        ([3888] * 8 + [3884], BF16, CUDA, False, False),
        ([3884] + [3888] * 8, BF16, CUDA, False, False),
        ([3888] * 8, FP32, CUDA, False, False),
        ([3888] * 8, BF16, CPU, False, False),
        ([3888] * 8, BF16, CUDA, True, False),  # prompts, whose record is replayed with other lengths
    ],
)
def test_long_images_of_one_size_in_16_bits_on_a_gpu_are_alike(
    lengths: list[int], dtype: torch.dtype, device: torch.device, causal: bool, expected: bool
) -> None:
    assert plain_ops.are_alike(lengths, dtype, device, causal) is expected


def test_a_shape_is_planned_for_when_it_has_come_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_ops, "_come", Counter())
    monkeypatch.setattr(plain_ops, "SHAPES", 4)
    came = [plain_ops.comes_again(32, 3888) for _ in range(plain_ops.AGAIN + 2)]
    assert came == [False] * plain_ops.AGAIN + [True] * 2
    assert not plain_ops.comes_again(32, 3884)
    for size in range(100):
        assert not plain_ops.comes_again(32, size)
        assert len(plain_ops._come) <= 4


def three(count: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """[count * size, 2, 8] queries, keys and values as the encoder has them: parts of a heap."""
    torch.manual_seed(0)
    turned, states = torch.randn(count * size, 4, 8), torch.randn(count * size, 3, 2, 8)
    return turned[:, :2], turned[:, 2:], states[:, 2]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked before cuDNN says yes; its kernel itself cannot run on a CPU, and so fails."""
    monkeypatch.setattr(plain_ops, "_refused", [])
    monkeypatch.setattr(plain_ops, "can_use_cudnn_attention", lambda _: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))


@pytest.mark.usefixtures("gpu")
def test_a_cudnn_that_fails_is_not_asked_again() -> None:
    with pytest.warns(UserWarning, match="cuDNN's attention fails, flash attention takes its place: "):
        assert plain_ops.attend_alike(*three(2, 8), 2, 0.3) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plain_ops.attend_alike(*three(2, 8), 2, 0.3) is None
    assert len(plain_ops._refused) == 1


@pytest.mark.usefixtures("gpu")
def test_images_that_are_alike_are_seen_apart_and_copied_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = three(3, 8)
    seen: list[int] = []

    def kernel(q: Tensor, k: Tensor, v: Tensor, *_: Any, scale: float) -> tuple[Tensor]:
        """In place of cuDNN's, by its contract: [B, heads, n, h] three times."""
        seen.extend(x.data_ptr() for x in (q, k, v))
        return (scaled_dot_product_attention(q, k, v, scale=scale),)

    with monkeypatch.context() as patch:
        patch.setattr(torch.ops.aten, "_scaled_dot_product_cudnn_attention", kernel)
        found = plain_ops.attend_alike(*heap, 3, 0.3)
    expected = plain_ops.attend_packed(*heap, torch.tensor([0, 8, 16, 24]), [8] * 3, 8, 0.3, False)
    torch.testing.assert_close(found, expected)
    assert seen == [x.data_ptr() for x in heap]


@pytest.mark.usefixtures("gpu")
def test_memory_that_runs_out_is_no_reason_to_give_cudnn_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_cudnn_attention", full)
    with pytest.raises(torch.OutOfMemoryError):
        plain_ops.attend_alike(*three(2, 8), 2, 0.3)
    assert not plain_ops._refused
