"""How does a batch run through LLaVA-OneVision, fast? Tiles as one batch of short sequences, questions as ever.

The language model, its questions and its deletion are ``forward.py``'s; only the encoder and the order of its tokens
are LLaVA's own: the whole page squashed into one tile, then the rows of the page's canvas of tiles, padding cut off, a
newline behind each row. ``python -m training.check --size llava`` compares with the stock model and its processor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from training.attention import full_attention
from training.forward import FastForward, Prefix
from training.heads import Targets, targets
from training.images import augment, channel, normalise, resize, scale
from training.reader import MEAN, STD
from training.reader_llava import CAP, FAMILY, MOST_TILES, PATCH, SIDE, TILE

from stakes.vision.geometry.ladder import ladder
from stakes.vision.geometry.tiles import AnyRes


class Canvas(Prefix):
    """An image of ``width x height`` pixels as LLaVA's processor shows it, and where each token stands.

    The canvas of ``rows x columns`` tiles holds the image enlarged to ``inner`` (height, width) pixels at ``at`` (top,
    left); of its grid of tokens ``gh x gw`` remain, from row and column ``cut`` on.
    """

    def __init__(self, model: nn.Module, height: int, width: int, system: bool, device: torch.device) -> None:
        self.height, self.width = height, width
        self.columns, self.rows = AnyRes(TILE, SIDE, MOST_TILES, CAP).canvas(width, height)
        full_h, full_w = self.rows * TILE, self.columns * TILE
        if full_w / width < full_h / height:
            self.inner = min(math.ceil(height * (full_w / width)), full_h), full_w
        else:
            self.inner = full_h, min(math.ceil(width * (full_h / height)), full_w)
        self.at = (full_h - self.inner[0]) // 2, (full_w - self.inner[1]) // 2
        high, wide = self.rows * SIDE, self.columns * SIDE
        self.cut = (0, 0)
        if width / height > wide / high:
            self.cut = (high - int(round(height * (wide / width), 7))) // 2, 0
        else:
            self.cut = 0, (wide - int(round(width * (high / height), 7))) // 2
        self.gh, self.gw = high - 2 * self.cut[0], wide - 2 * self.cut[1]
        if math.sqrt(self.gh * self.gw / (CAP * SIDE**2)) > 1.1:
            raise ValueError(f"{width}x{height} takes more than {CAP} tiles, which the model would shrink: not trained")
        self.pack = self._pack().to(device)
        rotary = model.model.language_model.rotary_emb
        super().__init__(system, torch.arange(len(self.pack))[None], rotary.inv_freq, device)

    def _pack(self) -> Tensor:
        """(tokens,) places among [base tile, tiles, newline] in the order that the language model reads."""
        y = torch.arange(self.gh)[:, None] + self.cut[0]
        x = torch.arange(self.gw)[None] + self.cut[1]
        tile = 1 + (y // SIDE) * self.columns + x // SIDE
        place = (tile * SIDE + y % SIDE) * SIDE + x % SIDE
        newline = torch.full((self.gh, 1), (1 + self.rows * self.columns) * SIDE**2)
        return torch.cat([torch.arange(SIDE**2), torch.cat([place, newline], 1).flatten()])

    def show(self, image: Tensor, dtype: torch.dtype, noise: bool, colour: bool) -> Tensor:
        """(b, 1 + tiles, SIDE * SIDE, 3 * PATCH * PATCH) normalised patches, the squashed page first."""
        x = resize(image.float().div_(255), self.height, self.width)
        x = augment(x, colour) if noise else x
        canvas = x.new_zeros(
            len(x), self.rows * TILE, 3, self.columns * TILE
        )  # the processor pads before it normalises
        (top, left), (high, wide) = self.at, self.inner
        canvas[:, top : top + high, :, left : left + wide] = scale(x, high, wide)
        return torch.cat([cut(scale(x, TILE, TILE), dtype), cut(canvas, dtype)], 1)

    def targets(self, glyphs: Tensor, width: int, height: int) -> Targets:
        """Of the tiles' tokens alone; the squashed page and the newlines have none."""
        factor = [2 * self.inner[i] / side / PATCH for i, side in enumerate((height, width))]
        shift = [2 * (self.at[i] / PATCH - self.cut[i]) for i in (0, 1)]
        ocr, fields = targets(glyphs, self.gh, self.gw, (factor[1], shift[1]), (factor[0], shift[0]))
        return self._among(ocr), self._among(fields[..., None])[..., 0]

    def cells(self, tokens: Tensor) -> Tensor:
        """(b, tokens, n) -> (b, gh * gw, n): those of the tiles, without the squashed page and the newlines."""
        return tokens[:, SIDE**2 :].unflatten(1, (self.gh, self.gw + 1))[:, :, :-1].flatten(1, 2)

    def seen(self, x: Tensor) -> Tensor:
        """Patches as ``show`` gives them -> the pixels in the ``cells``, (b, gh * PATCH, 3, gw * PATCH) in 0..1."""
        canvas = x[:, 1:].float().view(len(x), self.rows, self.columns, SIDE, SIDE, 3, PATCH, PATCH)
        canvas = canvas.permute(0, 1, 3, 6, 5, 2, 4, 7).reshape(len(x), self.rows * TILE, 3, self.columns * TILE)
        (top, left), size = self.cut, PATCH
        part = canvas[:, top * size : (top + self.gh) * size, :, left * size : (left + self.gw) * size]
        return part * channel(STD, x.device) + channel(MEAN, x.device)

    def _among(self, values: Tensor) -> Tensor:
        """(b, cells, n) -> (b, tokens, n), -100 where there is no cell."""
        rows = F.pad(values.unflatten(1, (self.gh, self.gw)), (0, 0, 0, 1), value=-100).flatten(1, 2)
        return F.pad(rows, (0, 0, SIDE**2, 0), value=-100)


