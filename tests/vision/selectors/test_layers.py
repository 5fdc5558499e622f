"""SparseVLM and PyramidDrop: their schedules, and what they choose by given scores."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stakes.vision.selectors.layers import LayerView, Stage
from stakes.vision.selectors.pyramiddrop import PyramidDrop, quarters
from stakes.vision.selectors.sparsevlm import SparseVLM, density_peaks, merged, recyclable, scaled


@pytest.mark.parametrize(
    ("merge", "budget", "keeps"),
    [
        (False, 118, (300, 200)), (False, 60, (238, 108)), (False, 28, (246, 54)), (False, 20, (66, 34)),
        (True, 113, (309, 204)), (True, 39, (312, 117)), (True, 27, (249, 55)), (True, 18, (82, 32)),
    ],
)  # fmt: skip
def test_sparsevlm_reproduces_the_released_tables(merge: bool, budget: int, keeps: tuple[int, int]) -> None:
    plan = SparseVLM(merge).plan(576, budget, 32)
    assert plan == (Stage(3, keeps[0]), Stage(7, keeps[1]), Stage(16, budget))
    twice = SparseVLM(merge).plan(1152, 2 * budget, 32)
    assert [stage.keep for stage in twice] == [2 * keeps[0], 2 * keeps[1], 2 * budget]


@pytest.mark.parametrize("setting", [(300, 200, 110), (303, 110, 36), (238, 48, 26), (66, 30, 17)])
def test_the_table_with_clusters_is_v1s_plus_what_v1_recycles(setting: tuple[int, int, int]) -> None:
    """Their arithmetic, step by step from 576 tokens: top-k, then 30 % + 1 of the rest into a tenth + 1."""
    native, left = 576, []
    for chosen in setting:
        clusters = int((int((native - chosen) * 0.3) + 1) / 10) + 1
        assert merged(native, chosen + clusters) == clusters
        native = chosen + clusters
        left.append(native)
    assert [stage.keep for stage in SparseVLM().plan(576, left[-1], 32)] == left


@pytest.mark.parametrize(
    ("depth", "layers"),
    [(32, [3, 7, 16]), (80, [3, 7, 16]), (28, [3, 6, 14]), (8, [1, 2, 4]), (4, [1, 2, 3]), (3, [1, 2]), (2, [1])],
)
def test_sparsevlm_scales_its_layers_to_a_shallower_decoder(depth: int, layers: list[int]) -> None:
    assert scaled(depth) == layers
    assert SparseVLM().plan(100, 7, depth)[-1] == Stage(layers[-1], 7)


def test_pyramiddrop_shrinks_by_one_ratio_at_the_quarters() -> None:
    assert PyramidDrop().plan(576, 72, 32) == (Stage(8, 288), Stage(16, 144), Stage(24, 72))
    assert PyramidDrop(layers=(2, 5)).plan(100, 36, 8) == (Stage(2, 60), Stage(5, 36))
    assert [quarters(depth) for depth in (28, 6, 4, 3, 2)] == [(7, 14, 21), (1, 3, 4), (1, 2, 3), (1, 2), (1,)]


@given(st.integers(1, 3000), st.data(), st.integers(2, 90))
@settings(max_examples=300, deadline=None)
def test_every_plan_is_valid_and_the_average_grows_with_the_budget(
    native: int, data: st.DataObject, depth: int
) -> None:
    budget = data.draw(st.integers(1, native))
    for selector in (SparseVLM(), SparseVLM(merge=False), PyramidDrop()):
        assert budget == native or selector.plan(native, budget, depth)[-1].keep == budget
        if budget < native:
            assert selector.average(native, budget, depth) < selector.average(native, budget + 1, depth)


@given(st.integers(2, 3000), st.data())
@settings(max_examples=300, deadline=None)
def test_clusters_are_what_the_release_makes_of_the_rest_but_at_most_half(native: int, data: st.DataObject) -> None:
    keep = data.draw(st.integers(1, native))
    clusters = merged(native, keep)
    pruned = native - keep + clusters
    published = int((int(pruned * 0.3) + 1) / 10) + 1 if keep < native else 0
    assert clusters == min(published, keep // 2)
    assert clusters <= recyclable(pruned) <= pruned


class GivenScores(SparseVLM):
    """SparseVLM with the scores given."""

    def scores(self, view: LayerView) -> Tensor:
        return view.inputs[:, 0]


def view_of(scores: Tensor, hidden: Tensor) -> LayerView:
    every = torch.arange(len(scores))
    return LayerView(1, [], hidden, hidden, hidden, hidden, every, every, scores[:, None], torch.nn.Identity())


def test_sparsevlm_recycles_the_next_best_into_means_at_the_position_of_their_centers() -> None:
    generator = torch.Generator().manual_seed(3)
    scores, hidden = torch.rand(200, generator=generator), torch.randn(200, 6, generator=generator)
    selection = GivenScores().select(view_of(scores, hidden), 40)
    order = scores.argsort(descending=True)
    assert selection.merge is not None
    best, recycled = order[:34], order[34:84].sort().values  # 166 pruned, 30 % + 1 recycled into a tenth + 1
    centers, owner = density_peaks(hidden[recycled], 6)
    merged_rows = ~torch.isin(selection.indices, best)
    assert set(selection.indices[merged_rows].tolist()) == set(recycled[centers].tolist())
    out = selection.apply(hidden)
    torch.testing.assert_close(out[~merged_rows], hidden[best.sort().values])
    taken = selection.merge[merged_rows].sum(0).nonzero()[:, 0]
    assert set(taken.tolist()) == set(recycled.tolist()), "each recycled token goes into one cluster, no other does"
    for index, row in zip(selection.indices[merged_rows], out[merged_rows], strict=True):
        cluster = recycled[owner == owner[recycled == index]]
        torch.testing.assert_close(row, hidden[cluster].mean(0))


def test_without_merging_sparsevlm_keeps_the_best_as_they_are() -> None:
    scores, hidden = torch.rand(50, generator=torch.Generator().manual_seed(1)), torch.randn(50, 6)
    selection = GivenScores(merge=False).select(view_of(scores, hidden), 9)
    assert selection.merge is None
    assert selection.indices.tolist() == sorted(scores.argsort(descending=True)[:9].tolist())
    assert SparseVLM().merges
    assert not SparseVLM(merge=False).merges
    assert not PyramidDrop().merges


@pytest.mark.parametrize("native", [1, 2, 3, 11, 60])
@pytest.mark.parametrize("equal", [False, True])
def test_merging_spends_every_keep_exactly_also_on_duplicates(native: int, equal: bool) -> None:
    hidden = torch.ones(native, 4) if equal else torch.randn(native, 4, generator=torch.Generator().manual_seed(0))
    scores = torch.ones(native) if equal else hidden[:, 0]
    for keep in range(1, native + 1):
        selection = GivenScores().select(view_of(scores, hidden), keep)
        indices = selection.indices.tolist()
        assert len(indices) == keep
        assert indices == sorted(set(indices))
        if equal:
            assert indices == list(range(keep)), "ties go to the lowest index, for kept tokens and for clusters"
            torch.testing.assert_close(selection.apply(hidden), hidden[:keep])


def test_of_equal_tokens_the_first_ones_are_the_centers() -> None:
    """Blank paper: densities are equal, so without a rule two centers may fall on the same kind of token."""
    ink = torch.tensor([[0.0, 0], [0, 0], [0, 0], [9, 9], [9, 9], [9, 9]])
    centers, owner = density_peaks(ink, 2)
    assert (centers.tolist(), owner.tolist()) == ([0, 3], [0, 0, 0, 1, 1, 1])
    selection = GivenScores().select(view_of(torch.arange(40.0), torch.ones(40, 3)), 12)
    assert merged(40, 12) == 1
    assert selection.indices.tolist() == [20, *range(29, 40)], "the first of the 9 recycled, 20 to 28, is their center"


def density_peaks_in_loops(points: Tensor, count: int) -> tuple[list[int], list[int]]:
    """Density peaks in loops: the definition, in double."""
    n = len(points)
    d = [[float((a - b).double().norm()) / points.shape[1] ** 0.5 for b in points] for a in points]
    density = [float(torch.tensor([x * x for x in sorted(row)[:count]]).double().mean().neg().exp()) for row in d]
    largest = max(max(row) for row in d)
    gap = [min([d[i][j] for j in range(n) if density[j] > density[i]], default=largest) for i in range(n)]
    centers = sorted(range(n), key=lambda i: -gap[i] * density[i])[:count]
    owner = [min(range(count), key=lambda c: d[i][centers[c]]) for i in range(n)]
    for c, i in enumerate(centers):
        owner[i] = c
    return centers, owner


@pytest.mark.parametrize("seed", range(4))
def test_density_peaks_are_those_of_the_definition(seed: int) -> None:
    points = torch.randn(40, 5, generator=torch.Generator().manual_seed(seed))
    centers, owner = density_peaks(points, 4)
    assert (centers.tolist(), owner.tolist()) == density_peaks_in_loops(points, 4)
