"""LLaVA-OneVision's rungs, and arms that spend one total on them."""

import random
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes.errors import BadInput, InfeasibleBudget
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry.ladder import Rung, _best_pair, _steps, _walk, align_ladders, ladder


def _total(rungs: list[Rung]) -> int:
    return sum(rung.tokens for rung in rungs)


def _pages(count: int) -> list[tuple[Rung, ...]]:
    generator = random.Random(1)
    sizes = [(generator.randint(600, 2600), generator.randint(800, 3300)) for _ in range(count)]
    return [ladder(*size) for size in sizes]


def test_a_page_has_the_papers_rungs() -> None:
    tokens = [rung.tokens for rung in ladder(1654, 2339)]
    assert tokens[:3] == [1269, 1793, 2835]
    assert tokens[-1] == count_tokens("llava-onevision", 1654, 2339)


def test_square_images_have_three_rungs() -> None:
    assert [(rung.tokens, rung.width) for rung in ladder(1000, 1000)] == [(1485, 384), (3699, 768), (7371, 1000)]


@given(st.integers(1, 3500), st.integers(1, 3500))
def test_rungs_are_real_and_grow(width: int, height: int) -> None:
    rungs = ladder(width, height)
    for rung in rungs:
        assert rung.tokens == count_tokens("llava-onevision", rung.width, rung.height)
        assert rung.width * height / (rung.height * width) == pytest.approx(1, rel=0.011)
    assert (rungs[-1].width, rungs[-1].height) == (width, height)
    for lower, higher in pairwise(rungs):
        assert lower.tokens < higher.tokens
        assert lower.width * lower.height < higher.width * higher.height


def test_no_size_of_that_shape_shows_more_for_as_little() -> None:
    for edge in range(1, 1200):
        width, height = round(edge * 850 / 1200), edge
        if width < 1 or abs(width * 1200 / (edge * 850) - 1) > 0.01:
            continue
        tokens = count_tokens("llava-onevision", width, height)
        best = max(rung.height for rung in ladder(850, 1200) if rung.tokens <= tokens)
        assert best >= height


def test_three_arms_spend_one_total_within_the_papers_tolerance() -> None:
    ladders = _pages(120)
    low, high = [1306.0] * 60 + [4732.0] * 60, [4732.0] * 60 + [1306.0] * 60
    arms = [align_ladders(ladders, 120 * 3019, targets) for targets in (None, low, high)]
    totals = [_total(arm) for arm in arms]
    assert max(totals) / min(totals) - 1 <= 0.0002
    # The arms keep their meaning: the high-cost half takes by far the most.
    assert _total(arms[2][:60]) > 2 * _total(arms[2][60:])
    assert _total(arms[1][60:]) > 2 * _total(arms[1][:60])
    for arm in arms:
        assert all(rung in rungs for rung, rungs in zip(arm, ladders, strict=True))


def test_alignment_is_deterministic() -> None:
    ladders = _pages(40)
    assert align_ladders(ladders, 40 * 2500) == align_ladders([tuple(reversed(rungs)) for rungs in ladders], 40 * 2500)


def test_rungs_on_target_do_not_move() -> None:
    ladders = _pages(10)
    targets = [rungs[len(rungs) // 2] for rungs in ladders]
    assert align_ladders(ladders, _total(targets), [rung.tokens for rung in targets]) == targets


def test_pairs_are_moved_where_no_single_step_helps() -> None:
    first, second = (Rung(100, 1, 1), Rung(160, 2, 2)), (Rung(50, 1, 1), Rung(100, 2, 2))
    # From (100, 100) the total of 210 needs one up by 60 and one down by 50; either alone is no nearer than 10.
    assert [rung.tokens for rung in align_ladders([first, second], 210, [100, 100])] == [160, 50]


def test_three_are_moved_where_no_two_help() -> None:
    up, down, further = ((Rung(low, 1, 1), Rung(high, 2, 2)) for low, high in ((100, 190), (60, 100), (70, 100)))
    # From (100, 100, 100) the total of 320 needs +90 - 40 - 30; one of them, or two, are no nearer than 20.
    assert [rung.tokens for rung in align_ladders([up, down, further], 320, [100, 100, 100])] == [190, 60, 70]


def test_thousands_of_images_are_aligned_by_moving_few_of_them() -> None:
    rungs = tuple(Rung(tokens, tokens, 1) for tokens in (1269, 1793, 2835, 4964, 7353))
    found = align_ladders([rungs] * 2_000, 2_000 * 3019 + 7, [3019] * 2_000)
    assert _total(found) == 2_000 * 3019 + 7


@pytest.mark.parametrize(("high", "low"), [(8, 8), (9, 11), (20, 20), (48, 72)])
def test_few_pages_of_one_size_reach_the_total_of_their_tiers(high: int, low: int) -> None:
    ladders = [ladder(756, 1008, "reader-llava")] * (high + low)
    total = 944 * high + 252 * low
    # From rungs of 600 for all, no single step and no pair of them comes within 0.02 %.
    assert _total(align_ladders(ladders, total)) == pytest.approx(total, rel=0.0002)


@given(st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=4, unique=True), min_size=1, max_size=4), st.data())
def test_a_total_that_some_rungs_have_is_found(counts: list[list[int]], data: st.DataObject) -> None:
    ladders = [[Rung(tokens, 1, tokens) for tokens in sorted(rungs)] for rungs in counts]
    total = data.draw(st.sampled_from(sorted({sum(rungs) for rungs in product(*counts)})))
    assert _total(align_ladders(ladders, total, tolerance=0.0)) == total


