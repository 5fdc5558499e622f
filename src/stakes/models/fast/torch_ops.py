"""The operations between the matrix products of a layer, in torch, on any device.

``triton_ops`` has the same functions as faster kernels and takes the place of this module on a GPU
(``FastDecoder(ops=...)``). These functions are the reference that it is tested against.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from stakes.vision.deletion.exact import upload

# Whole images of one size use cuDNN's attention: 32 of 3,888 patches take 6.6 ms on an H200, flash attention 9.3. It
# plans 46 to 910 ms for each new shape, which does not pay for a shape that is seen only a few times.
CUDNN_MIN_LENGTH = 512  # patches of one image
CUDNN_MIN_PATCHES = 1 << 14  # patches of all images
CUDNN_AFTER = 8  # calls of a shape that flash attention serves first
CUDNN_CAPABILITIES = ((9, 0), (10, 0))  # GPUs on which torch itself prefers cuDNN's attention
MAX_SHAPES = 4096  # shapes that are counted
_shape_counts: Counter[tuple[int, int]] = Counter()  # (images, patches of each) -> calls
_cudnn_errors: list[str] = []  # not empty: cuDNN's attention failed and is not tried again


@dataclass(frozen=True)
class Segments:
    """The sequences of a varlen batch, one after another without padding.

    ``cu_seqlens``: [n + 1] int32 on the device, where each sequence begins and the last ends. ``lengths``: the same on
    the host; a captured graph is replayed with other ``cu_seqlens``, so a flash kernel must not read it.
    ``max_seqlen``: an upper bound of the lengths.
    """

    cu_seqlens: Tensor
    lengths: Sequence[int]
    max_seqlen: int

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> "Segments":
        """Sequences of these lengths."""
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        return cls(upload(ends, device), lengths, max(lengths))


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm, [..., D] -> [..., D]: x / sqrt(mean(x^2) + eps) * weight."""
    return rms_norm(x, weight.shape, weight, eps)


