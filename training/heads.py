"""What is the loss? Answer characters, and two auxiliary heads that are dropped from the exported model.

* ``ocr``, on the encoder's output: which characters stand in each of a visual token's four patches. A page's glyphs say
  so at every resolution; it teaches the encoder to read long before an answer does.
* ``field``, on a middle layer of the language model: which field's answer a visual token belongs to. It teaches the
  image part to carry labels to values.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from training.examples import FIELD_CLASSES

Targets = tuple[Tensor, Tensor]
SLOTS, CHARACTERS = 6, 96  # characters predicted a patch, character classes (0: empty)


class Heads(nn.Module):
    """The two auxiliary heads over visual tokens of ``width`` channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ocr = nn.Linear(width, 4 * SLOTS * CHARACTERS)
        self.field = nn.Linear(width, FIELD_CLASSES)


def answer_loss(logits: Tensor, qa: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of answer tokens, and (b, nq) whether all of an answer's tokens are right.

    logits: (b * nq * L, vocabulary); qa: (b, nq, L). All tokens right under teacher forcing is greedy exact match.
    """
    b, nq, length = qa.shape
    logits = logits.float().view(b, nq, length, -1)[:, :, :-1]
    target = qa[:, :, 1:]
    j = torch.arange(1, length, device=qa.device)[None, None]
    asked = (j >= start[..., None]) & (j < end[..., None])
    ce = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1), reduction="none").view_as(asked)
    right = (logits.argmax(-1) == target) | ~asked
    return (ce * asked).sum() / asked.sum(), right.all(-1)


def targets(glyphs: Tensor, gh: int, gw: int, across: tuple[float, float], down: tuple[float, float]) -> Targets:
    """Glyphs (b, G, 4) on a page -> characters (b, cells, 4 * SLOTS), fields (b, cells) on a grid of ``gh x gw`` cells.

    ``across`` and ``down`` are (scale, shift) from the page's pixels to half cells, each of which is a patch. A patch
    with more characters than slots is -100: at that resolution its text cannot be read anyway.
    """
    b, g, _ = glyphs.shape
    device, n = glyphs.device, gh * gw * 4
    x, y, char, field = glyphs.long().unbind(-1)
    px = (x.float() * across[0] + across[1]).long().clamp_(0, gw * 2 - 1)
    py = (y.float() * down[0] + down[1]).long().clamp_(0, gh * 2 - 1)
    cell = (py // 2) * gw + px // 2
    patch = torch.where(char > 0, cell * 4 + (py % 2) * 2 + px % 2, n)
    ordered, index = patch.sort(dim=1, stable=True)
    rank = torch.arange(g, device=device)[None] - torch.searchsorted(ordered, ordered)
    ocr = torch.zeros(b, (n + 1) * SLOTS + 1, dtype=torch.long, device=device)
    ocr.scatter_(1, torch.where(rank < SLOTS, ordered * SLOTS + rank, (n + 1) * SLOTS), char.gather(1, index))
    ocr = ocr[:, : n * SLOTS].view(b, n, SLOTS)
    count = torch.zeros(b, n + 1, dtype=torch.long, device=device)
    count = count.scatter_add_(1, patch, torch.ones_like(patch))[:, :n]
    ocr = torch.where(count[..., None] > SLOTS, -100, ocr).view(b, gh * gw, 4 * SLOTS)
    fields = torch.zeros(b, gh * gw + 1, dtype=torch.long, device=device)
    fields.scatter_reduce_(1, torch.where((char > 0) & (field > 0), cell, gh * gw), field, "amax")
    return ocr, fields[:, :-1]


def ocr_loss(heads: Heads, tokens: Tensor, ocr: Tensor) -> Tensor:
    """Cross-entropy of the characters; the empty class weighs a tenth."""
    weight = torch.ones(CHARACTERS, device=tokens.device)
    weight[0] = 0.1
    return F.cross_entropy(heads.ocr(tokens).float().view(-1, CHARACTERS), ocr.reshape(-1), weight)


def head_loss(heads: Heads, tokens: Tensor, middle: Tensor, ocr: Tensor, fields: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropies of the two heads; the empty class weighs a tenth, since most of a page is paper."""
    weight = torch.ones(FIELD_CLASSES, device=tokens.device)
    weight[0] = 0.1
    where = F.cross_entropy(heads.field(middle).float().view(-1, FIELD_CLASSES), fields.reshape(-1), weight)
    return ocr_loss(heads, tokens, ocr), where
