"""Run by ``test_triton_ops`` in Triton's interpreter: operations against ``torch_ops``, tokens of tiny models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.fast.captured import fresh, requests
from torch import Tensor
from torch.nn.functional import linear

from stakes.models.fast import torch_ops, triton_ops
from stakes.models.fast.decoder import FastDecoder


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def assert_close(found: Any, expected: Any, error: float = 1e-5) -> None:
    """Relative to the largest value."""
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert float((one - other).abs().max() / other.abs().max()) < error


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float16, 2e-2)])
def test_norms(dtype: torch.dtype, error: float) -> None:
    x, more, weight = (torch.randn(*shape, dtype=dtype) for shape in ((5, 96), (5, 96), (96,)))
    assert_close([triton_ops.norm(x, weight, 1e-6)], [torch_ops.norm(x, weight, 1e-6)], error)
    assert_close(triton_ops.add_norm(x, more, weight, 1e-6), torch_ops.add_norm(x, more, weight, 1e-6), error)
    heads = torch.randn(5, 3, 32, dtype=dtype)
    assert_close([triton_ops.norm(heads, weight[:32], 1e-6)], [torch_ops.norm(heads, weight[:32], 1e-6)], error)


def test_rope_of_a_view() -> None:
    qkv, cos, sin = torch.randn(5, 3, 4, 24), torch.randn(5, 24), torch.randn(5, 24)
    assert_close([triton_ops.apply_rope(qkv[:, 1], cos, sin)], [torch_ops.apply_rope(qkv[:, 1], cos, sin)])


def test_rope_and_write() -> None:
    heads: Any = tuple(x.view(6, -1, 16) for x in torch.split(torch.randn(6, 176), [112, 32, 32], -1))
    rope = torch.randn(6, 16), torch.randn(6, 16)
    where = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([0, 1, 3, 0, 1, 5])
    cache, expected = ((torch.zeros(3, 8, 2, 16), torch.zeros(3, 8, 2, 16)) for _ in range(2))
    assert_close(
        triton_ops.rope_and_write(heads, rope, cache, where), torch_ops.rope_and_write(heads, rope, expected, where)
    )
    assert_close(cache, expected)


def test_swiglu() -> None:
    gate_up = torch.randn(5, 600)
    assert_close([triton_ops.swiglu(gate_up)], [torch_ops.swiglu(gate_up)])


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float16, 2e-2)])
@pytest.mark.parametrize("rows", [1, 3])
def test_decode_attention_in_parts(rows: int, dtype: torch.dtype, error: float) -> None:
    query = torch.randn(rows, 14, 32, dtype=dtype)
    keys, values = (torch.randn(rows + 1, 300, 2, 32, dtype=dtype)[:-1] for _ in range(2))
    lengths = torch.tensor([257, 1, 80][:rows], dtype=torch.int32)
    inputs = (query, keys, values, lengths, 0.2)
    assert_close([triton_ops.decode_attention(*inputs)], [torch_ops.decode_attention(*inputs)], error)


def test_gemv() -> None:
    x, weight, bias = torch.randn(1, 700), torch.randn(37, 700), torch.randn(37)
    assert_close([triton_ops.gemv(x, weight, bias, 8, 128)], [linear(x, weight, bias)], 1e-4)
    products = [triton_ops.skinny_gemm(x, weight), triton_ops.skinny_gemm(x.expand(2, -1), weight)]
    expected: list[Tensor] = [linear(x, weight), linear(x.expand(2, -1), weight)]
    assert_close(products, expected, 1e-4)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 17, 32, 33])
def test_linear_and_norm_of_a_few_rows(rows: int, with_bias: bool) -> None:
    """In parts of 2 to 32 rows, whole otherwise; 700 columns are no multiple of anything."""
    x, h, norm = (torch.randn(*shape, dtype=torch.float16) for shape in ((rows, 75), (rows, 700), (75,)))
    weight, bias = torch.randn(75, 700, dtype=torch.float16), torch.randn(75, dtype=torch.float16)
    inputs = (x, h, weight, bias if with_bias else None, norm, 1e-6)
    assert_close(triton_ops.linear_add_norm(*inputs), torch_ops.linear_add_norm(*inputs), 2e-3)
    if rows > 1:
        parts = triton_ops.split_gemm(h[:32], weight, bias)
        assert parts.shape == (2, min(rows, 32), 75)  # of 384 columns and the rest
        assert_close([parts.sum(0)], [linear(h[:32].float(), weight.float(), bias.float())], 1e-3)


def test_tokens_of_the_whole_path() -> None:
    """Of the family that also norms its queries and keys; the others are in ``test_gpu_answers``."""
    questions = requests(2, 5, "deletion")
    ours, stock = (replace(fresh("qwen3_vl", fast=fast), max_new_tokens=3) for fast in (True, False))
    vars(ours)["fast_decoder"] = FastDecoder(ours.model, triton_ops)
    texts = [answer.text for answer in ours.answer(questions)]
    assert texts == [answer.text for answer in stock.answer(questions)]
    assert len(set(texts)) == 2, "equal answers would prove nothing"
