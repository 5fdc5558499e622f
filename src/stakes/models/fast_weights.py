"""Which matrices does a decoder layer read, and in how few reads?

The query, key and value matrices stand one below the other, and so do the gate's and the up projection's: one product
instead of three and of two, which a single column needs to be fast on a GPU. There the model's own parameters become
views of the joined ones, so no weight is held twice and the stock model goes on working on the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stakes.models.last_column import PARTS

ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
GATED = {"gate_proj", "up_proj", "down_proj", "act_fn"}


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer; matrices are [out, in]. ``widths``: rows of query, key and value in ``qkv``."""

    first_norm: Tensor
    second_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    gate_up: Tensor
    down: Tensor
    widths: tuple[int, int, int]
    head: int  # width of one head
    scale: float
    eps: float
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None


def known(language_model: Any) -> bool:
    """Whether every layer is of the one kind that all families here share, and sees all that is before it."""
    sliding = "sliding_attention" in (getattr(language_model.config, "layer_types", None) or [])
    return not sliding and all(_known(layer) for layer in language_model.layers)


def _known(layer: Any) -> bool:
    parts = {name for name, _ in layer.named_children()}
    attention = {name for name, _ in layer.self_attn.named_children()}
    gated = {name for name, _ in layer.mlp.named_children()}
    same = parts == PARTS and attention - {"q_norm", "k_norm"} == ATTENTION and gated == GATED
    return same and layer.mlp.down_proj.bias is None and _is_silu(layer.mlp.act_fn)


def _is_silu(act: Any) -> bool:
    return type(act).__name__ in ("SiLU", "SiLUActivation")


def layer_weights(layer: Any) -> LayerWeights:
    """The weights of one stock layer, joined."""
    attention, mlp = layer.self_attn, layer.mlp
    three = (attention.q_proj, attention.k_proj, attention.v_proj)
    biased = three[0].bias is not None
    normed = hasattr(attention, "q_norm")
    return LayerWeights(
        first_norm=layer.input_layernorm.weight,
        second_norm=layer.post_attention_layernorm.weight,
        qkv=joined([part.weight for part in three]),
        qkv_bias=joined([part.bias for part in three]) if biased else None,
        out=attention.o_proj.weight,
        out_bias=attention.o_proj.bias,
        gate_up=joined([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=mlp.down_proj.weight,
        widths=(len(three[0].weight), len(three[1].weight), len(three[2].weight)),
        head=int(attention.head_dim),
        scale=float(attention.scaling),
        eps=float(layer.input_layernorm.variance_epsilon),
        query_norm=attention.q_norm.weight if normed else None,
        key_norm=attention.k_norm.weight if normed else None,
    )


def joined(parts: Sequence[Any]) -> Tensor:
    """[sum of rows, ...]: these parameters one below the other; on a GPU they become views of what is returned."""
    first = parts[0]
    ends = [part.data_ptr() + part.numel() * part.element_size() for part in parts]
    if all(part.data_ptr() == end for part, end in zip(parts[1:], ends, strict=False)) and _one_storage(parts):
        rows = sum(len(part) for part in parts)
        whole: Tensor = first.detach().as_strided((rows, *first.shape[1:]), first.stride(), first.storage_offset())
        return whole
    with torch.inference_mode(False), torch.no_grad():  # parameters must stay ones that anybody can use
        whole = torch.cat([part.detach() for part in parts])
        if whole.is_cuda and not first.is_inference():  # what was made in inference mode cannot take a view's place
            for part, own in zip(parts, torch.split(whole, [len(part) for part in parts]), strict=True):
                part.data = own
    return whole


def _one_storage(parts: Sequence[Any]) -> bool:
    storage = parts[0].untyped_storage().data_ptr()
    return all(part.is_contiguous() and part.untyped_storage().data_ptr() == storage for part in parts)