def add_norm(x: Tensor, more: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum of both, and its RMSNorm."""
    total = x + more
    return total, norm(total, weight, eps)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of [n, heads, h] by [n, h]: (a, b) -> (a cos - b sin, b cos + a sin), the halves of a head."""
    a, b = x.chunk(2, -1)
    return (x * cos[:, None] + torch.cat((-b, a), -1) * sin[:, None]).to(x.dtype)


def rope_and_write(
    heads: tuple[Tensor, Tensor, Tensor],
    rope: tuple[Tensor, Tensor],
    cache: tuple[Tensor, Tensor],
    where: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """Queries and keys after RoPE; keys and values are also written to the KV cache.

    ``heads``: queries [n, heads, h], keys and values [n, key heads, h]. ``rope``: cos and sin, [n, h]. ``cache``: keys
    and values of one layer, [B, L, key heads, h]. ``where``: row and column of each token in the cache, [n].
    """
    query, key, value = heads
    query, key = apply_rope(query, *rope), apply_rope(key, *rope)
    for buffer, x in zip(cache, (key, value), strict=True):
        buffer.index_put_(where, x)
    return query, key


def skinny_gemm(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """[B, in] -> [B, out]: the matrix product of a decoding step, as long as the weights take to read."""
    return linear(x, weight, bias)


def linear_add_norm(
    x: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None, norm_weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """[B, D] plus the product of [B, in] and a matrix [D, in], and the sum's RMSNorm."""
    return add_norm(x, skinny_gemm(h, weight, bias), norm_weight, eps)


def swiglu(gate_up: Tensor) -> Tensor:
    """[n, 2 W] -> [n, W]: silu(gate) * up."""
    gate, up = gate_up.chunk(2, -1)
    return silu(gate) * up


def supports_varlen(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether ``varlen_attention`` reads the lengths on the device, so that it can be captured in a CUDA graph."""
    return device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)


def varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float, causal: bool
) -> Tensor:
    """[S, heads, h] on [S, key heads, h] -> [S, heads, h]: attention within each sequence of a varlen batch."""
    lengths = segments.lengths
    if supports_varlen(query.dtype, query.device):
        if is_uniform(lengths, query.dtype, query.device, causal) and is_recurring(len(lengths), lengths[0]):
            found = cudnn_attention(query, key, value, len(lengths), scale)
            if found is not None:
                return found
        ends, longest = segments.cu_seqlens, segments.max_seqlen
        flash = torch.ops.aten._flash_attention_forward
        out: Tensor = flash(query, key, value, ends, ends, longest, longest, 0.0, causal, False, scale=scale)[0]
        return out
    parts = []
    for some in zip(*(torch.split(x, list(lengths)) for x in (query, key, value)), strict=True):
        if len(some[0]) == 0:
            continue
        q, k, v = (x.transpose(0, 1)[None] for x in some)
        grouped = query.shape[1] != key.shape[1]
        part = scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=grouped)
        parts.append(part[0].transpose(0, 1))
    return torch.cat(parts)


def is_uniform(lengths: Sequence[int], dtype: torch.dtype, device: torch.device, causal: bool) -> bool:
    """Whether these are whole images of one size, and enough of them for ``cudnn_attention``; windows are shorter.

    Causal sequences are prompts, whose graph is replayed with other ``cu_seqlens``: the host's lengths are outdated.
    Small batches are captured too (``vision_packed.MAX_CAPTURED_PATCHES``), and cuDNN must not plan during a capture.
    """
    if not supports_varlen(dtype, device) or causal or not CUDNN_MIN_LENGTH <= min(lengths) == max(lengths):
        return False
    return len(lengths) * lengths[0] > CUDNN_MIN_PATCHES


def is_recurring(count: int, size: int) -> bool:
    """Count a call of this shape; whether the shape is frequent enough that a cuDNN plan pays."""
    if len(_shape_counts) >= MAX_SHAPES:
        _shape_counts.clear()
    _shape_counts[count, size] += 1
    return _shape_counts[count, size] > CUDNN_AFTER


def cudnn_attention(query: Tensor, key: Tensor, value: Tensor, count: int, scale: float) -> Tensor | None:
    """[count * n, heads, h] three times -> the same: cuDNN's attention of sequences of n; None where it is missing.

    The kernel is called by name, because ``sdpa_kernel`` would disable all others in every thread. Nothing is copied:
    [count, heads, n, h] are views.
    """
    if _cudnn_errors or torch.cuda.get_device_capability(query.device) not in CUDNN_CAPABILITIES:
        return None
    q, k, v = (x.view(count, -1, *x.shape[1:]).transpose(1, 2) for x in (query, key, value))
    if not can_use_cudnn_attention(SDPAParams(q, k, v, None, 0.0, False, False)):
        return None
    cudnn = torch.ops.aten._scaled_dot_product_cudnn_attention
    try:
        out: Tensor = cudnn(q, k, v, None, torch.is_grad_enabled(), scale=scale)[0]
    except torch.OutOfMemoryError:  # says nothing about the next call
        raise
    except RuntimeError as error:
        _cudnn_errors.append(str(error))
        warnings.warn(f"cuDNN's attention failed; flash attention is used instead: {error}", stacklevel=2)
        return None
    return out.transpose(1, 2).flatten(0, 1)


def rope_attention(qkv: Tensor, cos: Tensor, sin: Tensor, segments: Segments, scale: float) -> Tensor:
    """[S, 3, heads, h] and [S, h] factors -> [S, heads, h]: RoPE, then ``varlen_attention`` that is not causal.

    ``qkv``: queries, keys and values as one matrix product leaves them.
    """
    query, key = apply_rope(qkv[:, :2].flatten(1, 2), cos, sin).chunk(2, 1)  # together: the factors are read once
    return varlen_attention(query, key, qkv[:, 2], segments, scale, causal=False)


def decode_attention(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scale: float) -> Tensor:
    """One query per row on its row of the KV cache: [B, heads, h] on [B, L, key heads, h] -> [B, heads, h].

    ``lengths``: [B] columns of the cache in use, the query's own among them. Heads that share keys stand in the query's
    length, so that keys are not repeated (``local.attention``).
    """
    size, heads, width = query.shape
    grouped = query.view(size, keys.shape[2], -1, width)
    valid = torch.arange(keys.shape[1], device=keys.device) < lengths[:, None]
    out = scaled_dot_product_attention(
        grouped, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=valid[:, None, None], scale=scale
    )
    return out.reshape(size, heads, width)
