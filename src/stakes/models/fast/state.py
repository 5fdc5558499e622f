"""Tensors that the fast path keeps on the device: prompts as a varlen batch, the static KV cache, the decoding state.

There is one ``DecodeState`` for each bucket of rows. A prompt longer than any before replaces it by a larger one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from stakes.models.fast.torch_ops import Segments
from stakes.vision.deletion.exact import Batch, upload

ROW_BUCKETS = (1, 2, 4, 8, 16, 32)  # beyond, multiples of the last
COLUMN_STEP = 256


def row_bucket(count: int) -> int:
    """The number of rows of the state that serves a batch of ``count``."""
    most = ROW_BUCKETS[-1]
    return next((rows for rows in ROW_BUCKETS if rows >= count), -(-count // most) * most)


def column_bucket(count: int) -> int:
    """The length of the cache that serves rows of up to ``count`` tokens."""
    return -(-count // COLUMN_STEP) * COLUMN_STEP


def token_bucket(count: int) -> int:
    """The size of the prefill that serves ``count`` tokens; beyond 512 tokens at most an eighth is padding."""
    step = 64
    while count > 16 * step:
        step *= 2
    return -(-count // step) * step


@dataclass(frozen=True)
class VarlenBatch:
    """Prompts one after another without padding, S tokens in all.

    ``embeds``: [S, D]. ``rope``: cos and sin, [S, h]. ``where``: [S] row and column of each token in the KV cache.
    ``last``: [B] the last token of each prompt. ``visual``: [N] tokens that deepstack features are added to,
    ``deepstack``: by level [N, D].
    """

    embeds: Tensor
    rope: tuple[Tensor, Tensor]
    where: tuple[Tensor, Tensor]
    segments: Segments
    last: Tensor
    visual: Tensor
    deepstack: tuple[Tensor, ...] = ()

    def copy_from(self, other: VarlenBatch) -> None:
        """Overwrite the tensors, which a captured prefill reads, with those of another batch of the same bucket."""
        for own, new in zip(self._captured(), other._captured(), strict=True):
            own.copy_(new)

    def _captured(self) -> tuple[Tensor, ...]:
        return self.embeds, *self.rope, *self.where, self.segments.cu_seqlens, self.last


def pack_varlen(
    batch: Batch, lengths: Sequence[int], rows: int, rotary: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> VarlenBatch:
    """A left-padded batch without its padding, for a cache of ``rows``; ``rotary``: [P, B, T] -> [B, T, h] twice."""
    size, columns = batch.mask.shape
    device = batch.embeds.device
    own = torch.tensor(lengths)
    row = torch.arange(size).repeat_interleave(own)
    column = torch.cat([torch.arange(length) for length in lengths])
    flat = upload(row * columns + columns - own[row] + column, device)  # index into the padded batch
    cos, sin = (x.flatten(0, 1)[flat] for x in rotary(batch.positions))
    return VarlenBatch(
        embeds=batch.embeds.flatten(0, 1)[flat],
        rope=(cos, sin),
        where=(upload(row, device), upload(column, device)),
        segments=Segments.of(lengths, device),
        last=upload(pad(own.cumsum(0) - 1, (0, rows - size)), device),
        visual=batch.visual.flatten()[flat].nonzero()[:, 0] if batch.deepstack else flat[:0],
        deepstack=batch.deepstack,
    )


def pad_to_bucket(batch: VarlenBatch, rows: int, columns: int, size: int) -> VarlenBatch:
    """The same batch with ``size`` tokens, so that one captured prefill serves all batches of the bucket.

    The added tokens are a sequence of their own that is written to the spare row of a cache of ``rows`` (plus one) by
    ``columns``, which nobody reads. Rows without a request are sequences of length 0.
    """
    count = len(batch.embeds)
    more, idle = size - count, rows - len(batch.segments.lengths)
    cos, sin = (pad(x, (0, 0, 0, more)) for x in batch.rope)
    row, column = batch.where
    cu_seqlens = pad(pad(batch.segments.cu_seqlens, (0, idle), value=count), (0, 1), value=size)
    return VarlenBatch(
        embeds=pad(batch.embeds, (0, 0, 0, more)),
        rope=(cos, sin),
        where=(
            pad(row, (0, more), value=rows),
            torch.cat((column, torch.arange(more, device=column.device) % columns)),
        ),
        segments=Segments(cu_seqlens, [*batch.segments.lengths, *[0] * idle, more], columns),
        last=batch.last,
        visual=batch.visual,
    )


@dataclass(frozen=True)
class StaticCache:
    """A KV cache at fixed addresses that outlives the answer, because captured graphs read and write it.

    ``keys``, ``values``: [layers, B + 1, L, H, h]. ``lengths``: [layers, B] int32. Row i uses the columns before
    ``lengths[layer, i]``; what stands behind is left from earlier answers and never read. Lengths differ by layer,
    because selectors inside the model leave later layers fewer tokens. The last row takes the padding of a bucket.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor

    @classmethod
    def make(cls, layers: int, rows: int, columns: int, heads: int, like: Tensor, width: int) -> StaticCache:
        """An empty cache with the dtype and the device of ``like``."""
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

    def load_layer(self, layer: int, keys: Tensor, values: Tensor, valid: Tensor) -> None:
        """Copy a layer of another cache, [B, H, T, h], without its padding; ``valid``: [B, T] bool, True at tokens."""
        size, length = valid.shape
        order = torch.sort(~valid, dim=1, stable=True).indices[:, :, None, None]
        for buffer, x in ((self.keys[layer], keys), (self.values[layer], values)):
            moved = x.transpose(1, 2)
            buffer[:size, :length] = moved.gather(1, order.expand(-1, -1, *moved.shape[2:]))
        self.lengths[layer, :size] = valid.sum(1)


