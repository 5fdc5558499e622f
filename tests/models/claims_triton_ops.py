"""What ``test_triton_ops`` runs in Triton's interpreter: operations beside ``plain_ops``, tokens of tiny models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.recorded import fresh, requests
from torch import Tensor
from torch.nn.functional import linear

from stakes.models.fast import torch_ops as plain
from stakes.models.fast import triton_ops as fast
from stakes.models.fast.decoder import FastDecoder


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def near(found: Any, expected: Any, error: float = 1e-5) -> None:
    """Relative to the largest."""
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert float((one - other).abs().max() / other.abs().max()) < error


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float16, 2e-2)])
def test_norms(dtype: torch.dtype, error: float) -> None:
    x, more, weight = (torch.randn(*shape, dtype=dtype) for shape in ((5, 96), (5, 96), (96,)))
    near([fast.norm(x, weight, 1e-6)], [plain.norm(x, weight, 1e-6)], error)
    near(fast.add_norm(x, more, weight, 1e-6), plain.add_norm(x, more, weight, 1e-6), error)
    heads = torch.randn(5, 3, 32, dtype=dtype)
    near([fast.norm(heads, weight[:32], 1e-6)], [plain.norm(heads, weight[:32], 1e-6)], error)


def test_turning_a_part_of_a_wider_tensor() -> None:
    states, cos, sin = torch.randn(5, 3, 4, 24), torch.randn(5, 24), torch.randn(5, 24)
    near([fast.turn(states[:, 1], cos, sin)], [plain.turn(states[:, 1], cos, sin)])


def test_placing_in_the_cache() -> None:
    query, key, value = (x.view(6, -1, 16) for x in torch.split(torch.randn(6, 176), [112, 32, 32], -1))
    factors = torch.randn(6, 16), torch.randn(6, 16)
    where = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([0, 1, 3, 0, 1, 5])
    ours, theirs = ((torch.zeros(3, 8, 2, 16), torch.zeros(3, 8, 2, 16)) for _ in range(2))
    near(
        fast.place(query, key, value, *factors, ours, *where), plain.place(query, key, value, *factors, theirs, *where)
    )
    near(ours, theirs)


def test_the_gate() -> None:
    both = torch.randn(5, 600)
    near([fast.gated(both)], [plain.gated(both)])


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float16, 2e-2)])
@pytest.mark.parametrize("rows", [1, 3])
def test_attention_on_a_cache_in_parts(rows: int, dtype: torch.dtype, error: float) -> None:
    query = torch.randn(rows, 14, 32, dtype=dtype)
    keys, values = (torch.randn(rows + 1, 300, 2, 32, dtype=dtype)[:-1] for _ in range(2))
    lengths = torch.tensor([257, 1, 80][:rows], dtype=torch.int32)
    asked = (query, keys, values, lengths, 0.2)
    near([fast.attend_cached(*asked)], [plain.attend_cached(*asked)], error)


def test_one_row_times_a_matrix() -> None:
    x, weight, bias = torch.randn(1, 700), torch.randn(37, 700), torch.randn(37)
    near([fast.one_row(x, weight, bias, 8, 128)], [linear(x, weight, bias)], 1e-4)
    found = [fast.few_rows(x, weight), fast.few_rows(x.expand(2, -1), weight)]
    expected: list[Tensor] = [linear(x, weight), linear(x.expand(2, -1), weight)]
    near(found, expected, 1e-4)


def test_tokens_of_the_whole_path() -> None:
    """Of the family that also norms its queries and keys; the others' are in ``test_gpu``."""
    asked = requests(2, 5, "deletion")
    ours, theirs = (replace(fresh("qwen3_vl", fast=quick), max_new_tokens=3) for quick in (True, False))
    vars(ours)["fast_decoder"] = FastDecoder(ours.model, fast)
    texts = [answer.text for answer in ours.answer(asked)]
    assert texts == [answer.text for answer in theirs.answer(asked)]
    assert len(set(texts)) == 2, "the answers say nothing if they are all alike"
