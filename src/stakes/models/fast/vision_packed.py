"""Encode the images of a batch in one call: Qwen2.5-VL's encoder over one varlen batch of patches.

Patches of all images stand one after another. Attention gets the ends of each window (or, in a full block, of each
image), and no other operation depends on images. The arithmetic is the stock encoder's. Three things make it fast on a
GPU: one attention call per block, which also applies RoPE; a SwiGLU whose width (3,420 in the 7B model) is padded with
zeros to a multiple of 64, which tensor cores need; and a captured graph of the whole pass for each set of sizes.

    features = PackedEncoder(visual)(pixels, [(1, 54, 72), (1, 36, 48)])          # [N, D], reading order
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from stakes.models.fast import torch_ops
from stakes.models.fast.cuda_graphs import CudaGraphs
from stakes.models.fast.layers import is_silu
from stakes.models.fast.torch_ops import Segments
from stakes.models.fast.vision_encoder import accepts_one_frame, embed_patches, keep_windows, window_indices
from stakes.vision.deletion.exact import upload

MLP_MULTIPLE = 64
MAX_CAPTURED_PATCHES = 1 << 14  # more keep the GPU busy without being captured
Grid = Sequence[tuple[int, int, int]]


@dataclass(frozen=True)
class EncoderLayout:
    """What a set of image sizes determines: P patches in N merged tokens.

    ``order``: [N] which merged token comes next, windows one after another; ``back``: [N] where each is after that, in
    reading order. ``cos``, ``sin``: [P, h], in that order. ``windows``, ``images``: the segments of window attention
    and of full attention. ``tokens``: those of the whole images, of which ``order`` may leave some out.
    """

    order: Tensor
    back: Tensor
    cos: Tensor
    sin: Tensor
    windows: Segments
    images: Segments
    tokens: int


@dataclass
class PackedEncoder:
    """One Qwen2.5-VL encoder. ``ops``: ``torch_ops`` or ``triton_ops``."""

    visual: Any
    ops: Any = torch_ops
    graphs: CudaGraphs = field(init=False)
    _layouts: dict[tuple[int, int, int], EncoderLayout] = field(default_factory=dict, repr=False)
    _captured: dict[Any, tuple[Tensor, EncoderLayout]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.graphs = CudaGraphs(self.visual.patch_embed.proj.weight.device, limit=32)
        self.mlps = [_padded_mlp(block.mlp) for block in self.visual.blocks]

    @staticmethod
    def supports(visual: Any) -> bool:
        """Whether this is Qwen2.5-VL's encoder, unchanged."""
        blocks = getattr(visual, "fullatt_block_indexes", None) is not None and accepts_one_frame(visual)
        return blocks and all(is_silu(block.mlp.act_fn) for block in visual.blocks)

    def __call__(self, pixels: Tensor, grid: Grid, kept: Sequence[Tensor | None] = ()) -> Tensor:
        """[P, C] patches of images of these (t, h, w), one frame or two -> [N, D] merged features, reading order.

        ``kept``: by image the [m] sorted tokens to encode, None for all. Such a layout hardly recurs, so that its pass
        is not captured.
        """
        if any(one is not None for one in kept):
            return self._encode(pixels, self.layout(grid, kept))
        varlen = self.ops.supports_varlen(self.visual.merger.ln_q.weight.dtype, pixels.device)
        if len(pixels) > MAX_CAPTURED_PATCHES or not varlen:
            return self._encode(pixels, self.layout(grid))
        name = (tuple(grid), pixels.shape[1])
        if name not in self._captured:
            if len(self._captured) >= self.graphs.limit:
                self._captured.clear()
                self.graphs.clear()
            self._captured[name] = (pixels.clone(), self.layout(grid))
        buffer, layout = self._captured[name]
        buffer.copy_(pixels)
        features: Tensor = self.graphs(name, lambda: self._encode(buffer, layout))
        return features.clone()  # the next graph may use its memory

    def layout(self, grid: Grid, kept: Sequence[Tensor | None] = ()) -> EncoderLayout:
        """The layout of images of these (t, h, w), of which the encoder may read some tokens only."""
        for shape in grid:
            if shape not in self._layouts:
                self._layouts[shape] = image_layout(self.visual, shape, self.graphs.device)
        whole = [self._layouts[shape] for shape in grid]
        some = kept or [None] * len(grid)
        return concatenate(
            [
                one if tokens is None else keep_layout(self.visual, shape, one, tokens)
                for one, shape, tokens in zip(whole, grid, some, strict=True)
            ]
        )

    def _encode(self, pixels: Tensor, layout: EncoderLayout) -> Tensor:
        visual, ops = self.visual, self.ops
        unit = visual.spatial_merge_size**2
        x = embed_patches(visual.patch_embed, pixels.view(-1, unit, pixels.shape[-1])[layout.order].flatten(0, 1))
        more: Tensor | None = None
        for index, (block, (gate_up, bias, down, down_bias)) in enumerate(zip(visual.blocks, self.mlps, strict=True)):
            attn, first, second = block.attn, block.norm1, block.norm2
            if more is None:
                h = ops.norm(x, first.weight, first.variance_epsilon)
            else:
                x, h = ops.add_norm(x, more, first.weight, first.variance_epsilon)
            qkv = linear(h, attn.qkv.weight, attn.qkv.bias).view(len(x), 3, attn.num_heads, -1)
            segments = layout.images if index in visual.fullatt_block_indexes else layout.windows
            out = ops.rope_attention(qkv, layout.cos, layout.sin, segments, attn.scaling)
            out = linear(out.reshape(len(x), -1), attn.proj.weight, attn.proj.bias)
            x, h = ops.add_norm(x, out, second.weight, second.variance_epsilon)
            more = linear(ops.swiglu(linear(h, gate_up, bias)), down, down_bias)
        merger = visual.merger
        assert more is not None
        h = ops.add_norm(x, more, merger.ln_q.weight, merger.ln_q.variance_epsilon)[1]
        features: Tensor = merger.mlp(h.reshape(-1, unit * h.shape[-1]))[layout.back]
        return features


