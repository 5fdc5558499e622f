"""What does a prefill need of the last decoder layer? Keys and values of every column, but the output of one.

Nobody reads the last layer's output but the head that picks the next token, and that looks at the last column only. So
the last layer attends as ever, which fills its cache, and then goes on with one column:

    h = (x + attention(norm(x)))[:, -1:]        output = h + mlp(norm(h))          [B, 1, D] instead of [B, T, D]

Rows of a matrix product know nothing of each other, so these are the numbers that the whole pass would give. Of the
embedded reader's prefill it saves 13 %; of a model with 28 layers 2 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor

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
