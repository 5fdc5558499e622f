"""Every pair is planned once, an image's questions stay together, and a growing grid moves nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes import BadInput
from stakes.evaluation.batching import chunk_batches, plan_batches

IMAGES = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=30)
GRID = st.lists(st.integers(1, 99), min_size=1, max_size=5, unique=True)


@given(
    IMAGES, st.lists(st.lists(st.integers(1, 4), min_size=30, max_size=30), min_size=1, max_size=4), st.integers(1, 8)
)
def test_every_pair_is_planned_exactly_once(images: list[str], assignments: list[list[int]], size: int) -> None:
    assignments = [row[: len(images)] for row in assignments]
    planned = [pair for batch in plan_batches(images, assignments, size) for pair in batch]
    assert len(planned) == len(set(planned))
    assert set(planned) == {(i, budget) for row in assignments for i, budget in enumerate(row)}


@given(IMAGES, GRID, st.integers(1, 8))
def test_an_image_is_visited_in_one_chunk_and_its_questions_are_asked_together(
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
    assignments = [[budget] * len(images) for budget in grid]
    assert set(plan_batches(images, assignments, size)) <= set(
        plan_batches(images, [[100] * len(images), *assignments], size)
    )


def test_batches_are_full_where_pages_allow_it() -> None:
    images = [f"page{i // 4}" for i in range(80)]
    assert [len(batch) for batch in plan_batches(images, [[32] * 80], 32)] == [32, 32, 16]


@given(IMAGES, GRID, st.integers(1, 8), st.integers(1, 40))
def test_chunks_hold_every_batch_once_and_split_an_image_only_to_keep_all_workers_busy(
    images: list[str], grid: list[int], size: int, least: int
) -> None:
    batches = plan_batches(images, [[budget] * len(images) for budget in grid], size)
    cut = chunk_batches(images, batches, least)
    assert [batch for chunk in cut for batch in chunk] == batches
    assert all(cut)
    blocks = len(chunk_batches(images, batches, 1))
    seen = [{images[i] for batch in chunk for i, _ in batch} for chunk in cut]
    if least <= blocks:
        assert len(cut) == blocks
        assert sum(map(len, seen)) == len(set(images)), "each image belongs to one chunk"
    # Equal pieces of every block: as many as are wanted, unless blocks have no more batches than that.
    assert len(cut) >= least or any(len(chunk) == 1 for chunk in cut)


def test_a_single_block_is_cut_for_many_workers() -> None:
    batches = plan_batches(["a"] * 4, [[budget] * 4 for budget in (1, 2, 3, 4, 5)], 8)
    assert [len(chunk) for chunk in chunk_batches(["a"] * 4, batches, 2)] == [2, 3]
    assert len(chunk_batches(["a"] * 4, batches, 99)) == 5
    assert chunk_batches([], [], 8) == []


def test_an_assignment_of_another_length_or_an_empty_batch_is_refused() -> None:
    with pytest.raises(BadInput, match="each of 2 samples a budget, not 1"):
        plan_batches(["a", "b"], [[32]], 4)
    with pytest.raises(BadInput, match="at least one question"):
        plan_batches(["a"], [[32]], 0)
