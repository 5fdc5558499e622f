"""Recompute the attention rows that a selector reads.

Fast attention kernels return no weights. Instead of running a whole model with eager attention, a selector recomputes
the few rows it reads: softmax(q_r . k / sqrt(h)) for the rows r of one layer, R x T instead of layers x T x T.
"""

from typing import Any

import torch
from torch import Tensor


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding, half-split layout: x cos + (-x_2, x_1) sin. x: [T, H, h]; cos, sin: [T, h]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos[:, None] + torch.cat((-second, first), dim=-1) * sin[:, None]


def decoder_rows(layer: Any, hidden: Tensor, cos: Tensor, sin: Tensor, rows: Tensor) -> Tensor:
    """Post-softmax causal attention of one decoder layer for the given query rows.

    ``hidden``: [T, D] input of the layer. ``cos``, ``sin``: [T, h]. ``rows``: [R] columns of the queries.
    Returns [H, R, T] in float32. Keys of grouped-query attention are shared by their group of heads.
    """
    attention = layer.self_attn
    key = decoder_keys(layer, hidden, cos, sin)
    query = attention.q_proj(layer.input_layernorm(hidden[rows])).view(len(rows), -1, attention.head_dim)
    if getattr(attention, "q_norm", None) is not None:  # Qwen3 normalizes queries and keys by head
        query = attention.q_norm(query)
    query = apply_rope(query, cos[rows], sin[rows])
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    logits = torch.einsum("rhd,thd->hrt", query, key).float() * attention.scaling
    future = torch.arange(len(hidden), device=rows.device)[None, :] > rows[:, None]
    probabilities: Tensor = logits.masked_fill(future, float("-inf")).softmax(-1)
    return probabilities


def decoder_keys(layer: Any, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[T, H, h] keys of one decoder layer after RoPE; ``hidden``: [T, D] input of the layer."""
    attention = layer.self_attn
    key: Tensor = attention.k_proj(layer.input_layernorm(hidden)).view(len(hidden), -1, attention.head_dim)
    if getattr(attention, "k_norm", None) is not None:
        key = attention.k_norm(key)
    return apply_rope(key, cos, sin)


def attention_received(query: Tensor, key: Tensor, segments: list[int], scaling: float, block: int = 512) -> Tensor:
    """Mean over heads and queries of the attention that each encoder position receives, [P] float32.

    ``query``, ``key``: [P, H, h], after RoPE. ``segments``: lengths of the sequences with attention within themselves
    only (windows, tiles); their sum is P. The P x P matrix is computed ``block`` rows at a time.
    """
    totals = []
    for q, k in zip(torch.split(query, segments), torch.split(key, segments), strict=True):
        total = torch.zeros(len(k), dtype=torch.float32, device=k.device)
        for rows in torch.split(q, block):
            weights = (torch.einsum("rhd,thd->hrt", rows, k).float() * scaling).softmax(-1)
            total += weights.sum(1).mean(0)
        totals.append(total / len(k))
    return torch.cat(totals)
