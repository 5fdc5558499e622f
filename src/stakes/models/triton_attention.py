# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"
"""How does a step attend to what each row remembers? One Triton kernel over parts of the cache, one that joins them.

Only the columns that a row has are read: each row's cache is cut into parts that run side by side, and the second
kernel weighs the parts by their log-sum-exp.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from stakes.models import plain_ops

PARTS = 16  # pieces of a row's cache at batch 1; fewer where there are more rows


@triton.jit
def _attend_kernel(
    query, keys, values, lengths, partial, lse, scale,
    s_row, s_column, s_head, parts,
    GROUP: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    row, head, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    heads = tl.num_programs(1)
    length = tl.load(lengths + row)
    size = tl.cdiv(tl.cdiv(length, parts), BLOCK) * BLOCK  # columns of one part
    start = part * size
    end = tl.minimum(start + size, length)
    one = tl.arange(0, ROWS)
    at = tl.arange(0, WIDTH)
    mine = one < GROUP
    first = (row * heads + head) * GROUP
    q = tl.load(query + (first + one)[:, None] * WIDTH + at[None, :], mask=mine[:, None], other=0.0)
    best = tl.full((ROWS,), float("-inf"), tl.float32)
    weight = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, WIDTH), tl.float32)
    base = row * s_row + head * s_head
    for column in range(start, end, BLOCK):
        c = column + tl.arange(0, BLOCK)
        seen = c < end
        where = base + c.to(tl.int64)[:, None] * s_column + at[None, :]
        k = tl.load(keys + where, mask=seen[:, None], other=0.0)
        v = tl.load(values + where, mask=seen[:, None], other=0.0)
        if DOT:
            score = tl.dot(q, tl.trans(k)).to(tl.float32) * scale
        else:
            score = tl.sum(q.to(tl.float32)[:, None, :] * k.to(tl.float32)[None, :, :], 2) * scale
        score = tl.where(seen[None, :], score, float("-inf"))
        top = tl.maximum(best, tl.max(score, 1))
        shrink = tl.exp(best - top)
        p = tl.exp(score - top[:, None])
        weight = weight * shrink + tl.sum(p, 1)
        if DOT:
            acc = acc * shrink[:, None] + tl.dot(p.to(v.dtype), v).to(tl.float32)
        else:
            acc = acc * shrink[:, None] + tl.sum(p[:, :, None] * v.to(tl.float32)[None, :, :], 1)
        best = top
    safe = tl.where(weight > 0, weight, 1.0)
    to = (first + one) * parts + part
    tl.store(partial + to[:, None] * WIDTH + at[None, :], acc / safe[:, None], mask=mine[:, None])
    tl.store(lse + to, tl.where(weight > 0, best + tl.log(safe), float("-inf")), mask=mine)


@triton.jit
def _merge_kernel(partial, lse, out, parts, WIDTH: tl.constexpr, PARTS_: tl.constexpr):
    head = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS_)
    at = tl.arange(0, WIDTH)
    inside = part < parts
    weight = tl.load(lse + head * parts + part, mask=inside, other=float("-inf"))
    weight = tl.exp(weight - tl.max(weight, 0))
    weight = weight / tl.sum(weight, 0)
    every = tl.load(partial + (head * parts + part)[:, None] * WIDTH + at[None, :], mask=inside[:, None], other=0.0)
    tl.store(out + head * WIDTH + at, tl.sum(every * weight[:, None], 0).to(out.dtype.element_ty))


def attend_cached(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scale: float) -> Tensor:
    """One column a row on what its row remembers: [B, heads, h] on [B, L, key heads, h] -> [B, heads, h].

    A head that is no power of two wide (128 in the 7B model) is left to plain torch.
    """
    size, heads, width = query.shape
    if width & (width - 1):
        return plain_ops.attend_cached(query, keys, values, lengths, scale)
    key_heads = keys.shape[2]
    parts = max(1, min(PARTS, 264 // (size * key_heads)))  # two programs for each of 132 multiprocessors
    partial = torch.empty(size, heads, parts, width, dtype=torch.float32, device=query.device)
    lse = torch.empty(size, heads, parts, dtype=torch.float32, device=query.device)
    out = torch.empty_like(query)
    group = heads // key_heads
    exact = query.dtype == torch.float32  # a float32 dot would be rounded to tf32
    _attend_kernel[(size, key_heads, parts)](
        query, keys, values, lengths, partial, lse, scale,
        keys.stride(0), keys.stride(1), keys.stride(2), parts,
        group, max(16, triton.next_power_of_2(group)) if not exact else triton.next_power_of_2(group),
        width, 16 if exact else 64, not exact, num_warps=4,
    )  # fmt: skip
    _merge_kernel[(size * heads,)](partial, lse, out, parts, width, triton.next_power_of_2(parts), num_warps=1)
    return out
