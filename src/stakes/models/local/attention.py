"""Two changes to the attention of a stock decoder on one instance, for the length of a ``with`` block.

``gqa_without_repeat``: under a mask, transformers' sdpa copies every key once for each query head that shares it (3
times in a decoder with 6 heads on 2, 7 times in Qwen2.5-VL-7B), at every token and in every layer: a third of a step's
time on a CPU. Queries do not see each other, so the heads that share a key can stand in the query's length instead, and
nothing is copied:

    [B, heads, n, h]  ->  [B, key heads, heads / key heads * n, h]      (the mask's rows are repeated, which is little)

It is used where queries are few: a decoding step (n = 1), and a question on top of its page.

``last_token_prefill``: only the head that picks the next token reads the last layer's output, and only its last column.
So the last layer's attention runs as usual, which fills its cache, and the rest of the layer runs on one column:

    h = (x + attention(norm(x)))[:, -1:]        output = h + mlp(norm(h))          [B, 1, D] instead of [B, T, D]

Rows of a matrix product are independent, so the numbers are those of the whole pass. It saves 13 % of the embedded
reader's prefill, and 2 % with 28 layers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

LAYER_PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}


@contextmanager
def gqa_without_repeat(language_model: Any) -> Iterator[bool]:
    """Use ``gqa_attention`` in place of sdpa; yields whether it does (no other implementation is replaced).

    Inside, masks are passed whole ([B, 1, n, T]): transformers builds none for an attention that it does not know.
    """
    config = language_model.config
    if config._attn_implementation != "sdpa":
        yield False
        return
    name = f"stakes-gqa-{id(language_model)}"  # of this instance alone: no other model is touched
    ALL_ATTENTION_FUNCTIONS[name] = gqa_attention
    config._attn_implementation_internal = name
    try:
        yield True
    finally:
        config._attn_implementation_internal = "sdpa"
        ALL_ATTENTION_FUNCTIONS.pop(name)


def gqa_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **more: Any
) -> tuple[Tensor, None]:
    """[B, heads, n, h] queries on [B, key heads, T, h] -> [B, n, heads, h]; ``attention_mask``: [B, 1, n, T] bool."""
    size, heads, length, width = query.shape
    if attention_mask is None:
        out: Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, **more)[0]
        return out, None
    grouped = query.reshape(size, key.shape[1], -1, width)
    if length > 1:
        attention_mask = attention_mask.repeat(1, 1, heads // key.shape[1], 1)
    out = torch.nn.functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=attention_mask, scale=more.get("scaling")
    )
    return out.reshape(size, heads, length, -1).transpose(1, 2).contiguous(), None


@contextmanager
def last_token_prefill(language_model: Any, enabled: bool = True) -> Iterator[None]:
    """Let one language model return its last column only. A layer with other parts than ``LAYER_PARTS`` is kept."""
    layer = language_model.layers[-1]
    known = {name for name, _ in layer.named_children()} == LAYER_PARTS and "forward" not in layer.__dict__
    if not enabled or not known:
        yield
        return
    layer.forward = partial(_last_token_forward, layer)
    try:
        yield
    finally:
        del layer.forward


def _last_token_forward(layer: Any, hidden_states: Tensor, **kwargs: Any) -> Tensor:
    """[B, T, D] -> [B, 1, D]."""
    attention, _ = layer.self_attn(hidden_states=layer.input_layernorm(hidden_states), **kwargs)
    hidden = hidden_states[:, -1:] + attention[:, -1:]
    out: Tensor = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    return out
