"""Selectors of other papers follow their formulas, written here in loops."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from stakes.vision.selectors import make
from stakes.vision.selectors.base import Scene
from stakes.vision.selectors.dart import DART


def scene(native: int, seed: int, width: int = 12) -> Scene:
    dice = torch.Generator().manual_seed(seed)
    features, question = (torch.randn(n, width, generator=dice) for n in (native, 5))
    return Scene(features, question, "", torch.rand(native, generator=dice), torch.randn(native, 4, generator=dice))


def chosen(spec: str, page: Scene, budget: int) -> list[int]:
    selector: Any = make(spec)
    found: list[int] = selector.select(page, budget).indices.tolist()
    return found


def cosines(features: Tensor) -> list[list[float]]:
    units = normalize(features.double(), dim=1)
    found: list[list[float]] = (units @ units.T).tolist()
    return found


@pytest.mark.parametrize("seed", range(4))
def test_divprune_starts_at_the_token_farthest_from_its_nearest_neighbor(seed: int) -> None:
    page = scene(30, seed)
    cosine = cosines(page.features)
    order = [max(range(30), key=lambda i: min(1 - cosine[i][j] for j in range(30) if j != i))]
    while len(order) < 11:
        left = [i for i in range(30) if i not in order]
        order.append(max(left, key=lambda i: min(1 - cosine[i][j] for j in order)))
    assert chosen("divprune", page, 11) == sorted(order)


@pytest.mark.parametrize(("seed", "budget"), [(0, 12), (1, 13), (2, 30), (3, 39), (4, 1)])
def test_vispruner_keeps_attention_and_removes_duplicates_of_the_rest_in_rounds(seed: int, budget: int) -> None:
    page = scene(40, seed)
    assert page.received is not None
    received, cosine = page.received.tolist(), cosines(page.features)
    order = sorted(range(40), key=lambda i: -received[i])
    important, rest = order[: budget // 2], order[budget // 2 :]
    while (extra := len(rest) - (budget - budget // 2)) > 0:
        first, second = rest[::2], rest[1::2]
        first.sort(key=lambda i: -max(cosine[i][j] for j in second))
        rest = [*first[min(8, extra, len(first)) :], *second]
    assert chosen("vispruner", page, budget) == sorted([*important, *rest])
    assert chosen("vispruner:important=1", page, budget) == sorted(order[:budget]) == chosen("fastervlm", page, budget)


@pytest.mark.parametrize(("seed", "budget", "strips"), [(0, 10, 4), (1, 17, 7), (2, 30, 4), (3, 5, 40)])
def test_holov_shares_the_budget_over_strips(seed: int, budget: int, strips: int) -> None:
    page = scene(40, seed)
    assert page.received is not None
    received = page.received.tolist()
    sizes = [40 // strips + (number < 40 % strips) for number in range(strips)]
    cut = [list(range(sum(sizes[:p]), sum(sizes[: p + 1]))) for p in range(strips)]
    scores = [sum(received[i] for i in strip) / len(strip) for strip in cut]
    kept = [math.floor(budget * score / sum(scores)) for score in scores]
    for strip in sorted(range(strips), key=lambda p: -scores[p])[: budget - sum(kept)]:
        kept[strip] += 1
    assert all(one <= size for one, size in zip(kept, sizes, strict=True)), "no strip overflows here"
    best = [sorted(strip, key=lambda i: -received[i])[:one] for strip, one in zip(cut, kept, strict=True)]
    assert chosen(f"holov:strips={strips}", page, budget) == sorted(i for one in best for i in one)


def test_holov_passes_on_what_a_strip_cannot_take() -> None:
    received = torch.cat((torch.full((4,), 100.0), torch.full((12,), 1.0)))
    page = Scene(torch.randn(16, 6, generator=torch.Generator().manual_seed(0)), received=received)
    found = chosen("holov:strips=4", page, 10)
    assert found[:4] == [0, 1, 2, 3]
    assert [sum(first <= i < first + 4 for i in found) for first in (4, 8, 12)] == [2, 2, 2]


@pytest.mark.parametrize("seed", range(3))
def test_mmtok_covers_the_question_and_the_page_greedily(seed: int) -> None:
    page = scene(20, seed)
    assert page.question is not None
    units, words = normalize(page.features.double(), dim=1), normalize(page.question.double(), dim=1)
    rows = [*((words @ units.T / 0.02).softmax(1) / 5), *(0.5 * (units @ units.T / 0.2).softmax(1) / 20)]
    order: list[int] = []
    for _ in range(9):
        covered = {i: sum(max(float(row[j]) for j in [*order, i]) for row in rows) for i in range(20) if i not in order}
        order.append(max(covered, key=lambda i: covered[i]))
    selector: Any = make("mmtok")
    assert selector.rank(page, 9).tolist() == order


def test_prumerge_adds_the_neighbors_of_each_kept_token_and_one_token_for_the_rest() -> None:
    page = scene(50, 1)
    assert page.received is not None
    assert page.keys is not None
    selector: Any = make("prumerge")
    selection = selector.select(page, 6)
    share, cosine = (page.received / page.received.sum()).tolist(), cosines(page.keys)
    order = sorted(range(50), key=lambda i: -share[i])
    assert selection.indices.tolist() == sorted(order[:6])
    expected = {}
    for i in order[:5]:
        near = sorted((j for j in range(50) if j != i), key=lambda j: -cosine[i][j])[:32]
        expected[i] = page.features[i] + sum(share[j] * page.features[j] for j in near)
    expected[order[5]] = sum(share[j] * page.features[j] for j in range(50) if j not in order[:5])
    torch.testing.assert_close(selection.apply(page.features), torch.stack([expected[i] for i in sorted(expected)]))
    assert selector.select(page, 50).merge is None
    assert make("prumerge:merge=False").select(page, 6).merge is None  # type: ignore[arg-type]


@pytest.mark.parametrize("keep", [2, 4, 12, 17, 39])
@pytest.mark.parametrize("behind", [0, 2, 9])
def test_dart_keeps_pivots_and_what_is_least_like_each(keep: int, behind: int) -> None:
    """Three text tokens, 40 visual ones, ``behind`` text tokens."""
    dice = torch.Generator().manual_seed(keep + behind)
    states, keys = (torch.randn(43 + behind, *shape, generator=dice) for shape in ((8,), (2, 4)))
    view: Any = SimpleNamespace(
        keys=lambda: keys, norm=lambda x: 2 * x, hidden=states, visual=torch.arange(3, 43), columns=None
    )
    norms, cosine = keys.abs().sum((1, 2)).tolist(), cosines(states)
    found = sorted(range(3, 43), key=lambda i: -norms[i])[: min(4, keep)]
    pivots = sorted([*found, *sorted(range(43, 43 + behind), key=lambda i: -norms[i])[:4]])
    each, more = divmod(keep - len(found), len(pivots))
    for number, pivot in enumerate(pivots):
        left = sorted((i for i in range(3, 43) if i not in found), key=lambda i: cosine[pivot][i])
        found += left[: each + (number < more)]
    assert sorted(DART().choose(view, keep).indices.tolist()) == sorted(i - 3 for i in found)
