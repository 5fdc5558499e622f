"""The memory pool of captured graphs."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count
from typing import Any

import pytest
import torch

from stakes.models.fast.cuda_graphs import CudaGraphs


class Stream:
    """In place of a CUDA stream."""

    def wait_stream(self, _: Any) -> None:
        """Nothing runs beside it."""


def test_a_pool_is_shared_until_its_last_graph_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch frees the memory pool of a graph with the last graph in it, and cannot capture into it again."""
    pools: list[int] = []
    handles = count()

    def graph(_: Any, *, pool: int, **__: Any) -> Any:
        pools.append(pool)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: Stream())
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: Stream())
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(handles))
    monkeypatch.setattr(torch.cuda, "graph", graph)
    graphs = CudaGraphs(torch.device("cuda"))
    for name in "ab":
        graphs.capture(name, lambda: None, lambda: None)
    graphs.clear()
    for name in "cd":
        graphs.capture(name, lambda: None, lambda: None)
    assert pools == [0, 0, 1, 1]