def image_layout(visual: Any, shape: tuple[int, int, int], device: torch.device) -> EncoderLayout:
    """The layout of one image of (t, h, w) patches."""
    merge = visual.spatial_merge_size
    frames, rows, columns = shape
    windows = window_indices(visual, [shape])
    order = torch.cat(windows)
    positions = _patch_positions(rows, columns, merge).repeat(frames, 1)
    cos, sin = (
        x.view(len(order), merge**2, -1)[order.to(device)].flatten(0, 1)
        for x in visual.rotary_pos_emb(torch.zeros(1, device=device), positions.to(device))
    )
    window_segments = Segments.of([len(window) * merge**2 for window in windows], device)
    image_segments = Segments.of([rows * columns] * frames, device)
    back = order.argsort().to(device)
    return EncoderLayout(order.to(device), back, cos, sin, window_segments, image_segments, len(order))


def keep_layout(visual: Any, shape: tuple[int, int, int], whole: EncoderLayout, kept: Tensor) -> EncoderLayout:
    """The layout of one still image of which the encoder reads [m] sorted tokens; windows and angles stay theirs."""
    merge, device = visual.spatial_merge_size, whole.order.device
    order, lengths = keep_windows(window_indices(visual, [shape]), kept)
    order, back = upload(torch.stack((kept[order], order.argsort())), device)
    rows = whole.back[order]
    cos, sin = (x.view(whole.tokens, merge**2, -1)[rows].flatten(0, 1) for x in (whole.cos, whole.sin))
    windows = Segments.of([merge**2 * length for length in lengths], device)
    return EncoderLayout(order, back, cos, sin, windows, Segments.of([len(rows) * merge**2], device), whole.tokens)


def concatenate(layouts: Sequence[EncoderLayout]) -> EncoderLayout:
    """Several images as one varlen batch; an image's windows stay together, because full blocks see whole images."""
    if len(layouts) == 1:
        return layouts[0]
    device = layouts[0].order.device
    starts = {"order": accumulate((one.tokens for one in layouts), initial=0)}
    starts["back"] = accumulate((len(one.order) for one in layouts), initial=0)
    orders, backs = (
        torch.cat([getattr(one, name) + start for one, start in zip(layouts, starts[name], strict=False)])
        for name in ("order", "back")
    )
    cos, sin = (torch.cat([getattr(one, name) for one in layouts]) for name in ("cos", "sin"))
    windows, images = (
        Segments.of([length for one in layouts for length in getattr(one, name).lengths], device)
        for name in ("windows", "images")
    )
    return EncoderLayout(orders, backs, cos, sin, windows, images, sum(one.tokens for one in layouts))


def _patch_positions(rows: int, columns: int, merge: int) -> Tensor:
    """[P, 2] (row, column) of the patches of one image, the patches of a merged token next to each other."""
    row = torch.arange(rows)[:, None].expand(rows, columns)
    column = torch.arange(columns)[None].expand(rows, columns)
    shape = (rows // merge, merge, columns // merge, merge)
    return torch.stack([x.reshape(shape).transpose(1, 2).flatten() for x in (row, column)], -1)


def _padded_mlp(mlp: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gate and up as one matrix with its bias, and down, padded with zeros that add nothing."""
    more = -len(mlp.gate_proj.weight) % MLP_MULTIPLE
    both = (mlp.gate_proj, mlp.up_proj)
    with torch.inference_mode(False), torch.no_grad():
        weight = torch.cat([pad(part.weight, (0, 0, 0, more)) for part in both])
        bias = torch.cat([pad(part.bias, (0, more)) for part in both])
        return weight, bias, pad(mlp.down_proj.weight, (0, more)).contiguous(), mlp.down_proj.bias.detach()
