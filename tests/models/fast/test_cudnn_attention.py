"""Whole images of one size may use cuDNN's attention: which do, and what happens when cuDNN fails."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from stakes.models.fast import torch_ops

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.mark.parametrize(
    ("lengths", "dtype", "device", "causal", "expected"),
    [
        ([3888] * 32, BF16, CUDA, False, True),
        ([3888] * 5, FP16, CUDA, False, True),
        ([3888] * 4, FP16, CUDA, False, False),  # so few that they are captured
        ([512] * 33, BF16, CUDA, False, True),
        ([512] * 32, BF16, CUDA, False, False),
        ([511] * 99, BF16, CUDA, False, False),  # as short as windows
        ([64] * 600, BF16, CUDA, False, False),
        ([3888] * 8 + [3884], BF16, CUDA, False, False),
        ([3884] + [3888] * 8, BF16, CUDA, False, False),
        ([3888] * 8, FP32, CUDA, False, False),
        ([3888] * 8, BF16, CPU, False, False),
        ([3888] * 8, BF16, CUDA, True, False),  # prompts, whose graph is replayed with other lengths
    ],
)
def test_many_long_images_of_one_size_in_16_bits_on_a_gpu_are_uniform(
    lengths: list[int], dtype: torch.dtype, device: torch.device, causal: bool, expected: bool
) -> None:
    assert torch_ops.is_uniform(lengths, dtype, device, causal) is expected


def test_a_shape_recurs_after_some_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_ops, "_shape_counts", Counter())
    monkeypatch.setattr(torch_ops, "MAX_SHAPES", 4)
    recurring = [torch_ops.is_recurring(32, 3888) for _ in range(torch_ops.CUDNN_AFTER + 2)]
    assert recurring == [False] * torch_ops.CUDNN_AFTER + [True] * 2
    assert not torch_ops.is_recurring(32, 3884)
    for size in range(100):
        assert not torch_ops.is_recurring(32, size)
        assert len(torch_ops._shape_counts) <= 4


def three(count: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """[count * size, 2, 8] queries, keys and values as the encoder has them: views of larger tensors."""
    torch.manual_seed(0)
    rotated, qkv = torch.randn(count * size, 4, 8), torch.randn(count * size, 3, 2, 8)
    return rotated[:, :2], rotated[:, 2:], qkv[:, 2]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """All checks before cuDNN pass; its kernel itself cannot run on a CPU, and so fails."""
    monkeypatch.setattr(torch_ops, "_cudnn_errors", [])
    monkeypatch.setattr(torch_ops, "can_use_cudnn_attention", lambda _: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))


@pytest.mark.usefixtures("gpu")
def test_cudnn_is_not_tried_again_after_it_failed() -> None:
    with pytest.warns(UserWarning, match="cuDNN's attention failed; flash attention is used instead: "):
        assert torch_ops.cudnn_attention(*three(2, 8), 2, 0.3) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch_ops.cudnn_attention(*three(2, 8), 2, 0.3) is None
    assert len(torch_ops._cudnn_errors) == 1


@pytest.mark.usefixtures("gpu")
def test_uniform_images_are_separate_sequences_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    qkv = three(3, 8)
    seen: list[int] = []

    def kernel(q: Tensor, k: Tensor, v: Tensor, *_: Any, scale: float) -> tuple[Tensor]:
        """In place of cuDNN's, by its contract: [B, heads, n, h] three times."""
        seen.extend(x.data_ptr() for x in (q, k, v))
        return (scaled_dot_product_attention(q, k, v, scale=scale),)

    with monkeypatch.context() as patch:
        patch.setattr(torch.ops.aten, "_scaled_dot_product_cudnn_attention", kernel)
        out = torch_ops.cudnn_attention(*qkv, 3, 0.3)
    expected = torch_ops.varlen_attention(*qkv, torch_ops.Segments.of([8] * 3, CPU), 0.3, False)
    torch.testing.assert_close(out, expected)
    assert seen == [x.data_ptr() for x in qkv]


@pytest.mark.usefixtures("gpu")
def test_running_out_of_memory_does_not_disable_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_cudnn_attention", full)
    with pytest.raises(torch.OutOfMemoryError):
        torch_ops.cudnn_attention(*three(2, 8), 2, 0.3)
    assert not torch_ops._cudnn_errors