def test_the_image_whose_target_suffers_least_is_moved() -> None:
    rungs = (Rung(100, 1, 1), Rung(200, 2, 2))
    assert [rung.tokens for rung in align_ladders([rungs, rungs], 300, [100, 140])] == [100, 200]


@given(st.lists(st.lists(st.integers(1, 400), min_size=1, max_size=6, unique=True), min_size=1, max_size=12), st.data())
def test_the_answer_is_within_tolerance_or_refused(counts: list[list[int]], data: st.DataObject) -> None:
    ladders = [[Rung(tokens, 1, tokens) for tokens in sorted(rungs)] for rungs in counts]
    total = data.draw(st.integers(sum(map(min, counts)), sum(map(max, counts))))
    try:
        chosen = align_ladders(ladders, total, tolerance=0.05)
    except InfeasibleBudget as refusal:
        answer = str(refusal)
    else:
        answer = "within" if abs(_total(chosen) - total) <= 0.05 * total else "beyond"
    assert answer == "within" or f"smallest feasible total is {sum(map(min, counts))}" in answer


def test_what_cannot_be_aligned_is_refused_by_name() -> None:
    ladders = _pages(3)
    least = sum(rungs[0].tokens for rungs in ladders)
    with pytest.raises(InfeasibleBudget, match=f"can spend from {least} to .* not 100"):
        align_ladders(ladders, 100)
    with pytest.raises(InfeasibleBudget, match="the nearest total found is"):
        align_ladders([ladder(1000, 1000)], 2500)
    with pytest.raises(BadInput, match="targets are needed for each of the 3 images, got 2"):
        align_ladders(ladders, least, [1000.0, 1000.0])
    with pytest.raises(BadInput, match="at least one rung"):
        align_ladders([], 100)


def _plain_walk(counts: list[list[int]], total: int, aims: list[float]) -> list[int]:
    """The walk by its definition: every step is chosen by looking at all of them."""
    chosen = [min(range(len(c)), key=lambda at: abs(c[at] - aim)) for c, aim in zip(counts, aims, strict=True)]
    while gap := total - sum(c[at] for c, at in zip(counts, chosen, strict=True)):
        steps = _steps(counts, chosen)
        helpful = [step for step in steps if abs(gap - step[0]) < abs(gap)]

        def price(step: tuple[int, int, int]) -> tuple[float, int]:
            moved, image, _ = step
            here = counts[image][chosen[image]]
            return (abs(here + moved - aims[image]) - abs(here - aims[image])) / abs(moved), image

        moves = [min(helpful, key=price)] if helpful else _best_pair(steps, gap)
        if not moves:
            break
        for _, image, towards in moves:
            chosen[image] += towards
    return chosen


@given(st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=6, unique=True), min_size=1, max_size=30), st.data())
def test_the_walk_takes_the_cheapest_helpful_step_each_time(drawn: list[list[int]], data: st.DataObject) -> None:
    counts = [sorted(one) for one in drawn]
    aims = [float(data.draw(st.integers(1, 60))) for _ in counts]
    total = data.draw(st.integers(sum(c[0] for c in counts), sum(c[-1] for c in counts)))
    assert _walk(counts, total, aims) == _plain_walk(counts, total, aims)
