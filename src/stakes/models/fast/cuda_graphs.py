"""Capture work on the GPU as CUDA graphs and replay it in one call.

A decoding step of a 7B model is several hundred kernels of a few microseconds each; launching them one by one from
Python takes ten times as long as they run. Captured work must read and write the same tensors every time and must not
synchronize with the host. On a CPU nothing is captured: the work simply runs.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch

WARM_UPS = 2  # the first run chooses kernels and allocates workspaces, which cannot be captured


@dataclass
class CudaGraphs:
    """Captured work by name; beyond ``limit`` graphs the least recently used are dropped."""

    device: torch.device
    limit: int = 64
    _graphs: OrderedDict[Hashable, tuple[Any, Any]] = field(default_factory=OrderedDict, repr=False)
    _seen: OrderedDict[Hashable, None] = field(default_factory=OrderedDict, repr=False)
    _pool: Any = field(default=None, repr=False)

    def __call__(self, name: Hashable, work: Callable[[], Any]) -> Any:
        """What ``work()`` returns; one name always stands for the same work on the same tensors.

        Work is captured at its second call, so that work that never recurs costs no capture. The result is overwritten
        by the next call under any name: read it first.
        """
        if self.device.type != "cuda" or (name not in self._graphs and self._is_new(name)):
            return work()
        if name not in self._graphs:
            self._graphs[name] = self._capture(work)
            while len(self._graphs) > self.limit:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(name)
        graph, out = self._graphs[name]
        graph.replay()
        return out

    def capture(self, name: Hashable, work: Callable[[], Any], reset: Callable[[], None]) -> None:
        """Capture work that changes its own inputs, before they hold anything; each warm-up starts with ``reset()``."""
        if self.device.type != "cuda":
            return
        if name in self._graphs:
            self._graphs.move_to_end(name)
            return

        def warm_up() -> Any:
            reset()
            return work()

        self._graphs[name] = self._capture(work, warm_up)

    def clear(self) -> None:
        """Drop all graphs, because the tensors that they read are about to be freed."""
        self._graphs.clear()

    def _is_new(self, name: Hashable) -> bool:
        new = name not in self._seen
        self._seen[name] = None
        while len(self._seen) > 16 * self.limit:
            self._seen.popitem(last=False)
        return new

    def _capture(self, work: Callable[[], Any], warm_up: Callable[[], Any] | None = None) -> tuple[Any, Any]:
        current = torch.cuda.current_stream(self.device)
        side: Any = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                (warm_up or work)()
        current.wait_stream(side)
        if self._pool is None or not self._graphs:  # a memory pool is freed with its last graph
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):  # others may use the GPU
            out = work()
        return graph, out
