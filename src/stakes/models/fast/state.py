"""What does the fast path keep between two steps, on the device, so that no step asks the host?

One ``State`` for each number of rows: the cache, the token that each row wrote last, how far the answer is, the rotary
factors of the steps to come. A longer prompt than ever before makes a larger one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from stakes.vision.deletion.exact import Batch, upload

# How do prompts of any lengths stand one after another, and how do many such heaps have one size?
#
# ``packed``: the batch without its padding. ``widen``: up to a bucket's size, so that one recorded prefill serves them
# all; the tokens added are a sequence of their own that goes to the cache's spare row, where nobody looks.


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


# Where do keys and values stand so that a decoding step is always the same work at the same addresses?
#
# In buffers of a fixed size that outlive the answer: a captured graph reads and writes them again and again. Row i
# holds
# its tokens in columns 0 to ``lengths[layer, i]`` - 1; what stands behind is old and never looked at. Layers count on
# their own, since selectors inside the model leave later layers fewer tokens. One row more than was asked for takes
# what
# nobody wants: the padding of a bucket.


@dataclass(frozen=True)
class StaticCache:
    """``keys``, ``values``: [layers, B + 1, L, H, h]. ``lengths``: [layers, B] int32."""

    keys: Tensor
    values: Tensor
    lengths: Tensor

    @classmethod
    def make(cls, layers: int, rows: int, columns: int, heads: int, like: Tensor, width: int) -> StaticCache:
        """An empty one, of the kind and on the device of ``like``."""
        shape = (layers, rows + 1, columns, heads, width)
        counts = torch.zeros(layers, rows, dtype=torch.int32, device=like.device)
        return cls(like.new_zeros(shape), like.new_zeros(shape), counts)

    @property
    def rows(self) -> int:
        """Requests that fit."""
        return self.lengths.shape[1]

    @property
    def columns(self) -> int:
        """Tokens of one request that fit."""
        return self.keys.shape[2]

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, [B + 1, L, H, h]."""
        return self.keys[index], self.values[index]

    def take(self, layer: int, keys: Tensor, values: Tensor, valid: Tensor) -> None:
        """Move another cache's layer in: [B, H, T, h], of which ``valid`` [B, T] bool says what is a token."""
        size, length = valid.shape
        order = torch.sort(~valid, dim=1, stable=True).indices[:, :, None, None]
        for buffer, x in ((self.keys[layer], keys), (self.values[layer], values)):
            moved = x.transpose(1, 2)
            buffer[:size, :length] = moved.gather(1, order.expand(-1, -1, *moved.shape[2:]))
        self.lengths[layer, :size] = valid.sum(1)


ROWS = (1, 2, 4, 8, 16, 32)  # beyond, multiples of the last
COLUMNS = 256


@dataclass(frozen=True)
class State:
    """B rows. ``step``: [1] long, tokens written before this one; ``tokens``: [B] the last ones.

    ``written``: [B, steps] all of them. ``ended``: [B] bool. ``cos``, ``sin``: [B, steps, h], of the positions where
    the answer goes on. ``seen``: [B, V] bool, what the repetition penalty knows; no columns where there is none.
    """

    cache: StaticCache
    step: Tensor
    tokens: Tensor
    written: Tensor
    ended: Tensor
    cos: Tensor
    sin: Tensor
    seen: Tensor

    @classmethod
    def make(cls, cache: StaticCache, steps: int, vocabulary: int, like: Tensor) -> State:
        """Nothing written yet; ``vocabulary``: 0 without a penalty."""
        rows, width, device = cache.rows, cache.keys.shape[-1], like.device
        whole: dict[str, Any] = {"dtype": torch.long, "device": device}
        return cls(
            cache,
            step=torch.zeros(1, **whole),
            tokens=torch.zeros(rows, **whole),
            written=torch.zeros(rows, steps, **whole),
            ended=torch.zeros(rows, dtype=torch.bool, device=device),
            cos=like.new_zeros(rows, steps, width),
            sin=like.new_zeros(rows, steps, width),
            seen=torch.zeros(rows, vocabulary, dtype=torch.bool, device=device),
        )

    def begin(self) -> None:
        """Forget the last answers."""
        for tensor in (self.cache.lengths, self.step, self.written, self.ended, self.seen):
            tensor.zero_()

    def fits(self, columns: int, steps: int, vocabulary: int) -> bool:
        """Whether prompts and answers of these lengths can use it."""
        return self.cache.columns >= columns and self.written.shape[1] == steps and self.seen.shape[1] == vocabulary


def rows_for(count: int) -> int:
    """The bucket of a batch."""
    most = ROWS[-1]
    return next((rows for rows in ROWS if rows >= count), -(-count // most) * most)


def columns_for(count: int) -> int:
    """The bucket of a longest row."""
    return -(-count // COLUMNS) * COLUMNS


def tokens_for(count: int) -> int:
    """The bucket of a prefill, in tokens of all rows: at most an eighth is padding, beyond 512 tokens."""
    step = 64
    while count > 16 * step:
        step *= 2
    return -(-count // step) * step
