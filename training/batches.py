"""What does one training step get? A sampled batch, shown in one shape, with questions and auxiliary targets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from training.forward import Prefix
from training.images import relight


@dataclass
class Batch:
    """Everything of one step on the device: b pages, nq questions each, one shape."""

    x: Tensor  # the encoder's input: (b, cells, 4, 588) patches, or (b, tiles, cells of a tile, 1323)
    qa: Tensor  # (b, nq, L) ids
    start: Tensor  # (b, nq) first token of the answer
    end: Tensor  # (b, nq) one past its end
    tier: Tensor  # (b, nq) 1: high
    asked: Tensor  # (b, nq) False where a page had fewer questions and one is repeated
    ocr: Tensor  # (b, tokens, 4 * SLOTS) character classes
    fields: Tensor  # (b, tokens) field classes


def prepare(
    rows: dict[str, Tensor],
    geo: Prefix,
    nq: int,
    dtype: torch.dtype,
    colour: bool = False,
    noise: bool = True,
    relit: bool = False,
    length: int | None = None,
) -> Batch:
    """Rows of one canvas -> a batch shown as ``geo`` says, asking ``nq`` random questions of each page.

    ``noise`` adds light augmentation, ``relit`` also other light and fading (``images.relight``). ``length``: the
    tokens of a slot that these pages use (``examples.length``).
    """
    b, height, width, _ = rows["image"].shape
    device = rows["image"].device
    x = geo.show(relight(rows["image"]) if relit else rows["image"], dtype, noise, colour)
    n, slots = rows["n"].long().clamp(min=1), rows["qa"].shape[1]
    order = torch.rand(b, slots, device=device) if noise else torch.arange(slots, device=device).expand(b, -1).float()
    order = order.masked_fill(torch.arange(slots, device=device)[None] >= n, 99.0).argsort(1)
    turn = torch.arange(nq, device=device)[None].expand(b, -1)
    index = order.gather(1, turn % n)
    qa = rows["qa"][..., :length].long()
    qa = qa.gather(1, index[..., None].expand(-1, -1, qa.shape[2]))
    start, end, tier = (rows[k].long().gather(1, index) for k in ("start", "end", "tier"))
    ocr, fields = geo.targets(rows["glyphs"], width, height)
    return Batch(x, qa, start, end, tier, turn < n, ocr, fields)
