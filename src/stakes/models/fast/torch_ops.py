"""What does a layer do between its matrix products? The same few operations, in plain torch, on any device.

A module with the same functions and faster kernels can stand in for this one (``fast_decode.FastDecoder(ops=...)``);
these are the reference that it is compared with.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

# Whole images of one size go to cuDNN's attention: 32 of 3,888 patches take it 6.6 ms on an H200, flash 9.3. It plans
# 46 to 910 ms for each new shape, which a shape that does not come back would pay for nothing.
LONG, MANY, AGAIN = 512, 1 << 14, 8  # patches an image and in all; how often flash takes a shape before
CUDNN_FIRST = ((9, 0), (10, 0))  # compute capabilities on which torch itself prefers cuDNN's attention
SHAPES = 4096  # counted at most
_come: Counter[tuple[int, int]] = Counter()  # how often so many images of so many patches have come
_refused: list[str] = []  # the error for which cuDNN's attention is not asked again


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


def are_alike(lengths: Sequence[int], dtype: torch.dtype, device: torch.device, causal: bool) -> bool:
    """Whether these are whole images of one size, enough for ``attend_alike``; windows are shorter.

    Causal sequences are prompts, whose record is replayed with other ``ends``: what the host knows of them is old. Few
    patches are recorded too (``vision_packed.SMALL``), and no plan is to be made while one records.
    """
    if not takes_lengths(dtype, device) or causal or not LONG <= min(lengths) == max(lengths):
        return False
    return len(lengths) * lengths[0] > MANY


def comes_again(count: int, size: int) -> bool:
    """Count this shape; whether it has come so often before that a plan for it will pay."""
    if len(_come) >= SHAPES:
        _come.clear()
    _come[count, size] += 1
    return _come[count, size] > AGAIN


def attend_alike(query: Tensor, key: Tensor, value: Tensor, count: int, scale: float) -> Tensor | None:
    """[count * n, heads, h] three times -> the same: sequences of n in cuDNN's attention, or None where it has none.

    The kernel is called by name, since to choose it by ``sdpa_kernel`` would forbid all others in every thread. Nothing
    is copied: [count, heads, n, h] are views.
    """
    if _refused or torch.cuda.get_device_capability(query.device) not in CUDNN_FIRST:
        return None
    q, k, v = (x.view(count, -1, *x.shape[1:]).transpose(1, 2) for x in (query, key, value))
    if not can_use_cudnn_attention(SDPAParams(q, k, v, None, 0.0, False, False)):
        return None
    cudnn = torch.ops.aten._scaled_dot_product_cudnn_attention
    try:
        out: Tensor = cudnn(q, k, v, None, torch.is_grad_enabled(), scale=scale)[0]
    except torch.OutOfMemoryError:  # which says nothing of the next time
        raise
    except RuntimeError as error:
        _refused.append(str(error))
        warnings.warn(f"cuDNN's attention fails, flash attention takes its place: {error}", stacklevel=2)
        return None
    return out.transpose(1, 2).flatten(0, 1)


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
    is read without a flash kernel, and for images of one size (``are_alike``). ``longest``: at least the longest.
    """
    if takes_lengths(query.dtype, query.device):
        if are_alike(lengths, query.dtype, query.device, causal) and comes_again(len(lengths), lengths[0]):
            found = attend_alike(query, key, value, len(lengths), scale)
            if found is not None:
                return found
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


def attend_turned(
    states: Tensor, cos: Tensor, sin: Tensor, ends: Tensor, lengths: Sequence[int], longest: int, scale: float
) -> Tensor:
    """[S, 3, heads, h] by [S, h] -> [S, heads, h]: queries and keys are turned, and ``attend_packed`` sees them.

    ``states``: queries, keys and values as one matrix product leaves them.
    """
    query, key = turn(states[:, :2].flatten(1, 2), cos, sin).chunk(2, 1)  # together, so that angles are read once
    return attend_packed(query, key, states[:, 2], ends, lengths, longest, scale, False)


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