@dataclass(frozen=True)
class DecodeState:
    """The state of a batch of B rows between two decoding steps, so that no step waits for the host.

    ``step``: [1] long, tokens generated so far. ``tokens``: [B] the last ones. ``generated``: [B, steps] all of them.
    ``logprobs``: [B, steps] their log-probabilities. ``ended``: [B] bool. ``cos``, ``sin``: [B, steps, h] rotary
    factors of the positions of the answer. ``seen``: [B, V] bool, tokens that the repetition penalty applies to; V = 0
    without a penalty.
    """

    cache: StaticCache
    step: Tensor
    tokens: Tensor
    generated: Tensor
    logprobs: Tensor
    ended: Tensor
    cos: Tensor
    sin: Tensor
    seen: Tensor

    @classmethod
    def make(cls, cache: StaticCache, steps: int, vocabulary: int, like: Tensor) -> DecodeState:
        """A state with nothing generated; ``vocabulary``: 0 without a repetition penalty."""
        rows, width, device = cache.rows, cache.keys.shape[-1], like.device
        integers: dict[str, Any] = {"dtype": torch.long, "device": device}
        return cls(
            cache,
            step=torch.zeros(1, **integers),
            tokens=torch.zeros(rows, **integers),
            generated=torch.zeros(rows, steps, **integers),
            logprobs=torch.zeros(rows, steps, device=device),
            ended=torch.zeros(rows, dtype=torch.bool, device=device),
            cos=like.new_zeros(rows, steps, width),
            sin=like.new_zeros(rows, steps, width),
            seen=torch.zeros(rows, vocabulary, dtype=torch.bool, device=device),
        )

    def reset(self) -> None:
        """Clear the last answers."""
        for tensor in (self.cache.lengths, self.step, self.generated, self.ended, self.seen):
            tensor.zero_()

    def fits(self, columns: int, steps: int, vocabulary: int) -> bool:
        """Whether prompts and answers of these lengths can use it."""
        return self.cache.columns >= columns and self.generated.shape[1] == steps and self.seen.shape[1] == vocabulary
