"""Run by ``test_max_min`` in Triton's interpreter: the order, the start and the keys against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.vision.selectors.distances import grid_distances
from torch import Tensor
from torch.nn.functional import normalize

from stakes.vision.selectors import max_min
from stakes.vision.selectors import redundancy as reference

KINDS = ["ink", "paper", "blank", "opposite"]


def page(size: int, seed: int, kind: str) -> Tensor:
    """[N, 24] features: all different; a quarter equal; all equal; half of them equal and half their opposite."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(size, 24, generator=generator) + 2 * torch.randn(1, 24, generator=generator)
    if kind == "paper":
        features[::4] = features[0].clone()
    elif kind == "blank":
        features[:] = features[0].clone()
    elif kind == "opposite":
        features[::2], features[1::2] = features[0].clone(), -features[0].clone()
    return features


def means_of(distances: Tensor) -> Tensor:
    """[N, N] whole distances -> [N] int32: their means to the nearest whole number."""
    return (distances.double().mean(1) + 0.5).floor().int()


def walked(features: Tensor, count: int) -> list[int]:
    """The reference on the distances that the kernels see, from the largest mean distance on the grid."""
    distances = grid_distances(*max_min.cosines(features))
    start, rows = int(np.argmax(means_of(distances).numpy())), distances.numpy()
    order = reference._greedy(lambda i: rows[i], len(features), min(count, len(features)), [start])
    found: list[int] = order.tolist()
    return found


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(60,), (50, 64, 33), (1,), (2, 1)])
def test_the_order_equals_the_reference(
    sizes: tuple[int, ...], kind: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``large``: by the kernel for more tokens than 2,048. Several images are walked together."""
    monkeypatch.setattr(max_min, "SMALL", 0 if large else 2048)
    some = [page(size, seed, kind) for seed, size in enumerate(sizes)]
    found = max_min.rank(some, 40)
    assert [one.tolist() for one in found] == [walked(one, 40) for one in some]
    assert all(one.dtype == torch.long for one in found)


@pytest.mark.parametrize("kind", KINDS)
def test_the_selector_on_a_cpu_gives_the_same_order(kind: str) -> None:
    """Its start is of float32 products with the sum of all, on the same grid."""
    for seed in range(5):
        features = page(48, seed, kind)
        units = normalize(features, dim=-1)
        start = reference._farthest_on_average(units)
        theirs = reference._greedy(reference._rows(units), 48, 20, [start]).tolist()
        assert max_min.rank([features], 20)[0].tolist() == theirs


def test_equal_means_start_at_the_lowest_index() -> None:
    """Of 40 tokens the last three are one and the same, and farthest from all others."""
    features = torch.ones(40, 8) + torch.eye(8)[0] * torch.linspace(0, 0.2, 40)[:, None]
    features[37:] = torch.tensor([1.0, -1, 1, -1, 1, -1, 1, -1])
    assert max_min.rank([features], 3)[0].tolist()[0] == 37
    assert walked(features, 3)[0] == 37


@pytest.mark.parametrize("size", [60, 33])
def test_keys_are_distances_on_the_grid(size: int) -> None:
    features = page(size, 3, "paper")
    units = normalize(features, dim=-1)
    expected = torch.from_numpy(np.array(reference._on_grid(units @ units.T)))
    assert torch.equal(grid_distances(*max_min.cosines(features)), expected)
    for small in (True, False):
        keys, means = torch.empty(size, size, dtype=torch.int32), torch.empty(size, dtype=torch.int32)
        max_min.fill_keys(features, small, keys, means)
        off = ~torch.eye(size, dtype=torch.bool)
        assert torch.equal(((keys >> 11) + (1 << 20) if small else keys)[off], expected[off])
        assert (keys.diagonal() == (-(2**31) if small else -1)).all()
        assert torch.equal(means, means_of(expected))


def test_a_row_of_several_blocks_has_one_mean() -> None:
    features = page(60, 5, "paper")
    keys, means = torch.empty(60, 60, dtype=torch.int32), torch.empty(60, dtype=torch.int32)
    max_min._grid_kernel[(60,)](*max_min.cosines(features), keys, means, 60, False, 11, 16)
    expected = grid_distances(*max_min.cosines(features))
    assert torch.equal(means, means_of(expected))
    assert torch.equal(keys.fill_diagonal_(0), expected.fill_diagonal_(0))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, on a NaN that becomes an integer
def test_values_that_are_not_finite_stay_inside_the_page(
    value: float, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk begins before the values are checked: it must read no row out of bounds."""
    monkeypatch.setattr(max_min, "SMALL", 0 if large else 2048)
    features = page(33, 1, "ink")
    features[4, 4] = value
    (found,) = max_min.rank([features], 33)
    assert 0 <= int(found.min()) <= int(found.max()) < 33


@pytest.mark.parametrize("large", [False, True])
def test_arbitrary_keys_are_walked_inside_the_page(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(max_min, "SMALL", 0 if large else 2048)
    arbitrary: Any = {"dtype": torch.int32, "generator": torch.Generator().manual_seed(2)}
    keys, means = (torch.randint(-(2**31), 2**31 - 1, (n,), **arbitrary) for n in (33 * 33, 33))
    found = max_min.walk(keys, means, [33], 33)
    assert 0 <= int(found.min()) <= int(found.max()) < 33


def test_images_beyond_a_chunk_are_ranked_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [page(size, size, "paper") for size in (30, 20, 40, 10)]
    together = [one.tolist() for one in max_min.rank(some, 15)]
    monkeypatch.setattr(max_min, "MAX_CHUNK", 1000)
    assert [len(chunk) for chunk in max_min._chunks(some)] == [1, 1, 1, 1]
    monkeypatch.setattr(max_min, "MAX_CHUNK", 1700)
    assert [len(chunk) for chunk in max_min._chunks(some)] == [2, 2]
    assert [one.tolist() for one in max_min.rank(some, 15)] == together
