"""How is a cache read once, where several heads share their keys?

Under a mask, transformers' sdpa copies every key once for each query head that reads it (3 times in a decoder with 6
heads on 2, 7 times in Qwen2.5-VL-7B), at every token and in every layer: a third of a step's time on a CPU. Queries do
not see each other, so the heads that share a key can stand in the query's length instead, and nothing is copied:

    [B, heads, n, h]  ->  [B, key heads, heads / key heads * n, h]      (the mask's rows are repeated, which is little)

Used where queries are few: a decoding step (n = 1), and a question on top of its page.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **more: Any
) -> tuple[Tensor, None]:
    """[B, heads, n, h] queries on [B, key heads, T, h] -> [B, n, heads, h]; ``attention_mask``: [B, 1, n, T] bool."""
    size, heads, length, width = query.shape
    if attention_mask is None:
        out: Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, **more)[0]
        return out, None
    folded = query.reshape(size, key.shape[1], -1, width)
    if length > 1:
        attention_mask = attention_mask.repeat(1, 1, heads // key.shape[1], 1)
    out = torch.nn.functional.scaled_dot_product_attention(
        folded, key, value, attn_mask=attention_mask, scale=more.get("scaling")
    )
    return out.reshape(size, heads, length, -1).transpose(1, 2).contiguous(), None


@contextmanager
def folding(language_model: Any) -> Iterator[bool]:
    """Let one language model attend so for the length of the block; says whether it does (only instead of sdpa).

    Inside, masks are passed whole ([B, 1, n, T]): transformers builds none for an attention that it does not know.
    """
    config = language_model.config
    if config._attn_implementation != "sdpa":
        yield False
        return
    name = f"stakes-folded-{id(language_model)}"  # this instance's own: no other model is touched
    ALL_ATTENTION_FUNCTIONS[name] = attend
    config._attn_implementation_internal = name
    try:
        yield True
    finally:
        config._attn_implementation_internal = "sdpa"
        ALL_ATTENTION_FUNCTIONS.pop(name)


# What does a prefill need of the last decoder layer? Keys and values of every column, but the output of one.
#
# Nobody reads the last layer's output but the head that picks the next token, and that looks at the last column only.
# So
# the last layer attends as ever, which fills its cache, and then goes on with one column:
#
#     h = (x + attention(norm(x)))[:, -1:]        output = h + mlp(norm(h))          [B, 1, D] instead of [B, T, D]
#
# Rows of a matrix product know nothing of each other, so these are the numbers that the whole pass would give. Of the
# embedded reader's prefill it saves 13 %; of a model with 28 layers 2 %.


PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}


@contextmanager
def last_column(language_model: Any, wanted: bool = True) -> Iterator[None]:
    """Let one language model return its last column for the length of the block; no other layer, no other model.

    A layer with other parts than ``PARTS`` adds them up in a way of its own, and is left as it is.
    """
    layer = language_model.layers[-1]
    known = {name for name, _ in layer.named_children()} == PARTS and "forward" not in layer.__dict__
    if not wanted or not known:
        yield
        return
    layer.forward = partial(_forward, layer)
    try:
        yield
    finally:
        del layer.forward


def _forward(layer: Any, hidden_states: Tensor, **kwargs: Any) -> Tensor:
    """[B, T, D] -> [B, 1, D]."""
    attended, _ = layer.self_attn(hidden_states=layer.input_layernorm(hidden_states), **kwargs)
    hidden = hidden_states[:, -1:] + attended[:, -1:]
    out: Tensor = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    return out
