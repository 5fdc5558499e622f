"""``best_grid`` against brute force, against the server's own resizing, and applied twice."""

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stakes.errors import BadInput, InfeasibleBudget
from stakes.vision.geometry import count_tokens, family, smart_resize
from stakes.vision.image.grid_sizes import SLACK, best_grid
from stakes.vision.image.resize import fitted_size

BUDGETS = (32, 64, 96, 128, 160, 224, 304, 384, 448, 480, 512, 544, 576)
FACTOR_FAMILIES = ("qwen2-vl", "qwen2.5-vl", "qwen3-vl")


def brute_force(
    width: int, height: int, budget: int, factor: int, stretch: float, bounds: tuple[int, int], upscale: bool
) -> tuple[int, int] | None:
    """Every grid, one by one, by the definition; None where there is none."""
    native_width, native_height = smart_resize(width, height, factor, *bounds)
    native = native_height // factor, native_width // factor
    fixed = smart_or_none(native_width, native_height, factor, bounds) == (native_width, native_height)
    if fixed and not upscale and budget >= native[0] * native[1]:
        return native
    found = []
    for rows in range(1, budget + 1):
        for columns in range(1, budget // rows + 1):
            if not upscale and (rows > native[0] or columns > native[1]):
                continue
            scales = columns / width, rows / height
            needed = max(scales) / min(scales) - 1
            if needed > stretch + 1e-9:
                continue
            size = columns * factor, rows * factor
            if smart_or_none(*size, factor, bounds) == size:
                found.append((round(needed, 9), -rows * columns, -rows, columns))
    least = native[0] * native[1] if fixed and budget >= native[0] * native[1] else 0
    found = [grid for grid in found if -grid[1] >= least]
    if not found:
        return native if least else None

    def is_worth_its_tokens(grid: tuple[float, int, int, int]) -> bool:
        return not any(
            other[0] < grid[0] and math.ceil(-grid[1] * (1 - SLACK)) <= -other[1] <= -grid[1] for other in found
        )

    _, _, rows, columns = min(filter(is_worth_its_tokens, found), key=lambda grid: (grid[1], grid[0], grid[2]))
    return -rows, columns


def smart_or_none(width: int, height: int, factor: int, bounds: tuple[int, int]) -> tuple[int, int] | None:
    try:
        return smart_resize(width, height, factor, *bounds)
    except BadInput:
        return None


SIDES = st.one_of(st.integers(1, 3000), st.sampled_from([1, 28, 40, 56, 280, 1000, 1654, 2339]))


@settings(max_examples=400)
@given(
    SIDES,
    SIDES,
    st.integers(1, 260),
    st.sampled_from([(28, 3136, 12845056), (32, 65536, 16777216), (28, 20_000, 150_000), (28, 140_000, 150_000)]),
    st.sampled_from([0.0, 0.05, 0.15, 0.5, 2.0]),
    st.booleans(),
)
def test_best_grid_is_the_brute_force_optimum(
    width: int, height: int, budget: int, rule: tuple[int, int, int], stretch: float, upscale: bool
) -> None:
    assume(max(width, height) <= 200 * min(width, height))
    factor, *bounds = rule
    expected = brute_force(width, height, budget, factor, stretch, (bounds[0], bounds[1]), upscale)
    arguments: dict[str, Any] = {"min_pixels": bounds[0], "max_pixels": bounds[1], "upscale": upscale}
    if expected is not None:
        assert best_grid(width, height, budget, factor, stretch, **arguments) == expected
        return
    with pytest.raises(InfeasibleBudget) as caught:
        best_grid(width, height, budget, factor, stretch, **arguments)
    text = str(caught.value)
    if "smallest feasible budget is" in text:
        smallest = int(text.rsplit(" ", 1)[1])
        rows, columns = best_grid(width, height, smallest, factor, stretch, **arguments)
        assert rows * columns == smallest > budget
        if smallest <= 300:
            below = brute_force(width, height, smallest - 1, factor, stretch, (bounds[0], bounds[1]), upscale)
            assert below is None


@settings(max_examples=300)
@given(SIDES, SIDES, st.integers(4, 3000), st.integers(1, 300), st.sampled_from(FACTOR_FAMILIES))
def test_tokens_grow_with_the_budget_and_are_a_budget_of_the_same_size(
    width: int, height: int, budget: int, more: int, name: str
) -> None:
    """Arms and logs rely on it: tokens that were realised are a budget that realises them."""
    try:
        size, larger = (fitted_size(width, height, given, name) for given in (budget, budget + more))
    except (InfeasibleBudget, BadInput):
        return
    assert fitted_size(width, height, size.tokens, name) == size
    assert larger.tokens >= size.tokens


@settings(max_examples=300)
@given(SIDES, SIDES, st.integers(1, 20_000), st.sampled_from(FACTOR_FAMILIES), st.booleans())
def test_the_servers_own_resizing_is_the_identity(
    width: int, height: int, budget: int, name: str, upscale: bool
) -> None:
    known = family(name)
    assert known.factor is not None
    assert known.min_pixels is not None
    assert known.max_pixels is not None
    try:
        size = fitted_size(width, height, budget, name, upscale=upscale)
    except (InfeasibleBudget, BadInput):
        return
    assert smart_resize(size.width, size.height, known.factor, known.min_pixels, known.max_pixels) == (
        size.width,
        size.height,
    )
    assert size.tokens == count_tokens(name, size.width, size.height) <= budget
    if not upscale:
        native = smart_resize(width, height, known.factor, known.min_pixels, known.max_pixels)
        assert size.width <= native[0]
        assert size.height <= native[1]


def test_fit_spends_97_percent_where_max_pixels_spends_93() -> None:
    """Over the paper's 13 budgets and aspect ratios 0.5 to 1.6, pages of three million pixels."""
    shapes = [(round(math.sqrt(3e6 * a)), round(math.sqrt(3e6 / a))) for a in np.linspace(0.5, 1.6, 111)]
    ours, plain = {}, {}
    for budget in BUDGETS:
        sizes = [smart_resize(w, h, 28, 3136, budget * 784) for w, h in shapes]
        plain[budget] = float(np.mean([w * h / 784 / budget for w, h in sizes]))
        ours[budget] = float(np.mean([fitted_size(w, h, budget).tokens / budget for w, h in shapes]))
    for budget in BUDGETS:  # seen with -s
        print(f"  {budget:4d}  fit {ours[budget]:.1%}  max_pixels {plain[budget]:.1%}")
    print(f"  mean  fit {np.mean(list(ours.values())):.1%}  max_pixels {np.mean(list(plain.values())):.1%}")
    assert np.mean(list(ours.values())) >= 0.97
    assert np.mean(list(plain.values())) == pytest.approx(0.927, abs=0.005), "the published bar"
    assert all(ours[budget] > plain[budget] for budget in BUDGETS)


def test_a_last_token_is_not_worth_a_tenth_of_the_shape() -> None:
    assert best_grid(756, 1008, 576) == (27, 21)  # 567 tokens, 4 % of stretch; (26, 22) has 572 and 13 %
    assert best_grid(756, 1008, 448) == (24, 18)  # 432 and none; (23, 19) has 437 and 10 %


def test_more_stretch_spends_more() -> None:
    def spent(stretch: float) -> int:
        return sum(best_grid(w, 1400, b, 28, stretch)[0] * best_grid(w, 1400, b, 28, stretch)[1] for w, b in cases)

    cases = [(w, b) for w in range(700, 2200, 50) for b in BUDGETS[2:]]
    assert spent(0.04) < spent(0.08) < spent(0.15) < spent(0.3)


def test_the_search_takes_less_than_a_millisecond() -> None:
    cases = [(1654, 2339, 576), (2339, 1654, 304), (1008, 780, 96), (4000, 4000, 16000), (600, 3000, 1000)]
    times = []
    for _ in range(50):
        started = time.perf_counter()
        for case in cases:
            best_grid(*case)
        times.append((time.perf_counter() - started) / len(cases))
    assert min(times) < 1e-3  # about 0.05 ms here; benchmarks/resize.py times it
