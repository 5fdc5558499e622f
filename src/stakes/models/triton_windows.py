# ruff: noqa: N803, N806
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"
"""How do windows of patches see themselves? One Triton kernel that turns queries and keys and attends.

    softmax(turn(q) turn(k)^T scale) v          # of one window and head; nothing but the result is written

A window is so short that one program holds it, and memory is what it waits for: turned apart, queries and keys are
written and read once more, and twice as much is moved. A head of 80 channels is no power of two: its halves, which turn
into each other, are taken as 32 + 8 channels each, its values as 64 + 16; a product of matrices wants 16 at least, and
what is filled up is zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 64  # patches of a window that one program holds


@dataclass(frozen=True)
class Shape:
    """Of a program: heads one after another, whose angles are near, its warps, stages of that loop, and registers.

    Of 80 channels on a Hopper GPU one head asks for 134 registers in each of 128 threads, more heads for 174 to 178.
    The 28 window layers of 32 pages take 14.2 ms on an H200 with two heads, 14.8 with one, 17 with eight warps, 20 with
    a second stage, and 33.6 turned and attended apart.
    """

    heads: int = 2
    warps: int = 4
    stages: int = 1
    registers: int | None = 168  # so that three programs share a multiprocessor; nothing is spilled


SHAPE = Shape()


@triton.jit
def _both(x, at, kept, HALF: tl.constexpr):
    """These channels of both halves."""
    return tl.load(x + at, mask=kept, other=0.0), tl.load(x + at + HALF, mask=kept, other=0.0)


@triton.jit
def _turned(a, b, c1, c2, s1, s2):
    """(a, b) -> (a cos - b sin, b cos + a sin), rounded as ``turn`` rounds."""
    x, y = a.to(tl.float32), b.to(tl.float32)
    return (x * c1 - y * s1).to(a.dtype), (y * c2 + x * s2).to(a.dtype)


@triton.jit
def _scores(qa, qb, ka, kb, cos, sin, at, kept, HALF: tl.constexpr):
    """[BLOCK, BLOCK] products of turned queries and keys, of these channels of both halves."""
    c1, c2 = _both(cos, at, kept, HALF)
    s1, s2 = _both(sin, at, kept, HALF)
    qa, qb = _turned(qa, qb, c1, c2, s1, s2)
    always = at >= 0  # else Triton turns queries where the product wants them, and moves float32 angles there
    qa, qb = tl.where(always, qa, 0.0), tl.where(always, qb, 0.0)
    ka, kb = _turned(ka, kb, c1, c2, s1, s2)
    return tl.dot(qb, tl.trans(kb), tl.dot(qa, tl.trans(ka)))


@triton.jit
def _windows_kernel(
    states, cos, sin, ends, out, scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, MAIN: tl.constexpr, MORE: tl.constexpr, WIDE: tl.constexpr,
    TAIL: tl.constexpr, BLOCK: tl.constexpr, TOGETHER: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """MAIN + MORE: channels of half a head, WIDE + TAIL: of a whole one; powers of two, or none."""
    HALF: tl.constexpr = WIDTH // 2
    ROW: tl.constexpr = HEADS * WIDTH
    window, group = tl.program_id(0) // (HEADS // TOGETHER), tl.program_id(0) % (HEADS // TOGETHER)
    start, end = tl.load(ends + window), tl.load(ends + window + 1)
    first = start.to(tl.int64)  # 32 bits count the numbers of 143 pages
    states, out = states + first * (3 * ROW), out + first * ROW
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
    states, out = states + group * (TOGETHER * WIDTH), out + group * (TOGETHER * WIDTH)
    for head in tl.range(0, TOGETHER, num_stages=STAGES):
        query, to = states + head * WIDTH + token * (3 * ROW), out + head * WIDTH + token * ROW
        key, value = query + ROW, query + 2 * ROW
        qa, qb = _both(query, main, has_main, HALF)  # all that there is to load, before anything waits for it
        ka, kb = _both(key, main, has_main, HALF)
        if MORE:
            qc, qd = _both(query, more, has_more, HALF)
            kc, kd = _both(key, more, has_more, HALF)
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


def _parts(width: int) -> tuple[int, int]:
    """So many channels as powers of two: the largest below, and what is left, at least 16 where it is anything."""
    most = 1 << (width.bit_length() - 1)
    return max(16, most), max(16, triton.next_power_of_2(width - most)) if width > max(16, most) else 0


def takes_windows(states: Tensor, cos: Tensor, longest: int) -> bool:
    """Whether ``attend_windows`` is for these: short, in 16 bits, on a GPU, and turned by float32 angles.

    Not on a ROCm GPU, which torch calls CUDA, too: Triton takes no limit of registers there.
    """
    kind = states.dtype in (torch.bfloat16, torch.float16) and cos.dtype == torch.float32
    return kind and states.is_cuda and torch.version.hip is None and 0 < longest <= LONGEST


def attend_windows(
    states: Tensor, cos: Tensor, sin: Tensor, ends: Tensor, longest: int, scale: float, shape: Shape = SHAPE
) -> Tensor:
    """[P, 3, heads, h] by [P, h] -> [P, heads, h]: windows of at most ``longest`` patches, each sees itself.

    ``ends``: [n + 1] int32, where each begins and the last ends.
    """
    count, _, heads, width = states.shape
    out = torch.empty(count, heads, width, dtype=states.dtype, device=states.device)
    together = math.gcd(heads, shape.heads)
    _windows_kernel[((len(ends) - 1) * (heads // together),)](
        states.contiguous(), cos.contiguous(), sin.contiguous(), ends, out, scale,
        heads, width, *_parts(width // 2), *_parts(width), max(16, triton.next_power_of_2(longest)),
        together, shape.stages, num_warps=shape.warps, maxnreg=shape.registers,
    )  # fmt: skip
    return out
