"""Every selector spends its budget exactly and follows its formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach
from stakes.vision.deletion.exact import Selection
from stakes.vision.selectors import SELECTORS, make
from stakes.vision.selectors.attention import attention_received
from stakes.vision.selectors.base import Scene, Selector
from stakes.vision.selectors.cdpruner import CDPruner
from stakes.vision.selectors.fastv import FastV
from stakes.vision.selectors.redundancy import Redundancy
from stakes.vision.selectors.visionzip import VisionZip

BEFORE = [name for name in SELECTORS if isinstance(make(name), Selector)]


def scene(native: int, seed: int, kind: str = "random", width: int = 12) -> Scene:
    """Features of a page: all different, all equal (blank paper), or mostly paper with some ink."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(native, width, generator=generator)
    if kind == "blank":
        features = features[:1].expand(native, -1).clone()
    elif kind == "sparse":
        paper = torch.rand(native, generator=generator) < 0.8
        features[paper] = features[0].clone()
    received = torch.rand(native, generator=generator) if kind == "random" else torch.ones(native)
    keys = torch.randn(native, 4, generator=generator) if kind == "random" else torch.ones(native, 4)
    return Scene(features, torch.randn(5, width, generator=generator), f"sample {seed}", received, keys)


@pytest.mark.parametrize(
    "name",
    [*BEFORE, "visionzip:merge=False", "cdpruner:relevance=negated", "redundancy:seed=nearest", "holov:strips=5"],
)
def test_every_selector_spends_exactly_its_budget_on_any_page(name: str) -> None:
    """300 pages and budgets for each setting: sorted, unique, exactly the budget, blank paper included."""
    generator = np.random.default_rng(7)
    selector: Any = make(name)
    for i in range(300):
        native = int(generator.integers(1, 60))
        budget = [1, native, int(generator.integers(1, native + 1))][int(generator.integers(3))]
        page = scene(native, i, ["random", "blank", "sparse"][i % 3])
        indices = selector.select(page, budget).indices.tolist()
        assert len(indices) == budget
        assert indices == sorted(set(indices))
        assert 0 <= indices[0] <= indices[-1] < native


def textbook(features: Tensor) -> list[int]:
    """Greedy max-min diversity by its definition: the whole matrix, every minimum computed again."""
    units = features.double() / features.double().norm(dim=1, keepdim=True)
    distance = 1 - units @ units.T
    chosen = [int(distance.mean(1).argmax())]
    while len(chosen) < len(features):
        left = [i for i in range(len(features)) if i not in chosen]
        chosen.append(max(left, key=lambda i: float(distance[i, chosen].min())))
    return chosen


@pytest.mark.parametrize("seed", range(6))
def test_redundancy_equals_the_textbook_greedy(seed: int) -> None:
    page = scene(70, seed)
    order = Redundancy().rank(page, 70)
    assert order.tolist() == textbook(page.features)


def test_redundancy_beyond_the_gram_limit_gives_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    page = scene(70, 3)
    order = Redundancy().rank(page, 70)
    monkeypatch.setattr("stakes.vision.selectors.redundancy.GRAM_LIMIT", 10)
    assert torch.equal(Redundancy().rank(page, 70), order)


def test_redundancy_takes_every_distinct_token_before_a_duplicate_and_then_the_lowest_index() -> None:
    features = torch.eye(4)[[0, 0, 1, 0, 2, 3, 0]]
    assert Redundancy().rank(Scene(features), 7).tolist() == [2, 0, 4, 5, 1, 3, 6]


@pytest.mark.parametrize("name", ["redundancy", "random", "saliency", "cdpruner", "divprune", "fastervlm", "mmtok"])
def test_choices_are_nested_over_budgets(name: str) -> None:
    selector: Any = make(name)
    page = scene(40, 1)
    kept = [set(selector.select(page, budget).indices.tolist()) for budget in (3, 11, 27, 40)]
    assert kept[0] < kept[1] < kept[2] < kept[3]


def test_one_ranking_serves_every_budget_and_question() -> None:
    page = scene(40, 1)
    Redundancy().select(page, 3)
    ranking = page.rankings[Redundancy()]
    Redundancy().select(page, 30)
    assert list(page.rankings) == [Redundancy()]
    assert page.rankings[Redundancy()] is ranking


def test_random_depends_on_the_sample_and_the_seed() -> None:
    first, again, other = (scene(50, 1), scene(50, 1), scene(50, 2))
    random: Any = make("random")
    assert torch.equal(random.select(first, 10).indices, random.select(again, 10).indices)
    assert not torch.equal(random.select(first, 10).indices, random.select(other, 10).indices)
    assert not torch.equal(random.select(first, 10).indices, make("random:seed=1").select(first, 10).indices)  # type: ignore[arg-type]


def test_saliency_keeps_the_longest_features_and_the_lowest_index_of_equals() -> None:
    saliency: Any = make("saliency")
    page = Scene(torch.tensor([[1.0, 0], [0, 3], [2, 0], [0, 2], [-5, 0]]))
    assert saliency.select(page, 3).indices.tolist() == [1, 2, 4]


