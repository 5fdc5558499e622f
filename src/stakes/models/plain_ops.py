"""What does a layer do between its matrix products? The same few operations, in plain torch, on any device.

A module with the same functions and faster kernels can stand in for this one (``fast_decode.FastDecoder(ops=...)``);
these are the reference that it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """[..., D] -> [..., D]: x / sqrt(mean(x^2) + eps) * weight."""
    return rms_norm(x, weight.shape, weight, eps)


def add_norm(x: Tensor, more: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum of both, and its norm."""
    total = x + more
    return total, norm(total, weight, eps)


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[n, heads, h] by [n, h]: (a, b) -> (a cos - b sin, b cos + a sin), a and b the halves of a head."""
    a, b = x.chunk(2, -1)
    return (x * cos[:, None] + torch.cat((-b, a), -1) * sin[:, None]).to(x.dtype)


def place(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cos: Tensor,
    sin: Tensor,
    cache: tuple[Tensor, Tensor],
    rows: Tensor,
    columns: Tensor,
) -> tuple[Tensor, Tensor]:
    """Turned queries and keys, [n, heads, h] and [n, key heads, h]; keys and values go to their [n] places.

    ``cache``: keys and values of one layer, [B, L, key heads, h].
    """
    query, key = turn(query, cos, sin), turn(key, cos, sin)
    for buffer, x in zip(cache, (key, value), strict=True):
        buffer.index_put_((rows, columns), x)
    return query, key


def few_rows(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """[B, in] -> [B, out]: the matrix product of a decoding step, which lasts as long as the weights take to read."""
    return linear(x, weight, bias)


def gated(both: Tensor) -> Tensor:
    """[n, 2 W] -> [n, W]: silu(gate) * up."""
    gate, up = both.chunk(2, -1)
    return silu(gate) * up


def takes_lengths(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether ``attend_packed`` reads the sequences' lengths on the device, so that it can be captured."""
    return device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)


def attend_packed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ends: Tensor,
    lengths: Sequence[int],
    longest: int,
    scale: float,
    causal: bool,
) -> Tensor:
    """[S, heads, h] on [S, key heads, h] -> [S, heads, h]: sequences one after another, each sees only itself.

    ``ends``: [n + 1] int32, where each begins and the last ends. ``lengths``: the same on the host, which is all that
    is read without a flash kernel. ``longest``: at least the longest of them.
    """
    if takes_lengths(query.dtype, query.device):
        flash = torch.ops.aten._flash_attention_forward
        out: Tensor = flash(query, key, value, ends, ends, longest, longest, 0.0, causal, False, scale=scale)[0]
        return out
    parts = []
    for some in zip(*(torch.split(x, list(lengths)) for x in (query, key, value)), strict=True):
        if len(some[0]) == 0:
            continue
        q, k, v = (x.transpose(0, 1)[None] for x in some)
        shared = query.shape[1] != key.shape[1]
        seen = scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=shared)
        parts.append(seen[0].transpose(0, 1))
    return torch.cat(parts)


def attend_cached(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scale: float) -> Tensor:
    """One column a row on what its row remembers: [B, heads, h] on [B, L, key heads, h] -> [B, heads, h].

    ``lengths``: [B] how many columns of the cache hold something, this query's own among them. Heads that share keys
    stand in the query's length (``folding``).
    """
    size, heads, width = query.shape
    folded = query.view(size, keys.shape[2], -1, width)
    seen = torch.arange(keys.shape[1], device=keys.device) < lengths[:, None]
    out = scaled_dot_product_attention(
        folded, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=seen[:, None, None], scale=scale
    )
    return out.reshape(size, heads, width)
