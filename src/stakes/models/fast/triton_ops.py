"""The operations of ``torch_ops``, each as one Triton kernel.

Arithmetic is float32 inside a kernel; results are rounded where the stock model rounds (a norm before its weight).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import linear

from stakes.models.fast.torch_ops import Segments, varlen_attention
from stakes.models.fast.torch_ops import supports_varlen as supports_varlen
from stakes.models.fast.triton_attention import decode_attention as decode_attention
from stakes.models.fast.triton_attention import supports_window_attention, window_attention

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

MAX_SPLIT_ROWS = 32
SPLIT_STAGES = 5  # loads of weights on their way at once


@triton.jit
def _norm_kernel(x, more, weight, total, out, stride, D, eps, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """``more``: [PARTS, rows, D], whose sum is added to ``x`` first."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < D
    value = tl.load(x + row * stride + at, mask=inside, other=0.0)
    kind = value.dtype
    if PARTS:
        added = tl.load(more + row * D + at, mask=inside, other=0.0).to(tl.float32)
        for part in tl.static_range(1, PARTS):
            added += tl.load(more + (part * tl.num_programs(0) + row) * D + at, mask=inside, other=0.0)
        value = (value.to(tl.float32) + added.to(kind).to(tl.float32)).to(kind)
        tl.store(total + row * D + at, value, mask=inside)
    wide = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / D + eps)
    normed = (wide * scale).to(kind)
    factor = tl.load(weight + at, mask=inside, other=0.0)
    tl.store(out + row * D + at, (normed.to(tl.float32) * factor.to(tl.float32)).to(kind), mask=inside)