def test_visionzip_keeps_tokens_with_high_attention_and_adds_the_mean_of_the_merged_ones() -> None:
    received = torch.tensor([9.0, 1, 2, 3, 8, 1])
    keys = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1], [1, 0], [0, 1]])
    page = Scene(torch.arange(12.0).view(6, 2), received=received, keys=keys)
    assert VisionZip(merge=False).select(page, 2).indices.tolist() == [0, 4]
    selection = VisionZip(contextual=0.5).select(page, 4)
    # remaining: 1 2 3 5; targets every 2nd: 1 and 3; 2 and 5 are similar to 3
    assert selection.indices.tolist() == [0, 1, 3, 4]
    merged = selection.apply(page.features)
    expected = torch.stack(
        (page.features[0], page.features[1], page.features[3] + page.features[[2, 5]].mean(0), page.features[4])
    )
    torch.testing.assert_close(merged, expected)


def test_visionzip_declares_that_it_merges() -> None:
    assert VisionZip().merges
    assert not VisionZip(merge=False).merges


def brute_force_map(kernel: Tensor, count: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(count):
        left = [i for i in range(len(kernel)) if i not in chosen]
        chosen.append(max(left, key=lambda i: float(torch.det(kernel[[*chosen, i]][:, [*chosen, i]]))))
    return chosen


@pytest.mark.parametrize("seed", range(4))
def test_cdpruner_is_greedy_map_of_the_question_conditioned_kernel(seed: int) -> None:
    page = scene(14, seed, width=10)
    units = torch.nn.functional.normalize(page.features.double(), dim=1)
    assert page.question is not None
    cosine = (units @ torch.nn.functional.normalize(page.question.double(), dim=1).T).mean(1)
    weight = (cosine - cosine.min() + 1e-6) / (cosine.max() - cosine.min())
    kernel = weight[:, None] * (units @ units.T) * weight
    assert CDPruner().rank(page, 8).tolist() == brute_force_map(kernel, 8)


def test_cdpruner_goes_on_by_max_min_distance_where_the_rank_of_the_kernel_is_spent() -> None:
    page = scene(60, 2, width=6)
    order = CDPruner().rank(page, 60).tolist()
    units = torch.nn.functional.normalize(page.features, dim=1)
    distance = 1 - units @ units.T
    for k in range(6, 60):
        left = [i for i in range(60) if i not in order[:k]]
        gaps = distance[left][:, order[:k]].min(1).values
        assert float(distance[order[k], order[:k]].min()) == pytest.approx(float(gaps.max()), abs=2e-6)


def test_cdpruner_needs_a_question() -> None:
    with pytest.raises(BadInput, match="question"):
        CDPruner().select(Scene(torch.randn(4, 3)), 2)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 7))
def test_attention_received_in_blocks_equals_the_whole_matrix(segments: list[int], block: int) -> None:
    generator = torch.Generator().manual_seed(sum(segments))
    query, key = (torch.randn(sum(segments), 2, 4, generator=generator) for _ in range(2))
    whole = torch.cat(
        [
            (torch.einsum("rhd,thd->hrt", q, k) * 0.5).softmax(-1).mean((0, 1))
            for q, k in zip(torch.split(query, segments), torch.split(key, segments), strict=True)
        ]
    )
    torch.testing.assert_close(attention_received(query, key, segments, 0.5, block=block), whole)


@pytest.mark.parametrize("wrong", [[0, 0, 1], [0, 1], [0, 1, 9]])
def test_a_selector_that_breaks_the_contract_is_stopped(wrong: list[int]) -> None:
    class Broken(Selector):
        name = "broken"

        def choose(self, scene: Scene, budget: int) -> Selection:
            return Selection(torch.tensor(wrong))

    with pytest.raises(LedgerBreach, match="'broken' returned"):
        Broken().select(scene(9, 0), 3)


def test_a_budget_beyond_the_image_is_refused_not_clamped() -> None:
    with pytest.raises(LedgerBreach, match="exceeds the image's 9"):
        make("saliency").select(scene(9, 0), 10)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="whole number"):
        make("saliency").select(scene(9, 0), 0)  # type: ignore[arg-type]


def test_names_and_options_are_checked() -> None:
    assert make("fastv:layer=3,rows=mean") == FastV(layer=3, rows="mean")
    with pytest.raises(BadInput, match="no selector is called 'best'; there are redundancy"):
        make("best")
    with pytest.raises(BadInput, match="no option 'depth=2'"):
        make("fastv:depth=2")
    with pytest.raises(BadInput, match="rows='last'"):
        make("fastv:rows=first")


def test_only_selectors_inside_the_model_can_count_an_average_over_layers() -> None:
    for name in ("fastv", "dart", "sparsevlm", "pyramiddrop"):
        assert make(f"{name}:count=layers") != make(name) == make(f"{name}:count=left")
        with pytest.raises(BadInput, match=f"^{name} counts .* count=layers, not 'mean'"):
            make(f"{name}:count=mean")
    for name in set(SELECTORS) - {"fastv", "dart", "sparsevlm", "pyramiddrop"}:
        with pytest.raises(BadInput, match=f"'{name}' drops before .* leave count=layers out, .* fastv:count=layers"):
            make(f"{name}:count=layers")


def test_the_layer_average_of_fastv_and_the_budget_that_reaches_it() -> None:
    fastv = FastV(layer=2)
    assert fastv.average(100, 20, 8) == (2 * 100 + 6 * 20) / 8
    assert fastv.average(100, 100, 8) == 100
    assert fastv.budget_for(100, 40.0, 8) == 20
    assert fastv.budget_for(100, 39.99, 8) == 19
    with pytest.raises(InfeasibleBudget, match=r"over 8 layers; its least is 25.8, so .* budget is 26$"):
        fastv.budget_for(100, 10, 8)
    with pytest.raises(BadInput, match="a decoder of 2"):
        fastv.plan(100, 20, 2)
