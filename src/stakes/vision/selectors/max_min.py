"""How is the greedy max-min order found on a GPU? One program an image, which never leaves its multiprocessor.

The order is the reference's (``redundancy._greedy``) on the same integers: distances on a grid of 1e-6. Distance and
index share one number, so that a step is one read of a row, one minimum and one maximum:

    key[i, j] = (d[i, j] * 1e6 on the grid) * 2^s + (2^s - 1 - j)              s: bits of an index
    key[i, i] = least                                                       # chosen: never again
    running = min(running, key[chosen]);   next = argmax = 2^s - 1 - (max(running) & (2^s - 1))

The low bits of column j are the same in every row, so a minimum of keys is the minimum of distances, and of equal
distances the largest key has the lowest index. The walk starts at the largest mean distance, which is found while the
keys are made: a sum of whole numbers, the same in any order, and rounded to the same grid. Up to 2,048 tokens a key has
32 bits; beyond, 64, made from 32-bit distances in registers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"


GRID = 1e6
SMALL = 2048  # tokens
LOT = 1 << 29  # numbers (2 GiB)
EXACT_PRODUCTS = True  # of 16-bit features; False: the reference's float32 products, several times as slow
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# distances are 0 to 2,000,000, less than 2^21; 2^20 is taken off so that 32 signed bits hold a key


@triton.jit
def _grid_kernel(gram, inverse, keys, means, N, SMALL_KEYS: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr):
    """A row of cosines to the reference's grid, and its mean; no multiplication may be fused with an addition."""
    row = tl.program_id(0).to(tl.int64)
    mine = tl.load(inverse + row)
    total = tl.full((), 0, tl.int64)
    for begin in range(0, N, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        inside = at < N
        cosine = tl.load(gram + row * N + at, mask=inside, other=0.0)
        cosine = cosine * mine * tl.load(inverse + at, mask=inside, other=0.0)
        scaled = (1.0 - cosine) * 1000000.0
        nearest = (scaled + 12582912.0) - 12582912.0  # 1.5 * 2^23: to the nearest, halves to even, as torch.round
        grid = tl.maximum(nearest, 0.0).to(tl.int32)
        total += tl.sum(tl.where(inside, grid, 0).to(tl.int64), 0)
        if SMALL_KEYS:
            key = (grid - 1048576) * (1 << BITS) + (((1 << BITS) - 1) - at)
            key = tl.where(at == row, -2147483648, key)
        else:
            key = tl.where(at == row, -1, grid)
        tl.store(keys + row * N + at, key, mask=inside)
    tl.store(means + row, ((2 * total + N) // (2 * N)).to(tl.int32))


@triton.jit
def _small_kernel(keys, means, places, images, order, steps, BLOCK: tl.constexpr, BITS: tl.constexpr):
    image = tl.program_id(0)
    base, first = keys + tl.load(places + image), means + tl.load(places + images + image)
    count = tl.load(places + 2 * images + image).to(tl.int32)
    at = tl.arange(0, BLOCK)
    inside = at < count
    low = -2147483648
    mean = tl.load(first + at, mask=inside, other=0)
    farthest = tl.where(inside, (mean - 1048576) * (1 << BITS) + (((1 << BITS) - 1) - at), low)
    current = ((1 << BITS) - 1) - (tl.max(farthest, 0) & ((1 << BITS) - 1))
    running = tl.where(inside, 2147483647, low).to(tl.int32)
    for k in range(0, tl.minimum(steps, count)):
        current = tl.minimum(current, count - 1)  # keys of what is no number say anything
        tl.store(order + image * steps + k, current)
        row = tl.load(base + current.to(tl.int64) * count + at, mask=inside, other=low)
        running = tl.minimum(running, row)
        current = ((1 << BITS) - 1) - (tl.max(running, 0) & ((1 << BITS) - 1))


@triton.jit
def _large_kernel(distances, means, places, images, order, steps, BLOCK: tl.constexpr, BITS: tl.constexpr):
    image = tl.program_id(0)
    base, first = distances + tl.load(places + image), means + tl.load(places + images + image)
    count = tl.load(places + 2 * images + image).to(tl.int32)
    at = tl.arange(0, BLOCK)
    inside = at < count
    low = (((1 << BITS) - 1) - at).to(tl.int64)
    mean = tl.load(first + at, mask=inside, other=-1)
    current = (((1 << BITS) - 1) - (tl.max((mean.to(tl.int64) << BITS) | low, 0) & ((1 << BITS) - 1))).to(tl.int32)
    gap = tl.where(inside, 2147483647, -1).to(tl.int32)
    for k in range(0, tl.minimum(steps, count)):
        current = tl.minimum(current, count - 1)
        tl.store(order + image * steps + k, current)
        row = tl.load(base + current.to(tl.int64) * count + at, mask=inside, other=-1)
        gap = tl.minimum(gap, row)
        key = (gap.to(tl.int64) << BITS) | low
        current = (((1 << BITS) - 1) - (tl.max(key, 0) & ((1 << BITS) - 1))).to(tl.int32)


def cosines(features: Tensor) -> tuple[Tensor, Tensor]:
    """[N, D] -> [N, N] float32 products, and the [N] factors that make cosines of them.

    Products of 16-bit features are exact in float32, so matrix units may add them up, some ten times as fast as float32
    products of unit vectors, which are what other features get (the reference's own way).
    """
    if features.is_cuda and features.dtype in (torch.bfloat16, torch.float16) and EXACT_PRODUCTS:
        gram = torch.mm(features, features.T, out_dtype=torch.float32)
        return gram, gram.diagonal().clamp_min(1e-24).rsqrt()
    units = torch.nn.functional.normalize(features.float(), dim=-1)
    return units @ units.T, torch.ones(len(units), device=units.device)


def distances_of(features: Tensor) -> Tensor:
    """[N, N] int32 distances on the grid, by plain torch: what the keys are checked with."""
    gram, inverse = cosines(features)
    cosine = gram * inverse[:, None] * inverse
    return ((1 - cosine) * GRID).round().clamp_min(0).to(torch.int32)


def fill_keys(features: Tensor, small: bool, keys: Tensor, means: Tensor) -> None:
    """[N, D] -> [N, N] int32 distances on the grid, as keys where ``small``, and their [N] int32 means.

    A token's own key is the least of all; its own distance, where there are no keys, -1.
    """
    gram, inverse = cosines(features)
    count = len(gram)
    more = {} if INTERPRETED else {"enable_fp_fusion": False}
    block = min(1024, triton.next_power_of_2(count))
    _grid_kernel[(count,)](gram, inverse, keys, means, count, small, 11, block, num_warps=4, **more)


def walk(keys: Tensor, means: Tensor, sizes: Sequence[int], count: int, warps: int | None = None) -> Tensor:
    """What ``fill_keys`` made of images of ``sizes``, one after another -> [images, count] greedy order.

    Of an image with fewer tokens than ``count``, the first N places are filled.
    """
    longest = max(sizes)
    small = longest <= SMALL
    bits = 11 if small else (longest - 1).bit_length()
    table = [_starts([size * size for size in sizes]), _starts(sizes), list(sizes)]
    there = keys.device
    places = torch.tensor(table, pin_memory=keys.is_cuda).to(there, non_blocking=True)  # nobody waits for it
    order = torch.empty(len(sizes), count, dtype=torch.long, device=there)
    block = triton.next_power_of_2(longest)
    kernel = _small_kernel if small else _large_kernel
    kernel[(len(sizes),)](
        keys, means, places, len(sizes), order, count, block, bits,
        num_warps=warps or max(1, min(8 if small else 32, block // 256)),
    )  # fmt: skip
    return order


def rank(features: Sequence[Tensor], count: int) -> list[Tensor]:
    """By image [N, D] features -> the first ``count`` tokens in greedy order, from the one farthest on average.

    Nothing is asked of the host. Features that are no numbers get an order that means nothing.
    """
    found: list[Tensor] = []
    for lot in _lots(features):
        sizes = [len(one) for one in lot]
        small = max(sizes) <= SMALL
        squares = [size * size for size in sizes]
        whole: dict[str, Any] = {"dtype": torch.int32, "device": lot[0].device}
        keys, means = torch.empty(sum(squares), **whole), torch.empty(sum(sizes), **whole)
        places = zip(lot, pairwise(_ends(squares)), pairwise(_ends(sizes)), strict=True)
        for one, (key_from, key_to), (mean_from, mean_to) in places:
            fill_keys(one, small, keys[key_from:key_to], means[mean_from:mean_to])
        order = walk(keys, means, sizes, count)
        found += [row[: min(count, size)] for row, size in zip(order, sizes, strict=True)]
    return found


def _lots(features: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Images that are walked together: while their matrices are ``LOT`` numbers or fewer."""
    lot: list[Tensor] = []
    for one in features:
        if lot and sum(len(x) ** 2 for x in lot) + len(one) ** 2 > LOT:
            yield lot
            lot = []
        lot.append(one)
    if lot:
        yield lot


def _ends(sizes: Sequence[int]) -> list[int]:
    return [0, *accumulate(sizes)]


def _starts(sizes: Sequence[int]) -> list[int]:
    return _ends(sizes)[:-1]