def _launch_norm(x: Tensor, more: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """``more``: shaped as ``x``, or the parts of such a sum, [parts, rows, D]."""
    width = x.shape[-1]
    parts = 0 if more is None else len(more) if more.dim() > x.dim() else 1
    flat = x.reshape(-1, width) if x.dim() != 2 else x
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = torch.empty_like(out) if more is not None else out
    block = triton.next_power_of_2(width)
    _norm_kernel[(len(flat),)](
        flat, out if more is None else more, weight, total, out, flat.stride(0), width, eps, parts, block,
        num_warps=max(1, min(16, block // 256)),
    )  # fmt: skip
    return total, out


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm, [..., D] -> [..., D]."""
    return _launch_norm(x, None, weight, eps)[1]


def add_norm(x: Tensor, more: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum of both, and its RMSNorm."""
    return _launch_norm(x.contiguous(), more.contiguous(), weight, eps)


@triton.jit
def _rope_write_kernel(
    query, key, value, cos, sin, q_out, k_out, keys, values, rows, columns,
    q_row, q_head, k_row, k_head, v_row, v_head, b_row, b_column, b_head,
    QH, KH, HEADS: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr, CACHE: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    at = tl.arange(0, BLOCK)[None, :]
    inside = at < HALF
    c1 = tl.load(cos + token * 2 * HALF + at, mask=inside, other=0.0).to(tl.float32)
    c2 = tl.load(cos + token * 2 * HALF + HALF + at, mask=inside, other=0.0).to(tl.float32)
    s1 = tl.load(sin + token * 2 * HALF + at, mask=inside, other=0.0).to(tl.float32)
    s2 = tl.load(sin + token * 2 * HALF + HALF + at, mask=inside, other=0.0).to(tl.float32)
    is_q = inside & (head < QH)
    is_k = inside & (head >= QH) & (head < QH + KH)
    kh = head - QH
    kind = query.dtype.element_ty
    q_at = query + token * q_row + head * q_head + at
    k_at = key + token * k_row + kh * k_head + at
    a = tl.load(q_at, mask=is_q, other=0.0).to(tl.float32) + tl.load(k_at, mask=is_k, other=0.0).to(tl.float32)
    b = tl.load(q_at + HALF, mask=is_q, other=0.0).to(tl.float32)
    b += tl.load(k_at + HALF, mask=is_k, other=0.0).to(tl.float32)
    if ROUND:  # factors of the model's own dtype: the stock decoder rounds every product
        first = ((a * c1).to(kind).to(tl.float32) - (b * s1).to(kind).to(tl.float32)).to(kind)
        second = ((b * c2).to(kind).to(tl.float32) + (a * s2).to(kind).to(tl.float32)).to(kind)
    else:  # float32 factors, as in the encoder
        first, second = (a * c1 - b * s1).to(kind), (b * c2 + a * s2).to(kind)
    tl.store(q_out + (token * QH + head) * 2 * HALF + at, first, mask=is_q)
    tl.store(q_out + (token * QH + head) * 2 * HALF + HALF + at, second, mask=is_q)
    tl.store(k_out + (token * KH + kh) * 2 * HALF + at, first, mask=is_k)
    tl.store(k_out + (token * KH + kh) * 2 * HALF + HALF + at, second, mask=is_k)
    if CACHE:
        row, column = tl.load(rows + token).to(tl.int64), tl.load(columns + token).to(tl.int64)
        to = row * b_row + column * b_column + kh * b_head + at
        tl.store(keys + to, first, mask=is_k)
        tl.store(keys + to + HALF, second, mask=is_k)
        v_at = value + token * v_row + kh * v_head + at
        tl.store(values + to, tl.load(v_at, mask=is_k, other=0.0), mask=is_k)
        tl.store(values + to + HALF, tl.load(v_at + HALF, mask=is_k, other=0.0), mask=is_k)


def _launch_rope(
    query: Tensor, key: Tensor, value: Tensor, rope: tuple[Tensor, Tensor], cache: Any, where: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    cos, sin = (x.contiguous() for x in rope)
    count, heads, width = query.shape
    key_heads = key.shape[1]
    q_out, k_out = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (query, key))
    keys, values = cache if cache is not None else (key, value)
    together = triton.next_power_of_2(heads + key_heads) if count >= 512 else 4
    together = min(together, 32)
    _rope_write_kernel[(count, triton.cdiv(heads + key_heads, together))](
        query, key, value, cos, sin, q_out, k_out, keys, values, *where,
        query.stride(0), query.stride(1), key.stride(0), key.stride(1), value.stride(0), value.stride(1),
        keys.stride(0), keys.stride(1), keys.stride(2) if cache is not None else 0,
        heads, key_heads, together, width // 2, triton.next_power_of_2(width // 2), cache is not None,
        cos.dtype == query.dtype,
        num_warps=4 if together > 4 else 1,
    )  # fmt: skip
    return q_out, k_out


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of [n, heads, h] by [n, h]."""
    none = x[:, :0]
    return _launch_rope(x, none, none, (cos, sin), None, (x, x))[0]


def rope_and_write(
    heads: tuple[Tensor, Tensor, Tensor],
    rope: tuple[Tensor, Tensor],
    cache: tuple[Tensor, Tensor],
    where: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """Queries and keys after RoPE; keys and values are also written to one layer of the KV cache."""
    return _launch_rope(*heads, rope, cache, where)


def rope_attention(qkv: Tensor, cos: Tensor, sin: Tensor, segments: Segments, scale: float) -> Tensor:
    """[S, 3, heads, h] and [S, h] factors -> [S, heads, h]: windows in one kernel, longer sequences in two steps."""
    if supports_window_attention(qkv, cos, segments.max_seqlen):
        return window_attention(qkv, cos, sin, segments, scale)
    query, key = apply_rope(qkv[:, :2].flatten(1, 2), cos, sin).chunk(2, 1)
    return varlen_attention(query, key, qkv[:, 2], segments, scale, causal=False)


@triton.jit
def _swiglu_kernel(gate_up, out, W, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < W
    gate = tl.load(gate_up + row * 2 * W + at, mask=inside, other=0.0)
    up = tl.load(gate_up + row * 2 * W + W + at, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    act = (wide * tl.sigmoid(wide)).to(gate.dtype)
    tl.store(out + row * W + at, (act.to(tl.float32) * up.to(tl.float32)).to(gate.dtype), mask=inside)


def swiglu(gate_up: Tensor) -> Tensor:
    """[n, 2 W] -> [n, W]: silu(gate) * up."""
    count, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(count, width, dtype=gate_up.dtype, device=gate_up.device)
    block = 1024 if count > 4 else 256
    _swiglu_kernel[(count, triton.cdiv(width, block))](gate_up.contiguous(), out, width, block, num_warps=4)
    return out


@triton.jit
def _gemv_kernel(
    x, weight, bias, out, N, K, HAS_BIAS: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One row: each program reads BN rows of the weights once."""
    at = tl.program_id(0) * BN + tl.arange(0, BN)
    inside = at < N
    acc = tl.zeros((BN, BK), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        w = tl.load(
            weight + at.to(tl.int64)[:, None] * K + k[None, :], mask=inside[:, None] & (k < K)[None, :], other=0.0
        )
        v = tl.load(x + k, mask=k < K, other=0.0)
        acc += w.to(tl.float32) * v.to(tl.float32)[None, :]
    total = tl.sum(acc, 1)
    if HAS_BIAS:
        total += tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


def gemv(x: Tensor, weight: Tensor, bias: Tensor | None = None, rows: int = 8, columns: int = 512) -> Tensor:
    """``linear`` of [1, K], as fast as the weights are read."""
    count, width = weight.shape
    out = torch.empty(1, count, dtype=x.dtype, device=x.device)
    _gemv_kernel[(triton.cdiv(count, rows),)](
        x, weight, x if bias is None else bias, out, count, width, bias is not None, rows, columns, num_warps=4
    )
    return out


@triton.jit
def _split_kernel(
    x, weight, bias, partial, B, N, K, size, HAS_BIAS: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """A few rows: each program multiplies BN rows of the weights with one part of ``size`` columns."""
    at, row, part = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, ROWS), tl.program_id(1)
    inside, used = at < N, row < B
    acc = tl.zeros((BN, ROWS), tl.float32)
    if HAS_BIAS:
        acc += tl.load(bias + at, mask=inside & (part == 0), other=0.0).to(tl.float32)[:, None]
    end = tl.minimum((part + 1) * size, K)
    for start in range(part * size, end, BK):
        k = start + tl.arange(0, BK)
        seen = k < end
        w = tl.load(weight + at.to(tl.int64)[:, None] * K + k[None, :], mask=inside[:, None] & seen[None, :], other=0.0)
        v = tl.load(x + row[None, :] * K + k[:, None], mask=used[None, :] & seen[:, None], other=0.0)
        acc = tl.dot(w, v, acc)
    to = partial + (part * B + row)[None, :] * N + at[:, None]
    tl.store(to, acc, mask=inside[:, None] & used[None, :])


def split_gemm(x: Tensor, weight: Tensor, bias: Tensor | None = None, parts: int = 2) -> Tensor:
    """``linear`` of [B, K] as [parts, B, N] float32, whose sum it is; B of at most ``MAX_SPLIT_ROWS``.

    The 7B model's down product of 32 rows takes 37.7 us with its norm on an H200, and 40.2 with ``linear``. Four parts
    take 39.1 to 40.3, other blocks 38.8 to 40.3.
    """
    (count, width), batch = weight.shape, len(x)
    rows, columns = 64, 128  # of the weights, at once
    size = triton.cdiv(triton.cdiv(width, parts), columns) * columns
    parts = triton.cdiv(width, size)
    partial = torch.empty(parts, batch, count, dtype=torch.float32, device=x.device)
    _split_kernel[(triton.cdiv(count, rows), parts)](
        x, weight, x if bias is None else bias, partial, batch, count, width, size, bias is not None,
        max(16, triton.next_power_of_2(batch)), rows, columns, num_warps=4, num_stages=SPLIT_STAGES,
    )  # fmt: skip
    return partial


def skinny_gemm(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``linear`` of a decoding step."""
    if len(x) == 1:  # a step of the 7B model takes 4.05 ms on an H200, and 4.52 with ``linear``
        return gemv(x, weight, bias)
    return linear(x, weight, bias)


def linear_add_norm(
    x: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None, norm_weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """``x`` plus ``linear`` of ``h``, and the sum's RMSNorm; of a few rows, the norm adds up the product's parts."""
    halves = h.dtype in (torch.bfloat16, torch.float16)  # a float32 product would be rounded to tf32
    product = split_gemm if halves and 1 < len(h) <= MAX_SPLIT_ROWS else skinny_gemm
    return _launch_norm(x.contiguous(), product(h.contiguous(), weight, bias), norm_weight, eps)
