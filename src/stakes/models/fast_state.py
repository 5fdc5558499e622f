"""What does the fast path keep between two steps, on the device, so that no step asks the host?

One ``State`` for each number of rows: the cache, the token that each row wrote last, how far the answer is, the rotary
factors of the steps to come. A longer prompt than ever before makes a larger one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stakes.models.static_cache import StaticCache

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
