"""How does a cache grow without being copied at every token?

Transformers' dynamic cache concatenates all keys and values anew for each token. Here they stand in a buffer with room
ahead, and a token is written behind the last one. Layers may differ in length, as in-model selectors need it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

ROOM = 32  # columns added when a buffer is full: an answer is rarely longer


class Room(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values [B, H, T, h], views of buffers [B, H, T + room, h]."""

    _buffers: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, room: int) -> Room:
        """A layer that holds these already and has room for more."""
        made = cls()
        made.lazy_initialization(keys, values)
        made._hold(keys, values, room)
        return made

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Add [B, H, n, h]; all that there is comes back."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states  # a prefill is often all: no buffer before the next
            return key_states, value_states
        start, count = self.get_seq_length(), key_states.shape[-2]
        self.reserve(count)
        assert self._buffers is not None
        keys, values = self._buffers
        keys[:, :, start : start + count] = key_states
        values[:, :, start : start + count] = value_states
        self.keys, self.values = keys[:, :, : start + count], values[:, :, : start + count]
        return self.keys, self.values

    def reserve(self, columns: int) -> None:
        """Make sure that as many more fit without a new buffer."""
        if self._buffers is None or self.get_seq_length() + columns > self._buffers[0].shape[-2]:
            self._hold(*self.held(), max(columns, ROOM))

    def part(self, rows: slice, gap: int) -> Room:
        """Some rows as a layer of their own, ``gap`` empty columns further on; what it adds is written here."""
        assert self._buffers is not None
        made = Room()  # type: ignore[no-untyped-call]
        made._buffers = (self._buffers[0][rows], self._buffers[1][rows])
        made.lazy_initialization(*made._buffers)
        made.show(self.get_seq_length() + gap)
        return made

    def show(self, length: int) -> None:
        """Hold the first ``length`` columns of the buffer."""
        assert self._buffers is not None
        self.keys, self.values = (buffer[:, :, :length] for buffer in self._buffers)

    def keep(self, rows: Tensor) -> None:
        """Let the other rows go."""
        length = self.get_seq_length()
        if self._buffers is None:
            self.keys, self.values = (x[rows] for x in self.held())
        else:
            self._buffers = (self._buffers[0][rows], self._buffers[1][rows])
            self.show(length)

    def held(self) -> tuple[Tensor, Tensor]:
        """Keys and values so far, [B, H, T, h]."""
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    def _hold(self, keys: Tensor, values: Tensor, room: int) -> None:
        batch, heads, length, _ = keys.shape
        found = tuple(x.new_empty(batch, heads, length + room, x.shape[-1]) for x in (keys, values))
        for buffer, x in zip(found, (keys, values), strict=True):
            buffer[:, :, :length] = x
            buffer[:, :, length:] = 0  # a masked column counts for nothing unless it holds a NaN
        self._buffers = (found[0], found[1])
        self.keys, self.values = found[0][:, :, :length], found[1][:, :, :length]


class RoomyCache(Cache):
    """One ``Room`` for each decoder layer."""

    def __init__(self, rooms: list[Room]):
        super().__init__(layers=list(rooms))
        self.rooms = rooms

    def reserve(self, columns: int) -> None:
        """Make sure that as many more fit, so that parts write into the buffers that are here."""
        for room in self.rooms:
            room.reserve(columns)

    def part(self, rows: slice, gap: int) -> RoomyCache:
        """Some rows of every layer; see ``Room.part``."""
        return RoomyCache([room.part(rows, gap) for room in self.rooms])

    def grow(self, columns: int) -> None:
        """Count columns that parts have written."""
        for room in self.rooms:
            room.show(room.get_seq_length() + columns)

    def keep(self, rows: Tensor) -> None:
        """Let the other rows go."""
        for room in self.rooms:
            room.keep(rows)

    def contents(self) -> list[tuple[Tensor, Tensor]]:
        """By layer, keys and values [B, H, T, h]."""
        return [room.held() for room in self.rooms]


def empty(depth: int) -> RoomyCache:
    """A cache of ``depth`` layers that hold nothing yet."""
    return RoomyCache([Room() for _ in range(depth)])  # type: ignore[no-untyped-call]


def new_cache(config: Any) -> Any:
    """An empty cache for a language model with this configuration."""
    if "sliding_attention" in (getattr(config, "layer_types", None) or []):
        return DynamicCache(config=config)  # layers that forget keep transformers' own bookkeeping
    return empty(config.num_hidden_layers)
