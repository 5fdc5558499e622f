"""A KV cache that grows without being copied at every token.

Transformers' dynamic cache concatenates all keys and values again for each token. Here they stand in a buffer with
spare columns, and a token is written behind the last one. Layers may differ in length, as in-model selectors need it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

GROWTH = 32  # columns added when a buffer is full: an answer is rarely longer


class PreallocatedLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values [B, H, T, h], views of buffers [B, H, T + spare, h]."""

    _buffers: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, spare: int) -> PreallocatedLayer:
        """A layer that holds these, with ``spare`` columns for more."""
        layer = cls()
        layer.lazy_initialization(keys, values)
        layer._allocate(keys, values, spare)
        return layer

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Add [B, H, n, h]; returns all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states  # often only a prefill: no buffer before the next token
            return key_states, value_states
        start, count = self.get_seq_length(), key_states.shape[-2]
        self.reserve(count)
        assert self._buffers is not None
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start : start + count] = states
        self.set_length(start + count)
        return self.contents()

    def reserve(self, columns: int) -> None:
        """Make sure that as many more columns fit without a new buffer."""
        if self._buffers is None or self.get_seq_length() + columns > self._buffers[0].shape[-2]:
            self._allocate(*self.contents(), max(columns, GROWTH))

    def slice_rows(self, rows: slice, gap: int) -> PreallocatedLayer:
        """Some rows as a layer that starts ``gap`` empty columns further on; what it adds is written to this buffer."""
        assert self._buffers is not None
        part = PreallocatedLayer()  # type: ignore[no-untyped-call]
        part._buffers = (self._buffers[0][rows], self._buffers[1][rows])
        part.lazy_initialization(*part._buffers)
        part.set_length(self.get_seq_length() + gap)
        return part

    def set_length(self, length: int) -> None:
        """Hold the first ``length`` columns of the buffer."""
        assert self._buffers is not None
        self.keys, self.values = (buffer[:, :, :length] for buffer in self._buffers)

    def keep_rows(self, rows: Tensor) -> None:
        """Drop the other rows."""
        length = self.get_seq_length()
        if self._buffers is None:
            self.keys, self.values = (x[rows] for x in self.contents())
        else:
            self._buffers = (self._buffers[0][rows], self._buffers[1][rows])
            self.set_length(length)

    def contents(self) -> tuple[Tensor, Tensor]:
        """Keys and values so far, [B, H, T, h]."""
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    def _allocate(self, keys: Tensor, values: Tensor, spare: int) -> None:
        batch, heads, length, _ = keys.shape
        buffers = tuple(x.new_empty(batch, heads, length + spare, x.shape[-1]) for x in (keys, values))
        for buffer, x in zip(buffers, (keys, values), strict=True):
            buffer[:, :, :length] = x
            buffer[:, :, length:] = 0  # a masked column has no effect unless it holds a NaN
        self._buffers = (buffers[0], buffers[1])
        self.set_length(length)


class PreallocatedCache(Cache):
    """One ``PreallocatedLayer`` for each decoder layer."""

    layers: list[PreallocatedLayer]  # type: ignore[assignment]

    def __init__(self, layers: list[PreallocatedLayer]):
        super().__init__(layers=list(layers))

    def reserve(self, columns: int) -> None:
        """Make sure that as many more columns fit, so that slices write into these buffers."""
        for layer in self.layers:
            layer.reserve(columns)

    def slice_rows(self, rows: slice, gap: int) -> PreallocatedCache:
        """Some rows of every layer; see ``PreallocatedLayer.slice_rows``."""
        return PreallocatedCache([layer.slice_rows(rows, gap) for layer in self.layers])

    def advance(self, columns: int) -> None:
        """Count columns that slices have written."""
        for layer in self.layers:
            layer.set_length(layer.get_seq_length() + columns)

    def keep_rows(self, rows: Tensor) -> None:
        """Drop the other rows."""
        for layer in self.layers:
            layer.keep_rows(rows)

    def contents(self) -> list[tuple[Tensor, Tensor]]:
        """By layer, keys and values [B, H, T, h]."""
        return [layer.contents() for layer in self.layers]


def empty_cache(depth: int) -> PreallocatedCache:
    """A cache of ``depth`` empty layers."""
    return PreallocatedCache([PreallocatedLayer() for _ in range(depth)])  # type: ignore[no-untyped-call]


def new_cache(config: Any) -> Any:
    """An empty cache for a language model with this configuration."""
    if has_sliding_window(config):
        return DynamicCache(config=config)  # sliding windows keep transformers' own bookkeeping
    return empty_cache(config.num_hidden_layers)


def has_sliding_window(config: Any) -> bool:
    """Whether some layers of a language model use sliding-window attention; without layer types, all do or none."""
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return getattr(config, "sliding_window", None) is not None
    return "sliding_attention" in kinds
