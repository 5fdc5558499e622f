"""``nearest_size`` against trying every side, and in bounded time."""

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.machine import takes_at_most

from stakes.errors import BadInput, InfeasibleBudget
from stakes.vision.geometry import accepted_size, count_tokens, families, family
from stakes.vision.image.resize import fitted_size
from stakes.vision.image.tile_sizes import nearest_size

SHAPED = ("pixtral", "mistral3", "gpt-4o", "o1", "gpt-4.1-mini", "o4-mini", "claude", "claude-opus-4.7", "gemini")
SIDES = st.one_of(st.integers(1, 1200), st.integers(1, 20))


def every_side(width: int, height: int, budget: int, name: str, stretch: float) -> tuple[int, int, int] | int:
    """By the definition: the first, from native down, of the sizes with the most tokens; else the fewest tokens."""
    long, short, found = max(width, height), min(width, height), []
    for side in range(long, 0, -1):
        other = max(1, round(short * side / long))
        scales = side / long, other / short
        if max(scales) / min(scales) <= 1 + stretch + 1e-9:
            size = (side, other) if width >= height else (other, side)
            with suppress(BadInput):  # a processor fails on it
                found.append((*size, count_tokens(name, *size)))
    within = [one for one in found if one[2] <= budget]
    return max(within, key=lambda one: one[2]) if within else min(one[2] for one in found)


@settings(max_examples=300)
@given(SIDES, SIDES, st.integers(1, 3000), st.sampled_from(SHAPED), st.sampled_from([0.0, 0.15, 0.5]))
def test_the_nearest_size_equals_the_best_of_every_side(
    width: int, height: int, budget: int, name: str, stretch: float
) -> None:
    try:
        native = count_tokens(name, width, height)
    except BadInput:
        return
    expected = every_side(width, height, budget, name, stretch) if native > budget else (width, height, native)
    if isinstance(expected, int):
        with pytest.raises(InfeasibleBudget, match=f"smallest feasible budget is {expected}$"):
            nearest_size(width, height, budget, family(name), stretch)
    else:
        assert nearest_size(width, height, budget, family(name), stretch) == expected


@pytest.mark.parametrize("name", [one.name for one in families().values() if one.refusal is None])
@pytest.mark.parametrize(
    "size", [(8_000_000, 10), (8_000_000, 5000), (5, 3_000_000), (2**31 - 1, 2**31 - 1), (90_000, 900)]
)
def test_the_search_takes_bounded_time(name: str, size: tuple[int, int]) -> None:
    """A PNG of 8,000,000 x 10 pixels has 10 kB, and the walk over its long side took half a minute."""
    for budget in (300, 100_000):

        def search(budget: int = budget) -> None:
            with suppress(InfeasibleBudget, BadInput):
                assert fitted_size(*size, budget, name).tokens <= budget

        assert takes_at_most(1, search)  # about 0.6 s on an ordinary machine


@pytest.mark.parametrize("name", ["gpt-4o", "gemini", "gpt-4.1-mini"])
def test_an_image_too_thin_to_be_resized_is_refused_unless_its_tokens_fit(name: str) -> None:
    native = count_tokens(name, 8_000_000, 10)
    with pytest.raises(InfeasibleBudget, match=f"8000000x10 is too thin .* 2048 times .* crop it .* is {native}"):
        fitted_size(8_000_000, 10, 300, name)
    for upscale in (False, True):
        size = fitted_size(8_000_000, 10, native, name, upscale=upscale)
        assert (size.width, size.height, size.tokens) == (8_000_000, 10, native)


def test_a_long_image_is_searched_above_the_sides_that_are_all_tried() -> None:
    size = fitted_size(60_000, 200, 100 * 258, "gemini")
    assert size.tokens == 100 * 258
    assert 25_600 * (1 - 1 / 2048) < size.width <= 25_600


def test_a_refusal_is_cached() -> None:
    took = []
    for _ in range(2):
        started = time.perf_counter()
        with pytest.raises(InfeasibleBudget, match="smallest feasible budget is 255"):
            fitted_size(16_001, 12_007, 200, "gpt-4o")
        took.append(time.perf_counter() - started)
    assert took[1] < took[0] / 5  # 50 ms and 10 us


@pytest.mark.parametrize(("size", "budget"), [((4000, 4), 30), ((2000, 2), 30), ((11, 8195), 3)])
def test_a_shape_that_only_rounding_makes_too_thin_is_skipped(size: tuple[int, int], budget: int) -> None:
    try:
        found = fitted_size(*size, budget, "pixtral")
    except InfeasibleBudget as error:
        named = re.search(r"smallest feasible budget is (\d+)$", str(error))
        assert named is not None
        assert fitted_size(*size, int(named[1]), "pixtral").tokens == int(named[1])
    else:
        assert found.tokens == count_tokens("pixtral", found.width, found.height) <= budget


@pytest.mark.parametrize("name", ["claude", "claude-opus-4.7"])
@pytest.mark.parametrize("size", [(9921, 7016), (7016, 9921), (8001, 8001), (40_000, 300)])
@pytest.mark.parametrize("budget", [60, 1000, 5000])
def test_sides_that_claude_rejects_are_shrunk(name: str, size: tuple[int, int], budget: int) -> None:
    with pytest.raises(BadInput, match="above 8000 pixels, which Claude rejects; resize it"):
        count_tokens(name, *size)
    found = fitted_size(*size, budget, name)
    assert max(found.width, found.height) <= 8000
    assert count_tokens(name, found.width, found.height) == found.tokens <= budget
    assert found.native == count_tokens(name, *accepted_size(name, *size)) >= found.tokens
    assert (max(size) / min(size)) / (max(found.width, found.height) / min(found.width, found.height)) == pytest.approx(
        1, abs=0.15
    )
    if found.native <= budget:
        assert max(found.width, found.height) == 8000


def test_images_that_claude_rejects_and_that_are_too_thin_must_be_cropped() -> None:
    with pytest.raises(BadInput, match="20000x4 has a side above 8000 pixels, .* 2048 times the other, .* crop it"):
        fitted_size(20_000, 4, 300, "claude")


def test_only_claude_has_a_longest_side() -> None:
    assert {one.name for one in families().values() if one.longest_side} == {"claude", "claude-opus-4.7"}
    assert accepted_size("claude", 8000, 8000) == (8000, 8000)
    assert accepted_size("gpt-4o", 9921, 7016) == (9921, 7016)
    with pytest.raises(BadInput, match="width must be a whole number of pixels"):
        accepted_size("claude", "9921", 7016)  # type: ignore[arg-type]
