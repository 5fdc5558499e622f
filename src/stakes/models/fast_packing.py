"""How do prompts of any lengths stand one after another, and how do many such heaps have one size?

``packed``: the batch without its padding. ``widen``: up to a bucket's size, so that one recorded prefill serves them
all; the tokens added are a sequence of their own that goes to the cache's spare row, where nobody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from stakes.vision.deletion import Batch
from stakes.vision.upload import upload


@dataclass(frozen=True)
class Packed:
    """Prompts one after another, S tokens in all.

    ``embeds``: [S, D]. ``cos``, ``sin``: [S, h]. ``rows``, ``columns``: [S] where each token goes in the cache.
    ``ends``: [n + 1] int32, and ``lengths`` the same on the host. ``longest``: at least the longest. ``last``: [B] the
    last token of each prompt. ``visual``: [N] tokens that deepstack features are added to, ``deepstack``: by level
    [N, D].
    """

    embeds: Tensor
    cos: Tensor
    sin: Tensor
    rows: Tensor
    columns: Tensor
    ends: Tensor
    lengths: Sequence[int]
    longest: int
    last: Tensor
    visual: Tensor
    deepstack: tuple[Tensor, ...] = ()

    def fill(self, other: Packed) -> None:
        """Take over another's numbers, in the tensors that are here."""
        for name in ("embeds", "cos", "sin", "rows", "columns", "ends", "last"):
            getattr(self, name).copy_(getattr(other, name))


def packed(
    batch: Batch, lengths: Sequence[int], rows: int, rotary: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> Packed:
    """A left-padded batch as one heap, of a cache with ``rows``; ``rotary``: [P, B, T] positions -> [B, T, h] twice."""
    size, columns = batch.mask.shape
    device = batch.embeds.device
    own = torch.tensor(lengths)
    row = torch.arange(size).repeat_interleave(own)
    column = torch.cat([torch.arange(length) for length in lengths])
    flat = upload(row * columns + columns - own[row] + column, device)  # a prompt stands on the right
    cos, sin = (x.flatten(0, 1)[flat] for x in rotary(batch.positions))
    ends = pad(own.cumsum(0), (1, 0)).int()
    return Packed(
        embeds=batch.embeds.flatten(0, 1)[flat],
        cos=cos,
        sin=sin,
        rows=upload(row, device),
        columns=upload(column, device),
        ends=upload(ends, device),
        lengths=lengths,
        longest=max(lengths),
        last=upload(pad(ends[1:].long() - 1, (0, rows - size)), device),
        visual=batch.visual.flatten()[flat].nonzero()[:, 0] if batch.deepstack else flat[:0],
        deepstack=batch.deepstack,
    )


def widen(some: Packed, rows: int, columns: int, size: int) -> Packed:
    """The same with ``size`` tokens, for a cache of ``rows`` (and a spare one) by ``columns``."""
    count = len(some.embeds)
    more = size - count
    idle = rows - len(some.lengths)  # rows that nobody asked for: sequences of no length
    device = some.embeds.device
    return Packed(
        embeds=pad(some.embeds, (0, 0, 0, more)),
        cos=pad(some.cos, (0, 0, 0, more)),
        sin=pad(some.sin, (0, 0, 0, more)),
        rows=pad(some.rows, (0, more), value=rows),
        columns=torch.cat((some.columns, torch.arange(more, device=device) % columns)),
        ends=pad(pad(some.ends, (0, idle), value=count), (0, 1), value=size),
        lengths=[*some.lengths, *[0] * idle, more],
        longest=columns,
        last=some.last,
        visual=some.visual,
    )
