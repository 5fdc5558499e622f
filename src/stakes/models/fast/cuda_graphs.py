"""How is the same work on the GPU started once instead of a thousand times?

A decoding step of a 7B model is several hundred kernels of a few microseconds each; starting them one by one from
Python takes ten times as long as they run. ``Graphs`` records them once and replays the record in one call. What is
recorded must read and write the same tensors every time and ask the host nothing. On a CPU nothing is recorded: the
work is simply done.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch

WARM_UPS = 2  # kernels are chosen and workspaces made at the first run, which cannot be recorded


@dataclass
class Graphs:
    """Recorded work by name; the least recently used leave when there are more than ``limit``."""

    device: torch.device
    limit: int = 64
    on: bool = True
    _made: OrderedDict[Hashable, tuple[Any, Any]] = field(default_factory=OrderedDict, repr=False)
    _seen: OrderedDict[Hashable, None] = field(default_factory=OrderedDict, repr=False)
    _pool: Any = field(default=None, repr=False)

    def __call__(self, name: Hashable, work: Callable[[], Any]) -> Any:
        """What ``work()`` returns; under one name always the same work on the same tensors.

        It is recorded when it is wanted again: what never comes back costs no recording. What is returned is
        overwritten by the next call under any name: read it first.
        """
        if self.device.type != "cuda" or not self.on or (name not in self._made and self._is_new(name)):
            return work()
        if name not in self._made:
            self._made[name] = self._record(work)
            while len(self._made) > self.limit:
                self._made.popitem(last=False)
        self._made.move_to_end(name)
        graph, out = self._made[name]
        graph.replay()
        return out

    def ready(self, name: Hashable, work: Callable[[], Any], clear: Callable[[], None]) -> None:
        """Record work that changes its own inputs, while they hold nothing; ``clear()`` comes before each warm-up."""
        if self.device.type != "cuda" or not self.on:
            return
        if name in self._made:
            self._made.move_to_end(name)
            return

        def cleared() -> Any:
            clear()
            return work()

        self._made[name] = self._record(work, warm=cleared)

    def forget(self) -> None:
        """Drop all records: the tensors that they read are about to go."""
        self._made.clear()

    def _is_new(self, name: Hashable) -> bool:
        new = name not in self._seen
        self._seen[name] = None
        while len(self._seen) > 16 * self.limit:
            self._seen.popitem(last=False)
        return new

    def _record(self, work: Callable[[], Any], warm: Callable[[], Any] | None = None) -> tuple[Any, Any]:
        """The work is done ``WARM_UPS`` times before, as ``warm`` where it minds."""
        ours = torch.cuda.current_stream(self.device)
        aside: Any = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        aside.wait_stream(ours)
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                (warm or work)()
        ours.wait_stream(aside)
        if self._pool is None or not self._made:  # a pool whose last record has left is gone
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):  # others may use the GPU
            out = work()
        return graph, out
