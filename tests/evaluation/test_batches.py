"""Every pair is planned once, an image's questions stay together, and a growing grid moves nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes import BadInput
from stakes.evaluation.batches import plan_batches

IMAGES = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=30)
GRID = st.lists(st.integers(1, 99), min_size=1, max_size=5, unique=True)


@given(
    IMAGES, st.lists(st.lists(st.integers(1, 4), min_size=30, max_size=30), min_size=1, max_size=4), st.integers(1, 8)
)
def test_every_pair_is_planned_exactly_once(images: list[str], lanes: list[list[int]], size: int) -> None:
    lanes = [lane[: len(images)] for lane in lanes]
    planned = [pair for batch in plan_batches(images, lanes, size) for pair in batch]
    assert len(planned) == len(set(planned))
    assert set(planned) == {(i, budget) for lane in lanes for i, budget in enumerate(lane)}


@given(IMAGES, GRID, st.integers(1, 8))
def test_an_image_is_visited_in_one_stretch_and_its_questions_are_asked_together(
    images: list[str], grid: list[int], size: int
) -> None:
    batches = plan_batches(images, [[budget] * len(images) for budget in grid], size)
    assert all(0 < len(batch) <= size and len({budget for _, budget in batch}) == 1 for batch in batches)
    for image in set(images):
        visits = [at for at, batch in enumerate(batches) if any(images[i] == image for i, _ in batch)]
        assert visits == list(range(visits[0], visits[-1] + 1))
        if images.count(image) <= size:
            assert len(visits) == len(grid)


@given(IMAGES, GRID, st.integers(1, 8))
def test_a_grid_that_grows_keeps_the_old_batches(images: list[str], grid: list[int], size: int) -> None:
    lanes = [[budget] * len(images) for budget in grid]
    assert set(plan_batches(images, lanes, size)) <= set(plan_batches(images, [[100] * len(images), *lanes], size))


def test_batches_are_full_where_pages_allow_it() -> None:
    images = [f"page{i // 4}" for i in range(80)]
    assert [len(batch) for batch in plan_batches(images, [[32] * 80], 32)] == [32, 32, 16]


def test_a_lane_of_another_length_or_an_empty_batch_is_refused() -> None:
    with pytest.raises(BadInput, match="each of 2 samples a budget, not 1"):
        plan_batches(["a", "b"], [[32]], 4)
    with pytest.raises(BadInput, match="at least one question"):
        plan_batches(["a"], [[32]], 0)
