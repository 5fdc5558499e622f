"""Keeps the most mutually diverse tokens (the paper's selector).

Greedy max-min diversity on merged features with d(i, j) = 1 - cos(f_i, f_j). The order starts at the token farthest
from all others on average,

    s_1 = argmax_i mean_j d(i, j) = argmin_i u_i . sum_j u_j          (u: unit features; needs no N x N matrix)
    s_k = argmax_{i not chosen} min_{j < k} d(i, s_j)

and is nested: the first k of one ranking are the choice at budget k. The paper fixes only "most mutually diverse"; the
start is ours (DivPrune starts at the largest nearest-neighbor distance: ``seed="nearest"``). Distances are compared on
a grid of 1e-6, so that blank paper ties exactly on every machine and the lowest index wins.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from stakes.errors import BadInput
from stakes.vision.selectors.base import Scene, Selector

GRID = 1e6
GRAM_LIMIT = 4096  # tokens; up to here the Gram matrix (64 MiB) is one product, beyond it rows are computed on demand


@dataclass(frozen=True)
class Redundancy(Selector):
    """Greedy max-min diversity; O(kN) with a running minimum."""

    name: ClassVar[str] = "redundancy"
    together: ClassVar[bool] = True
    seed: Literal["mean", "nearest"] = "mean"

    def __post_init__(self) -> None:
        if self.seed not in ("mean", "nearest"):
            raise BadInput(f"redundancy starts at seed='mean' or seed='nearest', not {self.seed!r}")

    def rank(self, scene: Scene, count: int) -> Tensor:
        """[count] indices in greedy order."""
        return self.rank_many([scene], [count])[0]

    def rank_many(self, scenes: Sequence[Scene], counts: Sequence[int]) -> list[Tensor]:
        """On a GPU all images in one launch (``max_min``): the same order on the same distances."""
        features = [scene.features for scene in scenes]
        kernel = _kernel() if self.seed == "mean" and all(one.is_cuda for one in features) else None
        if kernel is not None:
            rankings: list[Tensor] = kernel.rank(features, max(counts))
            return [ranking[:count] for ranking, count in zip(rankings, counts, strict=True)]
        return [self._walk(one, count) for one, count in zip(features, counts, strict=True)]

    def _walk(self, features: Tensor, count: int) -> Tensor:
        units = torch.nn.functional.normalize(features.float(), dim=-1)
        row = _rows(units)
        start = _farthest_on_average(units) if self.seed == "mean" else _most_isolated(row, len(units))
        return torch.from_numpy(_greedy(row, len(units), count, [start])).to(units.device)


def extend_max_min(units: Tensor, chosen: Tensor, count: int) -> Tensor:
    """[k] chosen tokens of [N, D] unit features -> [count]: the chosen, then the others by max-min distance."""
    order = _greedy(_rows(units), len(units), count, chosen.tolist())
    return torch.from_numpy(order).to(units.device)


def _kernel() -> Any:
    try:
        from stakes.vision.selectors import max_min
    except ImportError:  # torch without Triton
        return None
    return max_min


def _rows(units: Tensor) -> Callable[[int], Any]:
    """A function that gives row i of the distance matrix, [N] integers on the grid, on the host.

    The greedy steps are sequential and tiny; on a GPU each would cost several kernel launches, so the Gram matrix is
    computed there in one product and walked on the host.
    """
    if len(units) <= GRAM_LIMIT:
        distances = _on_grid(units @ units.T)
        return lambda i: distances[i]
    return lambda i: _on_grid(units @ units[i])


def _on_grid(closeness: Tensor) -> Any:
    """1 - closeness in steps of the grid; in place, since each copy of 64 MiB costs a fifth of the product."""
    return closeness.neg_().add_(1).mul_(GRID).round_().clamp_min_(0).to(torch.int32).cpu().numpy()


def _farthest_on_average(units: Tensor) -> int:
    closeness = (units @ units.sum(0)) / len(units)
    return int(np.argmin((closeness * GRID).round().to(torch.int32).cpu().numpy()))


def _most_isolated(row: Callable[[int], Any], size: int) -> int:
    nearest = np.empty(size, dtype=np.int64)
    for i in range(size):
        others = np.delete(row(i), i)
        nearest[i] = others.min() if size > 1 else 0
    return int(np.argmax(nearest))


def _greedy(row: Callable[[int], Any], size: int, count: int, first: Sequence[int]) -> Any:
    """[count] indices: ``first`` as given, then always the token farthest from all before it."""
    order = np.empty(count, dtype=np.int64)
    gap = np.full(size, np.iinfo(np.int32).max, dtype=np.int32)  # distance to the nearest chosen token
    for k in range(count):
        current = first[k] if k < len(first) else int(gap.argmax())  # the first of equals: the lowest index
        order[k] = current
        np.minimum(gap, row(current), out=gap)
        gap[current] = -1  # blank paper gives exact duplicates at distance 0; without this they are picked twice
    return order
