"""The greedy max-min order of ``redundancy`` as a Triton kernel: one program per image.

The order is the reference's (``redundancy._greedy``) on the same integers: distances on a grid of 1e-6. Distance and
index share one number, so that a step is one read of a row, one minimum and one maximum:

    key[i, j] = (d[i, j] * 1e6 on the grid) * 2^s + (2^s - 1 - j)              s: bits of an index
    key[i, i] = least                                                       # chosen: never again
    running = min(running, key[chosen]);   next = argmax = 2^s - 1 - (max(running) & (2^s - 1))

The low bits of column j are the same in every row, so a minimum of keys is the minimum of distances, and of equal
distances the largest key has the lowest index. The walk starts at the largest mean distance, which is computed with the
keys: a sum of integers, the same in any order, and rounded to the same grid. Up to 2,048 tokens a key has 32 bits;
beyond, 64, made from 32-bit distances in registers.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"


SMALL = 2048  # tokens
MAX_CHUNK = 1 << 29  # distances of the images that are ranked together (2 GiB)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# Distances are 0 to 2,000,000, less than 2^21; 2^20 is subtracted so that 32 signed bits hold a key.


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
        current = tl.minimum(current, count - 1)  # keys of non-finite features are arbitrary
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

    Products of 16-bit features are exact in float32, so tensor cores may sum them, about ten times as fast as the
    float32 products of unit vectors that other features get (as in the reference).
    """
    if features.is_cuda and features.dtype in (torch.bfloat16, torch.float16):
        gram = torch.mm(features, features.T, out_dtype=torch.float32)
        return gram, gram.diagonal().clamp_min(1e-24).rsqrt()
    units = torch.nn.functional.normalize(features.float(), dim=-1)
    return units @ units.T, torch.ones(len(units), device=units.device)


def fill_keys(features: Tensor, small: bool, keys: Tensor, means: Tensor) -> None:
    """[N, D] -> [N, N] int32 distances on the grid, as keys where ``small``, and their [N] int32 means.

    A token's key with itself is the least of all; without keys, its distance to itself is -1.
    """
    gram, inverse = cosines(features)
    count = len(gram)
    more = {} if INTERPRETED else {"enable_fp_fusion": False}
    block = min(1024, triton.next_power_of_2(count))
    _grid_kernel[(count,)](gram, inverse, keys, means, count, small, 11, block, num_warps=4, **more)


def walk(keys: Tensor, means: Tensor, sizes: Sequence[int], count: int) -> Tensor:
    """The output of ``fill_keys`` for images of ``sizes``, concatenated -> [images, count] greedy order.

    For an image with N < ``count`` tokens, the first N entries of its row are filled.
    """
    longest = max(sizes)
    small = longest <= SMALL
    bits = 11 if small else (longest - 1).bit_length()
    table = [_offsets([size * size for size in sizes])[:-1], _offsets(sizes)[:-1], list(sizes)]
    places = torch.tensor(table, pin_memory=keys.is_cuda).to(keys.device, non_blocking=True)
    order = torch.empty(len(sizes), count, dtype=torch.long, device=keys.device)
    block = triton.next_power_of_2(longest)
    kernel = _small_kernel if small else _large_kernel
    warps = max(1, min(8 if small else 32, block // 256))
    kernel[(len(sizes),)](keys, means, places, len(sizes), order, count, block, bits, num_warps=warps)
    return order


def rank(features: Sequence[Tensor], count: int) -> list[Tensor]:
    """By image [N, D] features -> the first ``count`` tokens in greedy order, from the one farthest on average.

    The host never waits. The order of features that are not finite is meaningless.
    """
    rankings: list[Tensor] = []
    for chunk in _chunks(features):
        sizes = [len(one) for one in chunk]
        small = max(sizes) <= SMALL
        squares = [size * size for size in sizes]
        integers: dict[str, Any] = {"dtype": torch.int32, "device": chunk[0].device}
        keys, means = torch.empty(sum(squares), **integers), torch.empty(sum(sizes), **integers)
        parts = zip(chunk, torch.split(keys, squares), torch.split(means, sizes), strict=True)
        for one, own_keys, own_means in parts:
            fill_keys(one, small, own_keys, own_means)
        order = walk(keys, means, sizes, count)
        rankings += [row[: min(count, size)] for row, size in zip(order, sizes, strict=True)]
    return rankings


def _chunks(features: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Images that are ranked together: up to ``MAX_CHUNK`` distances, or one larger image."""
    chunk: list[Tensor] = []
    for one in features:
        if chunk and sum(len(x) ** 2 for x in chunk) + len(one) ** 2 > MAX_CHUNK:
            yield chunk
            chunk = []
        chunk.append(one)
    if chunk:
        yield chunk


def _offsets(sizes: Sequence[int]) -> list[int]:
    return [0, *accumulate(sizes)]
