"""Attention as Triton kernels: decoding steps on a KV cache, and windows of image patches.

``decode_attention`` splits each row's cache into parts that run in parallel (flash decoding, split KV); a second kernel
merges the parts by their log-sum-exp. Only the columns that a row uses are read.

``window_attention`` applies RoPE and attention in one kernel:

    softmax(rope(q) rope(k)^T scale) v          # of one window and head; only the result is written

A window is so short that one program holds it, and it is memory-bound: with RoPE in a kernel of its own, queries and
keys are written and read once more, and twice as much is moved. A head of 80 channels is no power of two: its halves,
which RoPE mixes, are loaded as 32 + 8 channels each, its values as 64 + 16; a tensor-core product needs at least 16,
and the padding is zero.
"""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from stakes.models.fast import torch_ops
from stakes.models.fast.torch_ops import Segments

# ruff: noqa: N803, N806
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

MAX_SPLITS = 16  # parts of a row's cache at batch 1; fewer where there are more rows
MAX_WINDOW = 64  # patches of a window that one program holds


@triton.jit
def _decode_kernel(
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


def decode_attention(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scale: float) -> Tensor:
    """One query per row on its row of the KV cache: [B, heads, h] on [B, L, key heads, h] -> [B, heads, h].

    Heads whose width is no power of two (it is 128 in the 7B model) use ``torch_ops``.
    """
    size, heads, width = query.shape
    if width & (width - 1):
        return torch_ops.decode_attention(query, keys, values, lengths, scale)
    key_heads = keys.shape[2]
    parts = max(1, min(MAX_SPLITS, 264 // (size * key_heads)))  # two programs for each of 132 multiprocessors
    partial = torch.empty(size, heads, parts, width, dtype=torch.float32, device=query.device)
    lse = torch.empty(size, heads, parts, dtype=torch.float32, device=query.device)
    out = torch.empty_like(query)
    group = heads // key_heads
    exact = query.dtype == torch.float32  # a float32 dot would be rounded to tf32
    _decode_kernel[(size, key_heads, parts)](
        query, keys, values, lengths, partial, lse, scale,
        keys.stride(0), keys.stride(1), keys.stride(2), parts,
        group, max(16, triton.next_power_of_2(group)) if not exact else triton.next_power_of_2(group),
        width, 16 if exact else 64, not exact, num_warps=4,
    )  # fmt: skip
    _merge_kernel[(size * heads,)](partial, lse, out, parts, width, triton.next_power_of_2(parts), num_warps=1)
    return out


@dataclass(frozen=True)
class WindowLaunch:
    """Launch parameters: heads per program (they share the rotary factors), warps, stages of that loop, registers.

    With 80 channels on a Hopper GPU one head needs 134 registers in each of 128 threads, more heads 174 to 178. The 28
    window layers of 32 pages take 14.2 ms on an H200 with two heads, 14.8 with one, 17 with eight warps, 20 with a
    second stage, and 33.6 with RoPE and attention in separate kernels.
    """

    heads: int = 2
    warps: int = 4
    stages: int = 1
    registers: int | None = 168  # so that three programs share a multiprocessor; nothing is spilled


LAUNCH = WindowLaunch()


@triton.jit
def _load_halves(x, at, kept, HALF: tl.constexpr):
    """These channels of both halves of a head."""
    return tl.load(x + at, mask=kept, other=0.0), tl.load(x + at + HALF, mask=kept, other=0.0)


@triton.jit
def _rope(a, b, c1, c2, s1, s2):
    """(a, b) -> (a cos - b sin, b cos + a sin), rounded as ``apply_rope`` rounds."""
    x, y = a.to(tl.float32), b.to(tl.float32)
    return (x * c1 - y * s1).to(a.dtype), (y * c2 + x * s2).to(a.dtype)


@triton.jit
def _scores(qa, qb, ka, kb, cos, sin, at, kept, HALF: tl.constexpr):
    """[BLOCK, BLOCK] products of queries and keys after RoPE, of these channels of both halves."""
    c1, c2 = _load_halves(cos, at, kept, HALF)
    s1, s2 = _load_halves(sin, at, kept, HALF)
    qa, qb = _rope(qa, qb, c1, c2, s1, s2)
    always = at >= 0  # else Triton applies RoPE in the product's layout, and moves the float32 factors there
    qa, qb = tl.where(always, qa, 0.0), tl.where(always, qb, 0.0)
    ka, kb = _rope(ka, kb, c1, c2, s1, s2)
    return tl.dot(qb, tl.trans(kb), tl.dot(qa, tl.trans(ka)))


@triton.jit
def _window_kernel(
    qkv, cos, sin, cu_seqlens, out, scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, MAIN: tl.constexpr, MORE: tl.constexpr, WIDE: tl.constexpr,
    TAIL: tl.constexpr, BLOCK: tl.constexpr, TOGETHER: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """MAIN + MORE: channels of half a head, WIDE + TAIL: of a whole one; powers of two, or none."""
    HALF: tl.constexpr = WIDTH // 2
    ROW: tl.constexpr = HEADS * WIDTH
    window, group = tl.program_id(0) // (HEADS // TOGETHER), tl.program_id(0) % (HEADS // TOGETHER)
    start, end = tl.load(cu_seqlens + window), tl.load(cu_seqlens + window + 1)
    first = start.to(tl.int64)  # 32 bits count the numbers of 143 pages
    qkv, out = qkv + first * (3 * ROW), out + first * ROW
    cos, sin = cos + first * WIDTH, sin + first * WIDTH
    token = tl.arange(0, BLOCK)[:, None]
    mine = token < end - start
    seen = tl.arange(0, BLOCK)[None, :] < end - start
    main, wide = tl.arange(0, MAIN)[None, :], tl.arange(0, WIDE)[None, :]
    has_main, has_wide = mine & (main < HALF), mine & (wide < WIDTH)
    if MORE:
        more = MAIN + tl.arange(0, MORE)[None, :]
        has_more = mine & (more < HALF)
    if TAIL:
        tail = WIDE + tl.arange(0, TAIL)[None, :]
        has_tail = mine & (tail < WIDTH)
    qkv, out = qkv + group * (TOGETHER * WIDTH), out + group * (TOGETHER * WIDTH)
    for head in tl.range(0, TOGETHER, num_stages=STAGES):
        query, to = qkv + head * WIDTH + token * (3 * ROW), out + head * WIDTH + token * ROW
        key, value = query + ROW, query + 2 * ROW
        qa, qb = _load_halves(query, main, has_main, HALF)  # all loads before anything waits for them
        ka, kb = _load_halves(key, main, has_main, HALF)
        if MORE:
            qc, qd = _load_halves(query, more, has_more, HALF)
            kc, kd = _load_halves(key, more, has_more, HALF)
        v = tl.load(value + wide, mask=has_wide, other=0.0)
        if TAIL:
            v_tail = tl.load(value + tail, mask=has_tail, other=0.0)
        score = _scores(qa, qb, ka, kb, cos + token * WIDTH, sin + token * WIDTH, main, has_main, HALF)
        if MORE:
            score += _scores(qc, qd, kc, kd, cos + token * WIDTH, sin + token * WIDTH, more, has_more, HALF)
        # to the base of 2; -1e38 and not -inf, with which an empty window would be NaN
        score = tl.where(seen, score * (scale * 1.4426950408889634), -1e38)
        p = tl.exp2(score - tl.max(score, 1)[:, None])
        weight = 1 / tl.sum(p, 1)[:, None]
        p = p.to(v.dtype)
        tl.store(to + wide, (tl.dot(p, v) * weight).to(v.dtype), mask=has_wide)
        if TAIL:
            tl.store(to + tail, (tl.dot(p, v_tail) * weight).to(v.dtype), mask=has_tail)


def _powers_of_two(width: int) -> tuple[int, int]:
    """Channels as two powers of two: the largest that fits, and the rest, at least 16 where there is any."""
    most = 1 << (width.bit_length() - 1)
    return max(16, most), max(16, triton.next_power_of_2(width - most)) if width > max(16, most) else 0


def supports_window_attention(qkv: Tensor, cos: Tensor, max_seqlen: int) -> bool:
    """Whether ``window_attention`` takes these: short windows in 16 bits on a GPU, with float32 rotary factors.

    Not on a ROCm GPU, which torch also calls CUDA: Triton takes no register limit there.
    """
    kind = qkv.dtype in (torch.bfloat16, torch.float16) and cos.dtype == torch.float32
    return kind and qkv.is_cuda and torch.version.hip is None and 0 < max_seqlen <= MAX_WINDOW


def window_attention(
    qkv: Tensor, cos: Tensor, sin: Tensor, segments: Segments, scale: float, launch: WindowLaunch = LAUNCH
) -> Tensor:
    """[P, 3, heads, h] and [P, h] factors -> [P, heads, h]: RoPE and attention within each window of patches."""
    count, _, heads, width = qkv.shape
    out = torch.empty(count, heads, width, dtype=qkv.dtype, device=qkv.device)
    together = math.gcd(heads, launch.heads)
    windows = len(segments.cu_seqlens) - 1
    _window_kernel[(windows * (heads // together),)](
        qkv.contiguous(), cos.contiguous(), sin.contiguous(), segments.cu_seqlens, out, scale, heads, width,
        *_powers_of_two(width // 2), *_powers_of_two(width), max(16, triton.next_power_of_2(segments.max_seqlen)),
        together, launch.stages, num_warps=launch.warps, maxnreg=launch.registers,
    )  # fmt: skip
    return out
