"""Encode the images of a batch in one call: Qwen2.5-VL's encoder over one varlen batch of patches.

Patches of all images stand one after another. Attention gets the ends of each window (or, in a full block, of each
image), and no other operation depends on images. The arithmetic is the stock encoder's. Three things make it fast on a
GPU: one attention call per block, which also applies RoPE; a SwiGLU whose width (3,420 in the 7B model) is padded with
zeros to a multiple of 64, which tensor cores need; and a captured graph of the whole pass for each set of sizes.

    features = PackedEncoder(visual)(pixels, [(1, 54, 72), (1, 36, 48)])          # [N, D], reading order
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear, pad

from stakes.models.fast import torch_ops
from stakes.models.fast.cuda_graphs import CudaGraphs
from stakes.models.fast.layers import is_silu
from stakes.models.fast.torch_ops import Segments
from stakes.models.fast.vision_encoder import accepts_one_frame, embed_patches, window_indices
from stakes.vision.deletion.exact import upload

MLP_MULTIPLE = 64
MAX_CAPTURED_PATCHES = 1 << 14  # more keep the GPU busy without being captured
MAX_SIZES = 128  # image sizes that are remembered, up to some megabytes each
Grid = Sequence[tuple[int, int, int]]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class EncoderLayout:
    """What a set of image sizes determines: P patches in N merged tokens.

    ``order``: [N] which merged token comes next, windows one after another; ``back``: [N] where each is after that, in
    reading order. ``cos``, ``sin``: [P, h], in that order. ``windows``, ``images``: the segments of window attention
    and of full attention. ``order`` may leave out some tokens of the images.
    """

    order: Tensor
    back: Tensor
    cos: Tensor
    sin: Tensor
    windows: Segments
    images: Segments


@dataclass(frozen=True)
class ImageSize:
    """What one image size determines: N merged tokens in windows.

    On the host: ``order``: [N] the tokens, windows one after another; ``back``: [N] where each is after that;
    ``owner``: [N] the window of each token of ``order``; ``lengths``: tokens of each window. On the device: ``cos``,
    ``sin``: [N, patches of a token, h], in reading order.
    """

    order: Ints
    back: Ints
    owner: Ints
    lengths: list[int]
    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, visual: Any, shape: tuple[int, int, int], device: torch.device) -> ImageSize:
        """Of images of (t, h, w) patches."""
        frames, rows, columns = shape
        windows = window_indices(visual, [shape])
        order, lengths = torch.cat(windows).numpy(), [len(window) for window in windows]
        merge = visual.spatial_merge_size
        positions = _patch_positions(rows, columns, merge).repeat(frames, 1).to(device)
        factors = visual.rotary_pos_emb(torch.zeros(1, device=device), positions)
        cos, sin = (x.view(len(order), merge**2, -1) for x in factors)
        return cls(order, order.argsort(), np.repeat(np.arange(len(lengths)), lengths), lengths, cos, sin)

    def whole(self) -> tuple[Ints, Ints, list[int]]:
        """Order, places and windows of all tokens."""
        return self.order, self.back, self.lengths

    def keep(self, tokens: Ints) -> tuple[Ints, Ints, list[int]]:
        """The same of [m] sorted tokens of a still image: their windows stay, without the empty ones."""
        place = np.full(len(self.order), -1)
        place[tokens] = np.arange(len(tokens))
        place = place[self.order]
        stays = place >= 0
        back = np.empty(len(tokens), dtype=np.int64)
        back[place[stays]] = np.arange(len(tokens))
        lengths = np.bincount(self.owner[stays])
        return self.order[stays], back, lengths[lengths > 0].tolist()


@dataclass
class PackedEncoder:
    """One Qwen2.5-VL encoder. ``ops``: ``torch_ops`` or ``triton_ops``."""

    visual: Any
    ops: Any = torch_ops
    graphs: CudaGraphs = field(init=False)
    _sizes: dict[tuple[int, int, int], ImageSize] = field(default_factory=dict, repr=False)
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
        """The layout of images of these (t, h, w), of which the encoder may read some tokens only.

        An image's windows stay together, because full blocks see whole images. All is placed on the host, and sent to
        the device together: the GPU waits for it.
        """
        sizes = {shape: self._size(shape) for shape in grid}
        starts = dict(zip(sizes, accumulate((len(one.order) for one in sizes.values()), initial=0), strict=False))
        placed: list[tuple[Ints, Ints, Ints]] = []  # order, back, row of the angles
        windows: list[int] = []
        images: list[int] = []
        tokens = count = 0
        unit = self.visual.spatial_merge_size**2
        for shape, some in zip(grid, kept or [None] * len(grid), strict=True):
            size = sizes[shape]
            order, back, lengths = size.whole() if some is None else size.keep(some.numpy())
            placed.append((order + tokens, back + count, order + starts[shape]))
            windows += [unit * length for length in lengths]
            images += [unit * len(order)] if some is not None else [shape[1] * shape[2]] * shape[0]
            tokens, count = tokens + len(size.order), count + len(order)
        device = self.graphs.device
        numbers = torch.from_numpy(np.stack([np.concatenate(one) for one in zip(*placed, strict=True)]))
        order, back, rows = upload(numbers, device)
        angles = [(size.cos, size.sin) for size in sizes.values()]
        cos, sin = angles[0] if len(angles) == 1 else map(torch.cat, zip(*angles, strict=True))
        segments = (Segments.of(lengths, device) for lengths in (windows, images))
        return EncoderLayout(order, back, cos[rows].flatten(0, 1), sin[rows].flatten(0, 1), *segments)

    def _size(self, shape: tuple[int, int, int]) -> ImageSize:
        if shape not in self._sizes:
            while len(self._sizes) >= MAX_SIZES:
                self._sizes.pop(next(iter(self._sizes)))
            self._sizes[shape] = ImageSize.of(self.visual, shape, self.graphs.device)
        return self._sizes[shape]

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
