"""``fit`` spends a budget as far as it can and never more, or says by name why it cannot."""

import math
from typing import Any

import pytest
from PIL import Image

from stakes.errors import BadInput, InfeasibleBudget, UnknownFamily, UnreadableImage
from stakes.vision.geometry import count_tokens, families, family, smart_resize
from stakes.vision.image.grid_sizes import best_grid
from stakes.vision.image.resize import fit, fitted_size

FACTOR_FAMILIES = ("qwen2-vl", "qwen2.5-vl", "qwen3-vl")
CONTROLLABLE = [name for name, known in families().items() if known.controllable_by_resizing]


@pytest.mark.parametrize("name", FACTOR_FAMILIES)
def test_an_image_within_its_budget_takes_its_native_grid(name: str) -> None:
    known = family(name)
    native = count_tokens(name, 700, 500)
    for budget in (native, native + 1, 10**6):
        fitted = fit(Image.new("RGB", (700, 500)), budget, name)
        assert fitted.tokens == fitted.native == native
        assert fitted.image.size == smart_resize(
            700, 500, known.factor or 0, known.min_pixels or 0, known.max_pixels or 0
        )
    assert fit(Image.new("RGB", (700, 500)), native - 1, name).tokens < native


def test_upscaling_is_optional() -> None:
    """Not even of one side: 19 x 21 squares would spend 399 tokens on 560 x 560 pixels, which hold 20 x 20."""
    assert fitted_size(560, 560, 399).tokens == 380
    assert fitted_size(560, 560, 399, upscale=True).tokens == 399
    small = Image.new("RGB", (140, 140))
    assert fit(small, 100).tokens == 25
    assert fit(small, 100, upscale=True).tokens == 100
    assert fit(small, 100, upscale=True).scale == (2.0, 2.0)
    assert fit(small, 3000, "pixtral", upscale=True).tokens > fit(small, 3000, "pixtral").tokens


def test_a_budget_that_cannot_be_met_names_the_smallest_that_can() -> None:
    with pytest.raises(InfeasibleBudget, match="1654x2339.* 3 tokens.*smallest feasible budget is 6"):
        fitted_size(1654, 2339, 3)
    assert fitted_size(1654, 2339, 6).tokens == 6
    with pytest.raises(InfeasibleBudget, match="smallest feasible budget is 64"):
        fitted_size(1000, 1000, 32, "qwen3-vl")
    with pytest.raises(InfeasibleBudget, match="smallest feasible budget is 255"):
        fitted_size(1654, 2339, 100, "gpt-4o")
    with pytest.raises(InfeasibleBudget, match="smallest feasible budget is 1269"):
        fitted_size(1654, 2339, 1000, "llava-onevision")
    # 205 x 1 squares would do, if the processor took an aspect ratio of more than 200.
    with pytest.raises(InfeasibleBudget, match="smallest feasible budget is 396"):
        best_grid(28, 5320, 220, min_pixels=205 * 784, upscale=True)


@pytest.mark.parametrize("name", [name for name in CONTROLLABLE if family(name).factor is None])
@pytest.mark.parametrize("size", [(1654, 2339), (900, 400), (333, 334)])
def test_other_controllable_families_are_shrunk_in_shape(name: str, size: tuple[int, int]) -> None:
    native = count_tokens(name, *size)
    for budget in sorted({native, native - 1, native * 2 // 3, native // 3, 300}):
        try:
            found = fitted_size(*size, budget, name, stretch=0.02)
        except InfeasibleBudget as error:
            smallest = int(str(error).rsplit(" ", 1)[1])
            assert smallest > budget
            assert fitted_size(*size, smallest, name, stretch=0.02).tokens == smallest
            continue
        assert found.tokens == count_tokens(name, found.width, found.height) <= budget
        assert found.width <= size[0]
        assert found.height <= size[1]
        assert (found.width / size[0]) / (found.height / size[1]) == pytest.approx(1, abs=0.021)
        if native <= budget:
            assert (found.width, found.height) == size


def test_no_other_size_of_the_same_shape_spends_more() -> None:
    for name in ("pixtral", "gpt-4o", "claude", "gemini", "o4-mini"):
        for budget in (300, 700, 1100):
            within = [
                (tokens, side)
                for side in range(50, 1001)
                if (tokens := count_tokens(name, side, round(side * 0.7))) <= budget
            ]
            found = fitted_size(1000, 700, budget, name)
            assert found.tokens == max(within)[0]
            assert found.width >= max(within)[1]


@pytest.mark.parametrize("name", [name for name in families() if name not in CONTROLLABLE])
def test_families_that_resizing_cannot_control_name_what_does(name: str) -> None:
    with pytest.raises(BadInput, match="not controllable by resizing; (use .{4}|every image takes the same)") as caught:
        fit(Image.new("RGB", (300, 300)), 200, name)
    assert (family(name).engine_parameter or "at any setting") in str(caught.value)


@pytest.mark.parametrize("budget", [0, -5, 1.5, True, "96", None])
def test_a_budget_is_a_whole_number(budget: Any) -> None:
    with pytest.raises(BadInput, match="budget"):
        fit(Image.new("RGB", (300, 300)), budget)


@pytest.mark.parametrize("stretch", [-0.1, math.nan, math.inf])
def test_a_stretch_is_a_number_of_at_least_0(stretch: float) -> None:
    with pytest.raises(BadInput, match="stretch"):
        fit(Image.new("RGB", (300, 300)), 50, stretch=stretch)


def test_bad_input_raises_a_named_error() -> None:
    with pytest.raises(UnknownFamily):
        fit(Image.new("RGB", (300, 300)), 50, "qwen9-vl")
    with pytest.raises(UnreadableImage):
        fit(b"nothing", 50)
    with pytest.raises(UnreadableImage, match="more than the 1000 allowed"):
        fit(Image.new("RGB", (300, 300)), 50, decode_limit=1000)
    for size in ((1, 5000), (5000, 1)):
        with pytest.raises(BadInput, match="aspect ratio of 5000"):
            fit(Image.new("RGB", size), 50)


@pytest.mark.parametrize(("size", "tokens"), [((1, 1), 4), ((1, 150), 25), ((150, 1), 25), ((7990, 40), 200)])
def test_tiny_and_thin_images_fit(size: tuple[int, int], tokens: int) -> None:
    """40 pixels high are one row of squares: the native grid, 285 of them, is thinner than the processor accepts."""
    fitted = fit(Image.new("RGB", size), 400)
    assert fitted.tokens == tokens
    assert smart_resize(*fitted.image.size) == fitted.image.size
