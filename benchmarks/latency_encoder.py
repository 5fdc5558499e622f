"""Where the encoder's time goes: its matrix products, its attention and the operations between, each measured alone.

Same shapes, same weights and as many layers as in the encoder itself, on random numbers; each kind is captured and
replayed (``cuda_graphs``), so that launching its kernels costs nothing. The rates show which limit a kind is under:
operations per second for products and attention, bytes per second for the rest. ``patches`` is what a batch of PIL
images costs before its encoder begins: reading the pixels, normalizing, cutting, and the copy to the device; ``answer``
counts the reading as host time and the rest as the encoder's. Window attention includes RoPE, which is one operation
there; ``between: turns`` is the RoPE of the layers with attention over whole images.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.latency_bench import Bench
from benchmarks.latency_floors import clocked, encoder, wait

from stakes.models.fast.cuda_graphs import CudaGraphs
from stakes.models.fast.torch_ops import Segments
from stakes.models.fast.vision_encoder import embed_patches
from stakes.models.fast.vision_packed import EncoderLayout, PackedEncoder


@torch.inference_mode()
def encoder_by_kind(bench: Bench) -> dict[str, Any]:
    """For one image and for the larger batch, at full size."""
    return {f"batch {count}": _by_kind(bench, count) for count in (1, bench.options.batch)}


def _by_kind(bench: Bench, count: int) -> dict[str, Any]:
    model, one = bench.model, bench.model._encoder
    assert one is not None
    pages = bench.pages(count, *bench.options.page)
    pixels, grid = patches(model, pages)
    repeats = 5 if count == 1 else 3
    layout = one.layout(grid)
    whole = 1000 * clocked(lambda: one(pixels, grid), bench.device, repeats)
    found: dict[str, Any] = {"patches_ms": 1000 * clocked(lambda: patches(model, pages), bench.device, repeats)}
    found["encoder_ms"], found["floor_ms"] = whole, 1000 * encoder(model.model, bench.rate, grid)
    kinds = {**products(one, pixels), **attention(one, layout), **between(one, layout)}
    for name, (work, operations, moved) in kinds.items():
        ms = replayed(work, bench.device, repeats)
        found[name] = {"ms": ms, "TFLOP_per_s": operations / ms / 1e9} if operations else {"ms": ms}
        found[name]["TB_per_s"] = moved / ms / 1e9
    found["sum_of_kinds_ms"] = sum(found[name]["ms"] for name in kinds)
    return found


Kind = tuple[Callable[[], Any], float, float]  # the work, its operations, and the bytes that it must move


def patches(model: Any, pages: Sequence[Any]) -> tuple[Tensor, list[tuple[int, int, int]]]:
    """As ``QwenVL.encode_many``: PIL images -> [P, C] on the device, and (t, h, w) of each."""
    found = model.pack_patches(pages, [True] * len(pages))
    return found.patches, found.grid


def products(one: PackedEncoder, pixels: Tensor) -> dict[str, Kind]:
    """Of all layers, of the patches' embedding and of the merger."""
    visual, rows = one.visual, len(pixels)
    unit = visual.spatial_merge_size**2
    weight = visual.patch_embed.proj.weight
    width = len(weight)
    size = weight.element_size()
    names: dict[str, list[tuple[Tensor, Tensor]]] = {"qkv": [], "proj": [], "gate and up": [], "down": []}
    for block, (gate_up, bias, down, down_bias) in zip(visual.blocks, one.mlps, strict=True):
        names["qkv"].append((block.attn.qkv.weight, block.attn.qkv.bias))
        names["proj"].append((block.attn.proj.weight, block.attn.proj.bias))
        names["gate and up"].append((gate_up, bias))
        names["down"].append((down, down_bias))
    found: dict[str, Kind] = {}
    for name, pairs in names.items():
        x = pixels.new_empty(rows, pairs[0][0].shape[1], dtype=weight.dtype).normal_()
        numbers = sum(w.numel() for w, _ in pairs)
        moved = size * (numbers + len(pairs) * rows * sum(pairs[0][0].shape))
        found[f"products: {name}"] = (partial(_all, x, pairs), 2.0 * rows * numbers, float(moved))
    merged = pixels.new_empty(rows // unit, unit * width, dtype=weight.dtype).normal_()
    numbers = sum(p.numel() for p in visual.merger.mlp.parameters())
    ends = 2.0 * rows * pixels.shape[1] * width + 2.0 * len(merged) * numbers
    moved = size * (pixels.numel() + rows * width + merged.numel() + numbers)
    found["products: embedding and merger"] = (
        lambda: (embed_patches(visual.patch_embed, pixels), visual.merger.mlp(merged)),
        ends,
        float(moved),
    )
    return found


def _all(x: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    for weight, bias in pairs:
        linear(x, weight, bias)


def attention(one: PackedEncoder, layout: EncoderLayout) -> dict[str, Kind]:
    """Of the layers with windows, which apply RoPE too, and of those with attention over the whole image."""
    visual = one.visual
    attn = visual.blocks[0].attn
    like = attn.qkv.weight
    states = like.new_empty(len(layout.cos), 3, attn.num_heads, layout.cos.shape[1]).normal_()
    full = len(visual.fullatt_block_indexes)
    layers, windows, images = len(visual.blocks) - full, layout.windows, layout.images
    moved = states.element_size() * states.numel() * 4 / 3

    def operations(segments: Segments) -> float:
        return float(4 * attn.num_heads * layout.cos.shape[1] * sum(length**2 for length in segments.lengths))

    def see_windows() -> None:
        for _ in range(layers):
            one.ops.rope_attention(states, layout.cos, layout.sin, windows, attn.scaling)

    def see_images() -> None:
        for _ in range(full):
            one.ops.varlen_attention(*states.unbind(1), images, attn.scaling, False)

    return {
        "attention: windows": (see_windows, layers * operations(windows), layers * (moved + _angles(layout))),
        "attention: whole images": (see_images, full * operations(images), full * moved),
    }


def _angles(layout: EncoderLayout) -> float:
    """Bytes of cosines and sines."""
    return 2.0 * layout.cos.numel() * layout.cos.element_size()


def between(one: PackedEncoder, layout: EncoderLayout) -> dict[str, Kind]:
    """Norms with their sums, RoPE of whole images, SwiGLU, the order of windows there and back."""
    visual, ops, depth = one.visual, one.ops, len(one.visual.blocks)
    first, attn = visual.blocks[0].norm1, visual.blocks[0].attn
    rows, head = layout.cos.shape
    width, size = len(first.weight), first.weight.element_size()
    wide = one.mlps[0][2].shape[1]
    make = first.weight.new_empty
    x, more, both = make(rows, width).normal_(), make(rows, width).normal_(), make(rows, 2 * wide).normal_()
    rotated = make(rows, 3, attn.num_heads, head).normal_()[:, :2].flatten(1, 2)
    unit = visual.spatial_merge_size**2
    tokens = make(rows // unit, visual.merger.mlp[-1].weight.shape[0]).normal_()
    eps = first.variance_epsilon
    full = len(visual.fullatt_block_indexes)

    def times(count: int, work: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: [work() for _ in range(count)][-1]

    norms = 2 * depth + 1
    return {
        "between: norms": (
            times(norms, lambda: ops.add_norm(x, more, first.weight, eps)),
            0.0,
            float(norms * 4 * x.numel() * size),
        ),
        "between: turns": (
            times(full, lambda: ops.apply_rope(rotated, layout.cos, layout.sin)),
            0.0,
            full * (2 * rotated.numel() * size + _angles(layout)),
        ),
        "between: gates": (times(depth, lambda: ops.swiglu(both)), 0.0, depth * 1.5 * both.numel() * size),
        "between: order of windows": (
            lambda: (x.view(-1, unit, width)[layout.order], tokens[layout.back]),
            0.0,
            2.0 * size * (x.numel() + tokens.numel()),
        ),
    }


def replayed(work: Callable[[], Any], device: str, repeats: int) -> float:
    """Milliseconds of work that is captured first, so that launching its kernels costs nothing."""
    if device == "cpu":
        return 1000 * clocked(work, device, 1)
    graphs = CudaGraphs(torch.device(device))
    for _ in range(3):
        graphs("work", work)
    wait(device)
    began = time.perf_counter()
    for _ in range(repeats):
        graphs("work", work)
    wait(device)
    return 1000 * (time.perf_counter() - began) / repeats
