"""How does a batch run through the model, fast? The stock model's weights, another schedule, the same logits.

Every batch has one token grid, and every page many questions: the sequence is [image prefix][QA 1][QA 2]..., each QA's
M-RoPE positions restarting after the image exactly as in single-question inference. ``python -m training.check``
compares the result with the stock ``Qwen2_5_VLForConditionalGeneration``.

The pieces between attentions are compiled once with a dynamic number of tokens, so that hundreds of grids do not mean
hundreds of compilations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from training.attention import full_attention, text_attention, window_attention
from training.heads import Targets, targets
from training.images import augment, grid_for, patches, resize
from training.reader import ID, SYSTEM
from transformers.vision_utils import get_vision_position_ids, get_vision_window_index

BEFORE, AFTER = [ID["<|im_start|>"], ID["user\n"], ID["<|vision_start|>"]], [ID["<|vision_end|>"]]


class Prefix:
    """Where stand the tokens of [lead][image][after] and of a question behind them? Rotary tables of one page shape.

    A family adds what its encoder needs, how it shows a page (``show``) and where that puts the glyphs (``targets``).
    """

    tokens: int  # visual tokens, as the language model reads them
    inv_freq: Tensor
    device: torch.device

    def __init__(self, system: bool, image: Tensor, inv_freq: Tensor, device: torch.device) -> None:
        """``image``: (axes, tokens) positions from 0; ``system``: whether the prefix opens with a system message."""
        self.lead = (SYSTEM if system else []) + BEFORE
        self.around = torch.tensor(self.lead + AFTER, device=device)  # ids on both sides of the image
        (axes, self.tokens), n = image.shape, len(self.lead)
        self.prefix = n + self.tokens + len(AFTER)
        self.inv_freq, self.device, self.axes = inv_freq.float().cpu(), device, axes
        end = n + int(image.max()) + 1
        positions = torch.cat([torch.arange(n).expand(axes, n), image + n, torch.full((axes, 1), end)], 1)
        self.start = end + 1
        self.prefix_cos, self.prefix_sin = self._rotary(positions)

    def show(self, image: Tensor, dtype: torch.dtype, noise: bool, colour: bool) -> Tensor:
        """Pages (b, H, W, 3) uint8 -> the encoder's input."""
        raise NotImplementedError

    def targets(self, glyphs: Tensor, width: int, height: int) -> Targets:
        """Characters (b, tokens, 4 * SLOTS) and fields (b, tokens); -100 where a token shows no part of the page."""
        raise NotImplementedError

    def _rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(axes, n) positions -> cos, sin of shape (n, head_dim)."""
        f = self._turn(positions.float()[..., None] * self.inv_freq)
        f = torch.cat([f, f], -1).to(self.device)
        return f.cos(), f.sin()

    def _turn(self, angles: Tensor) -> Tensor:
        """(axes, n, frequencies) -> (n, frequencies); one axis has nothing to choose."""
        return angles[0]

    @lru_cache(maxsize=16)  # noqa: B019 - geometries live as long as the run
    def question(self, length: int) -> tuple[Tensor, Tensor]:
        """Rotary tables of one question slot, which starts right after the image: (length, head_dim)."""
        return self._rotary((torch.arange(length) + self.start).expand(self.axes, length))

    def text(self, b: int, nq: int, length: int, keep: Tensor | None) -> tuple[Tensor, Tensor, int]:
        """Flat cos, sin for b prefixes then b * nq questions, and the prefix length; ``keep`` (b, k) deletes tokens."""
        n, out = len(self.lead), []
        for table, question in zip((self.prefix_cos, self.prefix_sin), self.question(length), strict=True):
            if keep is None:
                p = table.repeat(b, 1)
            else:
                first, last = (t.expand(b, *t.shape) for t in (table[:n], table[-1:]))
                p = torch.cat([first, table[n + keep], last], 1).flatten(0, 1)
            out.append(torch.cat([p, question.repeat(b * nq, 1)]))
        return out[0], out[1], self.prefix if keep is None else keep.shape[1] + n + len(AFTER)


class Geometry(Prefix):
    """One token grid ``gh x gw`` of the Qwen reader: M-RoPE positions, the encoder's windows and their order."""

    def __init__(self, model: nn.Module, gh: int, gw: int, system: bool, device: torch.device) -> None:
        vision, rotary = model.model.visual, model.model.language_model.rotary_emb
        self.gh, self.gw, self.section = gh, gw, rotary.mrope_section
        grid = torch.tensor([[1, gh * 2, gw * 2]])
        window = vision.config.window_size
        order, cu = get_vision_window_index(grid, spatial_merge_size=2, window_size=window, patch_size=14)
        order, cu = torch.as_tensor(order), torch.as_tensor(cu).unique_consecutive()
        self.order, self.back = order.to(device), order.argsort().to(device)
        self.starts, self.longest = cu.to(device), int((cu[1:] - cu[:-1]).max())
        freqs = get_vision_position_ids(grid, 2).float()[..., None] * vision.rotary_pos_emb.inv_freq.float().cpu()
        f = torch.cat([freqs[:, 0], freqs[:, 1]], -1)
        f = torch.cat([f, f], -1).view(gh * gw, 4, -1)[order].reshape(4 * gh * gw, -1).to(device)
        self.vision_cos, self.vision_sin = f.cos(), f.sin()
        y, x = torch.arange(gh).repeat_interleave(gw), torch.arange(gw).repeat(gh)
        super().__init__(system, torch.stack([torch.zeros_like(y), y, x]), rotary.inv_freq, device)

    def show(self, image: Tensor, dtype: torch.dtype, noise: bool, colour: bool) -> Tensor:
        """Patches (b, cells, 4, 588) of the page resized to this grid."""
        x = resize(image.float().div_(255), self.gh * 28, self.gw * 28)
        return patches(augment(x, colour) if noise else x, self.gh, self.gw, dtype)

    def targets(self, glyphs: Tensor, width: int, height: int) -> Targets:
        """Every token shows its own cell of the page."""
        return targets(glyphs, self.gh, self.gw, (self.gw * 2 / width, 0.0), (self.gh * 2 / height, 0.0))

    def _turn(self, angles: Tensor) -> Tensor:
        """Each section of frequencies follows its own axis."""
        return torch.cat([m[i % 3] for i, m in enumerate(angles.split(self.section, -1))], -1)


