"""M-RoPE positions of prompts whose images were reduced: kept tokens keep theirs, text goes on after the whole image.

Positions are computed in two steps, because which tokens stay is known only after the encoder has run:

    before it   ``shrink``: the positions of the unpruned prompt, of which an image keeps its first column for each
                token that will stay: (base, base, base)
    after it    ``place``:  row and column of each kept token are added to its base; the encoder's output carries them

The row of time is the base in both, so ``place`` may run again on a chunk that was computed before. vLLM's own pruning
of videos continues the text at base plus width, or after the greatest kept position: on a portrait page whose lowest
rows were dropped both differ from the unpruned prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

CHANNELS = 4
_BYTE = 256  # bfloat16 holds whole numbers exactly up to 256


@dataclass(frozen=True)
class Reduced:
    """An image in a pruned prompt: ``kept`` of ``native`` tokens, from column ``offset`` on."""

    offset: int
    kept: int
    native: int


def with_places(features: Tensor, indices: Tensor, columns: int) -> Tensor:
    """[k, D] kept features of an image that is ``columns`` tokens wide -> [k, D + 4]: row and column as two digits."""
    rows, across = indices // columns, indices % columns
    digits = torch.stack((rows // _BYTE, rows % _BYTE, across // _BYTE, across % _BYTE), dim=1)
    return torch.cat((features, digits.to(features.device, features.dtype)), dim=1)


def without_places(output: Tensor, width: int) -> tuple[Tensor, Tensor | None]:
    """[k, D + 4] -> [k, D] and [2, k] rows and columns on the host; an output of ``width`` D has none."""
    if output.shape[1] == width:
        return output, None
    digits = output[:, width:].round().long().cpu()
    return output[:, :width], torch.stack((digits[:, 0] * _BYTE + digits[:, 1], digits[:, 2] * _BYTE + digits[:, 3]))


def unprune(ids: Sequence[int], images: Sequence[Reduced]) -> list[int]:
    """The ids of the unpruned prompt; ``images`` in order."""
    whole: list[int] = []
    at = 0
    for image in images:
        whole += [*ids[at : image.offset], *([ids[image.offset]] * image.native)]
        at = image.offset + image.kept
    return [*whole, *ids[at:]]


def shrink(positions: Tensor, images: Sequence[Reduced]) -> Tensor:
    """[3, T] of the unpruned prompt -> [3, N] of the pruned one; every token of an image is at the image's base."""
    parts = []
    at = removed = 0  # columns of the unpruned prompt that were taken; by how many it is ahead of the pruned one
    for image in images:
        start = image.offset + removed
        parts += [positions[:, at:start], positions[:, start : start + 1].expand(-1, image.kept)]
        at = start + image.native
        removed += image.native - image.kept
    return torch.cat((*parts, positions[:, at:]), dim=1)


def place(positions: Tensor, media: Tensor, start: int, places: Sequence[tuple[int, Tensor | None]]) -> Tensor:
    """[3, N] with the rows and columns of the kept tokens of one chunk of the prompt.

    ``media``: [N] whether a column holds an image or video token. ``start``: the first column of the chunk.
    ``places``: of each item in it, in order, how many of its tokens are in the chunk and where they were in the image.
    """
    columns = media[start:].nonzero()[:, 0] + start
    positions = positions.clone()
    at = 0
    for count, where in places:
        own = columns[at : at + count]
        if where is not None:
            positions[1:, own] = positions[0, own] + where.to(positions.device, positions.dtype)
        at += count
    return positions