def cut(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A canvas (b, h, 3, w) in 0..1 -> normalised patches (b, tiles, SIDE ** 2, 3 * PATCH ** 2)."""
    b, h, _, w = x.shape
    x = normalise(x).to(dtype).view(b, h // TILE, SIDE, PATCH, 3, w // TILE, SIDE, PATCH)
    return x.permute(0, 1, 5, 2, 6, 4, 3, 7).reshape(b, -1, SIDE**2, 3 * PATCH**2)


def tile_pre(x, norm, bias, qw, qb, kw, kb, vw, vb, heads: int):  # noqa: D103
    h, n = F.layer_norm(x, x.shape[-1:], norm, bias, 1e-6), x.shape[0]
    q, k = F.linear(h, qw, qb).view(n, heads, -1), F.linear(h, kw, kb).view(n, heads, -1)
    return q, k, F.linear(h, vw, vb).view(n, heads, -1)


def tile_post(x, a, ow, ob, norm, bias, w1, b1, w2, b2):  # noqa: D103
    x = x + F.linear(a, ow, ob)
    h = F.layer_norm(x, x.shape[-1:], norm, bias, 1e-6)
    return x + F.linear(F.gelu(F.linear(h, w1, b1), approximate="tanh"), w2, b2)


class LlavaForward(FastForward):
    """``FastForward`` over a stock ``LlavaOnevisionForConditionalGeneration``."""

    pieces: tuple[Callable[..., Any], ...] = (tile_pre, tile_post)

    def geometry(self, gh: int, gw: int, system: bool, device: torch.device) -> Canvas:
        """The processor is given a page of ``gh x gw`` cells of 28 pixels; it then chooses the canvas."""
        return self.canvas(gh * 28, gw * 28, system, device)

    def canvas(self, height: int, width: int, system: bool, device: torch.device) -> Canvas:
        """An image of this size in pixels; cached."""
        key = (height, width, system)
        if key not in self.geometries:
            self.geometries[key] = Canvas(self.model, height, width, system, device)
        return self.geometries[key]

    def fitted(self, budget: int, width: int, height: int, device: torch.device) -> Canvas | None:
        """The page on the highest rung of its ladder that the budget affords."""
        within = [rung for rung in ladder(width, height, FAMILY) if rung.tokens <= budget]
        return self.canvas(within[-1].height, within[-1].width, False, device) if within else None

    def encode(self, x: Tensor, geo: Canvas) -> Tensor:
        """Patches (b, tiles, SIDE ** 2, 3 * PATCH ** 2) -> visual tokens (b, tokens, width), in reading order."""
        model = self.model.model
        tower = getattr(model.vision_tower, "vision_model", model.vision_tower)  # one level deeper in older releases
        embed, (b, tiles) = tower.embeddings, x.shape[:2]
        w = embed.patch_embedding.weight  # width, 3, PATCH, PATCH
        h = F.linear(x.flatten(0, 1), w.flatten(1), embed.patch_embedding.bias) + embed.position_embedding.weight
        h = h.flatten(0, 1)
        for layer in tower.encoder.layers:
            a, m = layer.self_attn, layer.mlp
            self._dynamic(h)
            parts = (p for f in (layer.layer_norm1, a.q_proj, a.k_proj, a.v_proj) for p in (f.weight, f.bias))
            o = full_attention(*self.vision_pre(h, *parts, a.num_heads), b * tiles)
            self._dynamic(o)
            parts = (p for f in (a.out_proj, layer.layer_norm2, m.fc1, m.fc2) for p in (f.weight, f.bias))
            h = self.vision_post(h, o, *parts)
        h = model.multi_modal_projector(h).view(b, tiles * SIDE**2, -1)
        return torch.cat([h, model.image_newline.expand(b, 1, -1)], 1).index_select(1, geo.pack)
