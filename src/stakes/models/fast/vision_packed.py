"""How are the images of a batch encoded in one call? Qwen2.5-VL's encoder, all images and windows in one heap.

Patches of all images stand one after another; attention is told where each window (or, in a full block, each image)
ends, and everything else does not know of images. The arithmetic is the stock encoder's. Three things make it fast on a
GPU: one attention call a block, which turns its queries and keys, a gated product whose width (3,420 in the 7B model)
is filled up with zeros to a multiple of 64, which matrix units want, and a record of the whole pass for each set of
sizes (``graphs``).

    features = PackedEncoder(visual)(pixels, [(1, 54, 72), (1, 36, 48)])          # [N, D], reading order
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from stakes.models.fast import torch_ops as plain_ops
from stakes.models.fast.cuda_graphs import Graphs
from stakes.models.fast.vision_encoder import embed, takes_one_frame, windows

FILL = 64
SMALL = 1 << 14  # patches; more keep the GPU busy without being recorded
Grid = Sequence[tuple[int, int, int]]


@dataclass(frozen=True)
class Layout:
    """What a set of sizes determines: P patches in N merged tokens.

    ``order``: [N] which merged token comes next, windows side by side; ``back``: its inverse. ``cos``, ``sin``: [P, h],
    in that order. ``windows``, ``images``: where each ends, [n + 1] int32, with the lengths on the host.
    """

    order: Tensor
    back: Tensor
    cos: Tensor
    sin: Tensor
    windows: tuple[Tensor, list[int]]
    images: tuple[Tensor, list[int]]


@dataclass
class PackedEncoder:
    """One Qwen2.5-VL encoder. ``ops``: a module like ``plain_ops``."""

    visual: Any
    ops: Any = plain_ops
    graphs: Graphs = field(init=False)
    _layouts: dict[tuple[int, int, int], Layout] = field(default_factory=dict, repr=False)
    _recorded: dict[Any, tuple[Tensor, Layout]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.graphs = Graphs(self.visual.patch_embed.proj.weight.device, limit=32)
        self.mlps = [_mlp(block.mlp) for block in self.visual.blocks]

    @staticmethod
    def takes(visual: Any) -> bool:
        """Whether this is that encoder, unchanged."""
        blocks = getattr(visual, "fullatt_block_indexes", None) is not None and takes_one_frame(visual)
        return blocks and all(type(block.mlp.act_fn).__name__ in ("SiLU", "SiLUActivation") for block in visual.blocks)

    def __call__(self, pixels: Tensor, grid: Grid) -> Tensor:
        """[P, C] patches of images of these (t, h, w), one frame or two -> [N, D] merged features, reading order."""
        if len(pixels) > SMALL or not self.ops.takes_lengths(self.visual.merger.ln_q.weight.dtype, pixels.device):
            return self._encode(pixels, self._layout(grid))
        name = (tuple(grid), pixels.shape[1])
        if name not in self._recorded:
            if len(self._recorded) >= self.graphs.limit:
                self._recorded.clear()
                self.graphs.forget()
            self._recorded[name] = (pixels.clone(), self._layout(grid))
        held, one = self._recorded[name]
        held.copy_(pixels)
        found: Tensor = self.graphs(name, lambda: self._encode(held, one))
        return found.clone()  # the next record may use its memory

    def _layout(self, grid: Grid) -> Layout:
        for shape in grid:
            if shape not in self._layouts:
                self._layouts[shape] = layout(self.visual, shape, self.graphs.device)
        return side_by_side([self._layouts[shape] for shape in grid])

    def _encode(self, pixels: Tensor, one: Layout) -> Tensor:
        visual, ops = self.visual, self.ops
        unit = visual.spatial_merge_size**2
        x = embed(visual.patch_embed, pixels)
        x = x.view(-1, unit, x.shape[-1])[one.order].flatten(0, 1)
        more: Tensor | None = None
        for index, (block, (gate_up, bias, down, down_bias)) in enumerate(zip(visual.blocks, self.mlps, strict=True)):
            attn, first, second = block.attn, block.norm1, block.norm2
            if more is None:
                h = ops.norm(x, first.weight, first.variance_epsilon)
            else:
                x, h = ops.add_norm(x, more, first.weight, first.variance_epsilon)
            states = linear(h, attn.qkv.weight, attn.qkv.bias).view(len(x), 3, attn.num_heads, -1)
            ends, lengths = one.images if index in visual.fullatt_block_indexes else one.windows
            seen = ops.attend_turned(states, one.cos, one.sin, ends, lengths, max(lengths), attn.scaling)
            out = linear(seen.reshape(len(x), -1), attn.proj.weight, attn.proj.bias)
            x, h = ops.add_norm(x, out, second.weight, second.variance_epsilon)
            more = linear(ops.gated(linear(h, gate_up, bias)), down, down_bias)
        merger = visual.merger
        assert more is not None
        h = ops.add_norm(x, more, merger.ln_q.weight, merger.ln_q.variance_epsilon)[1]
        features: Tensor = merger.mlp(h.reshape(-1, unit * h.shape[-1]))[one.back]
        return features


def layout(visual: Any, shape: tuple[int, int, int], device: torch.device) -> Layout:
    """Order, ends and rotary factors of one image of (t, h, w) patches."""
    merge = visual.spatial_merge_size
    frames, rows, columns = shape
    found = windows(visual, [shape])
    order = torch.cat(found)
    places = _places(rows, columns, merge).repeat(frames, 1)
    like = torch.zeros(1, device=device)
    cos, sin = (
        x.view(len(order), merge**2, -1)[order.to(device)].flatten(0, 1)
        for x in visual.rotary_pos_emb(like, places.to(device))
    )
    parts, images = [len(window) * merge**2 for window in found], [rows * columns] * frames
    return Layout(
        order.to(device),
        order.argsort().to(device),
        cos,
        sin,
        (_ends(parts, device), parts),
        (_ends(images, device), images),
    )


def side_by_side(some: Sequence[Layout]) -> Layout:
    """Several images as one heap; an image's windows stay together, since full blocks see whole images."""
    if len(some) == 1:
        return some[0]
    device = some[0].order.device
    starts = [0, *accumulate(len(one.order) for one in some)]
    orders, backs = (
        torch.cat([getattr(one, name) + start for one, start in zip(some, starts, strict=False)])
        for name in ("order", "back")
    )
    cos, sin = (torch.cat([getattr(one, name) for one in some]) for name in ("cos", "sin"))
    parts = [length for one in some for length in one.windows[1]]
    images = [length for one in some for length in one.images[1]]
    return Layout(orders, backs, cos, sin, (_ends(parts, device), parts), (_ends(images, device), images))


def _ends(lengths: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32).to(device)


def _places(rows: int, columns: int, merge: int) -> Tensor:
    """[P, 2] (row, column) of the patches of one image, the patches of a merged token side by side."""
    row = torch.arange(rows)[:, None].expand(rows, columns)
    column = torch.arange(columns)[None].expand(rows, columns)
    shape = (rows // merge, merge, columns // merge, merge)
    return torch.stack([x.reshape(shape).transpose(1, 2).flatten() for x in (row, column)], -1)


def _mlp(mlp: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gate and up as one matrix and its bias, and down, filled up with zeros that add nothing."""
    more = -len(mlp.gate_proj.weight) % FILL
    both = (mlp.gate_proj, mlp.up_proj)
    with torch.inference_mode(False), torch.no_grad():
        weight = torch.cat([pad(part.weight, (0, 0, 0, more)) for part in both])
        bias = torch.cat([pad(part.bias, (0, more)) for part in both])
        return weight, bias, pad(mlp.down_proj.weight, (0, more)).contiguous(), mlp.down_proj.bias.detach()