def rms(x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm in fp32."""
    v = x.float()
    return weight * (v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate (tokens, heads, d) by per-token angles (tokens, d)."""
    a, b = x.float().chunk(2, -1)
    return (torch.cat([a, b], -1) * cos[:, None] + torch.cat([-b, a], -1) * sin[:, None]).to(x.dtype)


def vision_pre(x, norm, w, b, cos, sin, heads: int):  # noqa: D103
    q, k, v = F.linear(rms(x, norm), w, b).view(x.shape[0], 3, heads, -1).unbind(1)
    return rope(q, cos, sin), rope(k, cos, sin), v.contiguous()


def vision_post(x, a, pw, pb, norm, gw, gb, uw, ub, dw, db):  # noqa: D103
    x = x + F.linear(a, pw, pb)
    h = rms(x, norm)
    return x + F.linear(F.silu(F.linear(h, gw, gb)) * F.linear(h, uw, ub), dw, db)


def text_pre(x, norm, qw, qb, kw, kb, vw, vb, cos, sin, d: int):  # noqa: D103
    h, n = rms(x, norm), x.shape[0]
    q, k = F.linear(h, qw, qb).view(n, -1, d), F.linear(h, kw, kb).view(n, -1, d)
    return rope(q, cos, sin), rope(k, cos, sin), F.linear(h, vw, vb).view(n, -1, d)


def text_post(x, a, ow, norm, gw, uw, dw):  # noqa: D103
    x = x + F.linear(a, ow)
    h = rms(x, norm)
    return x + F.linear(F.silu(F.linear(h, gw)) * F.linear(h, uw), dw)


class FastForward:
    """``encode`` pages and ``decode`` questions over a stock model's own parameters; another family replaces
    ``pieces``, ``geometry``, ``fitted`` and ``encode``.
    """

    pieces: tuple[Callable[..., Any], ...] = (vision_pre, vision_post)  # what the encoder does between attentions

    def __init__(self, model: nn.Module, compiled: bool = False) -> None:
        self.model = model
        self.geometries: dict[tuple[Any, ...], Any] = {}
        pieces: list[Callable[..., Any]] = [*self.pieces, text_pre, text_post]
        if compiled:
            pieces = [torch.compile(f, dynamic=None) for f in pieces]
        self.vision_pre, self.vision_post, self.text_pre, self.text_post = pieces
        self.compiled = compiled

    def _dynamic(self, *tensors: Tensor) -> None:
        if self.compiled:
            for t in tensors:
                torch._dynamo.maybe_mark_dynamic(t, 0)

    def geometry(self, gh: int, gw: int, system: bool, device: torch.device) -> Any:
        """A page shown at ``gh x gw`` cells of 28 pixels. Cached: its tables do not depend on the batch."""
        key = (gh, gw, system)
        if key not in self.geometries:
            self.geometries[key] = Geometry(self.model, gh, gw, system, device)
        return self.geometries[key]

    def fitted(self, budget: int, width: int, height: int, device: torch.device) -> Any | None:
        """A ``width x height`` page resized to at most ``budget`` tokens as ``stakes.fit`` does; None: impossible."""
        return self.geometry(*grid_for(budget, width, height), False, device)

    def encode(self, x: Tensor, geo: Geometry) -> Tensor:
        """Patches (b, cells, 4, 588) -> visual tokens (b, cells, width), in page order."""
        vision, b = self.model.model.visual, x.shape[0]
        w = vision.patch_embed.proj.weight  # width, 3, 2, 14, 14; both temporal slices see the same pixels
        h = F.linear(x[:, geo.order].reshape(b * 4 * geo.tokens, -1), w.sum(2).reshape(w.shape[0], -1))
        cos, sin = geo.vision_cos.repeat(b, 1), geo.vision_sin.repeat(b, 1)
        shift = geo.starts[-1] * torch.arange(b, device=x.device)[:, None]
        cu = torch.cat([geo.starts[:1], (geo.starts[None, 1:] + shift).reshape(-1)]).to(torch.int32)
        for i, block in enumerate(vision.blocks):
            a, m = block.attn, block.mlp
            self._dynamic(h, cos, sin)
            qkv = self.vision_pre(h, block.norm1.weight, a.qkv.weight, a.qkv.bias, cos, sin, vision.config.num_heads)
            full = i in vision.fullatt_block_indexes
            o = full_attention(*qkv, b) if full else window_attention(*qkv, cu, geo.longest)
            self._dynamic(o)
            mlp = (p for layer in (m.gate_proj, m.up_proj, m.down_proj) for p in (layer.weight, layer.bias))
            h = self.vision_post(h, o, a.proj.weight, a.proj.bias, block.norm2.weight, *mlp)
        return vision.merger(h).view(b, geo.tokens, -1)[:, geo.back]

    def decode(
        self, tokens: Tensor, qa: Tensor, geo: Geometry, keep: Tensor | None = None, middle: int = -1
    ) -> tuple[Tensor, Tensor | None]:
        """Visual tokens (b, cells, width), ids (b, nq, L) -> QA states (b * nq * L, width), middle-layer image states.

        keep: (b, k) sorted indices of the tokens to retain.
        """
        lm = self.model.model.language_model
        (b, nq, length), table = qa.shape, lm.embed_tokens.weight
        width = table.shape[1]
        if keep is not None:
            tokens = tokens.gather(1, keep[..., None].expand(-1, -1, width))
        cos, sin, prefix = geo.text(b, nq, length, keep)
        lead, after = table[geo.around].split([len(geo.lead), len(AFTER)])
        p = torch.cat([lead.expand(b, -1, -1), tokens, after.expand(b, -1, -1)], 1)
        t = torch.cat([p.reshape(-1, width), F.embedding(qa, table).reshape(-1, width)])
        seen = None
        for i, layer in enumerate(lm.layers):
            if i == middle:
                seen = t[: b * prefix].view(b, prefix, width)[:, len(geo.lead) : -len(AFTER)]
            a, m = layer.self_attn, layer.mlp
            self._dynamic(t, cos, sin)
            projections = (p for f in (a.q_proj, a.k_proj, a.v_proj) for p in (f.weight, f.bias))
            qkv = self.text_pre(t, layer.input_layernorm.weight, *projections, cos, sin, a.head_dim)
            o = text_attention(*qkv, b, prefix, nq)
            self._dynamic(o)
            mlp = (m.gate_proj.weight, m.up_proj.weight, m.down_proj.weight)
            t = self.text_post(t, o, a.o_proj.weight, layer.post_attention_layernorm.weight, *mlp)
        return rms(t[b * prefix :], lm.norm.weight), seen
