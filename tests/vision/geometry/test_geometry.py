"""Counting tokens without the model: bad input, the hosted rules, and the rules of every family."""

import json
import subprocess
import sys
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stakes.errors import BadInput, UnknownFamily
from stakes.vision.geometry import count_tokens, families, family, smart_resize
from stakes.vision.geometry.factor import Factor
from stakes.vision.geometry.patches import PaddedPatches

FACTORS = ["qwen2-vl", "qwen2.5-vl", "qwen3-vl"]
PROMISED = (
    "qwen2-vl qwen2.5-vl qwen3-vl llava-onevision internvl idefics3 smolvlm gemma3 gemma4 pixtral mistral3 "
    "gpt-4o claude gemini"
)
SIDES = st.integers(1, 6000)


def test_every_promised_family_is_known() -> None:
    assert set(PROMISED.split()) <= set(families())


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("qwen2.5-vl", 4956),
        ("qwen3-vl", 3796),
        ("mistral3", 2200),
        ("pixtral", 3008),
        ("llava-onevision", 7353),
        ("claude", 1551),
        ("claude-opus-4.7", 4756),
        ("gpt-4o", 1105),
        ("internvl", 1792),
        ("smolvlm", 863),
        ("gemma4", 266),
        ("gemma4-llama.cpp", 266),
        ("gemma4-llama.cpp-1120", 1092),
    ],
)
def test_a_page_takes_the_tokens_computed_from_the_sources(name: str, tokens: int) -> None:
    assert count_tokens(name, 1654, 2339) == tokens


@pytest.mark.parametrize(
    ("name", "width", "height", "tokens"),
    [
        ("gpt-4o", 1024, 1024, 765),  # OpenAI's guide
        ("gpt-4o", 2048, 4096, 1105),  # OpenAI's guide
        ("gpt-4o", 4096, 8192, 1105),  # the same shape
        ("gpt-4o", 512, 512, 255),
        ("gpt-4o", 513, 512, 425),
        ("gpt-4.1-mini", 1024, 1024, 1659),  # 1024 patches in the guide
        ("gpt-4.1-mini", 1800, 2400, 2353),  # 1452 patches in the guide
        ("gpt-4.1-mini", 2400, 1800, 2353),
        ("gpt-4.1-mini", 480, 320, 243),  # 150 patches times 1.62 are 243.00000000000003 as floats
        ("gpt-4.1-nano", 100_000, 10, 3779),  # 1536 patches in a row
        ("gpt-5", 1024, 1024, 630),
        ("gpt-5.4", 1024, 1024, 1024),
        ("gpt-5.4", 4096, 1024, 1024),  # a long side of 2,048 pixels first
        ("gpt-5.4", 3000, 3000, 2500),
        ("gpt-5.4-mini", 1800, 2400, 2353),
        ("claude", 1092, 1092, 1521),
        ("claude", 500, 1644, 1008),  # 476.9 pixels become 477: eighteen patches
        ("claude", 1920, 1080, 1560),  # the table of Claude's guide, here and in the next three
        ("claude", 2000, 1500, 1564),
        ("claude-opus-4.7", 1920, 1080, 2691),
        ("claude-opus-4.7", 3840, 2160, 4784),
        ("gemini", 384, 384, 258),
        ("gemini", 960, 540, 1548),  # six tiles in Gemini's guide
        ("gemini", 385, 100, 516),
        ("gemini", 1400, 700, 2064),
        ("gemini", 3000, 3000, 4128),
        ("gemini-3", 385, 100, 1120),
        ("gpt-5-mini", 1024, 1024, 1659),
        ("gpt-5.5", 3000, 3000, 2500),
        ("deepseek-ocr", 640, 640, 273),  # 16 rows of 17, and a separator
        ("deepseek-ocr", 1024, 1448, 903),  # and 2 x 3 tiles: 30 rows of 21
        ("deepseek-vl2", 384, 384, 421),  # 14 rows of 15 twice, and a separator
        ("deepseek-vl2", 1654, 2339, 2017),  # 3 x 3 tiles: 42 rows of 43
        ("kimi-vl", 100, 57, 12),  # padded to 112 x 84
        ("kimi-vl", 1654, 2339, 1053),  # 4,096 patches before padding
        ("minicpm-v-2.6", 448, 448, 64),
        ("minicpm-v-4.5", 1344, 1344, 660),
        ("minicpm-v-2.6", 1344, 1344, 660),  # ten views of 64, two markers around nine of them, two breaks
        ("llava-onevision-1.5", 1654, 2339, 4956),
    ],
)
def test_documented_families_follow_their_guides(name: str, width: int, height: int, tokens: int) -> None:
    assert count_tokens(name, width, height) == tokens


@given(st.integers(1, 8000), st.integers(1, 8000))
def test_claude_gets_the_largest_image_that_fits(width: int, height: int) -> None:
    """The bisection finds what trying every long side finds."""
    rule = PaddedPatches(1568, 1568)
    long, short = max(width, height), min(width, height)
    sizes = ((edge, max(1, round(short * edge / long))) for edge in range(min(long, 1568), 0, -1))
    counts = (-(-edge // 28) * -(-side // 28) for edge, side in sizes)
    assert rule.tokens(width, height) == next(count for count in counts if count <= 1568)


def test_claude_rejects_what_its_service_rejects() -> None:
    with pytest.raises(BadInput, match="8001x10 .* above 8000 pixels"):
        count_tokens("claude", 8001, 10)


def test_families_from_documentation_are_marked_in_the_data() -> None:
    named = {"llava-onevision-1.5", "kimi-vl", "deepseek-vl2", "deepseek-ocr", "minicpm-v-2.6", "minicpm-v-4.5"}
    local = {name for name, one in families().items() if one.documented and not one.hosted}
    assert local == named | {"gemma4-llama.cpp", "gemma4-llama.cpp-1120"}
    assert all(one.documented for one in families().values() if one.hosted)


def test_families_are_dated_data() -> None:
    data = json.loads(files("stakes.vision.geometry").joinpath("families.json").read_text(encoding="utf-8"))
    for section in ("local", "hosted"):
        names = {name for name, one in families().items() if one.hosted == (section == "hosted")}
        assert names == set(data[section]["families"])
        entries = data[section]["families"]
        assert all(family(name).version == entries[name].get("date", data[section]["date"]) for name in names)
        assert all(entry["source"] for entry in data[section]["families"].values())


@given(SIDES, SIDES, st.sampled_from(FACTORS))
def test_a_factor_family_counts_its_grid_and_keeps_its_own_sizes(width: int, height: int, name: str) -> None:
    assume(max(width, height) <= 200 * min(width, height))
    known = family(name)
    assert isinstance(known.formula, Factor)
    assert known.factor is not None
    assert known.min_pixels is not None
    assert known.max_pixels is not None
    columns, rows = known.formula.grid(width, height)
    assert count_tokens(name, width, height) == columns * rows
    size = columns * known.factor, rows * known.factor
    assert size == smart_resize(width, height, known.factor, known.min_pixels, known.max_pixels)
    if known.min_pixels <= size[0] * size[1] <= known.max_pixels and max(size) <= 200 * min(size):
        assert smart_resize(*size, known.factor, known.min_pixels, known.max_pixels) == size


@given(SIDES, SIDES, st.integers(1, 4000))
def test_max_pixels_is_an_upper_bound_but_for_thin_images(width: int, height: int, budget: int) -> None:
    assume(max(width, height) <= 5 * min(width, height))
    tokens = count_tokens("qwen2.5-vl", width, height, min_pixels=1, max_pixels=budget * 784)
    if budget >= 25:
        assert tokens <= budget


def test_families_state_how_a_budget_is_realised() -> None:
    assert family("qwen2.5-vl").refusal is None
    assert (family("qwen2.5-vl").factor, family("qwen3-vl").factor, family("pixtral").factor) == (28, 32, None)
    expected = {
        "internvl": "max_dynamic_patch",
        "smolvlm": "max_image_size",
        "idefics3": "longest_edge",
        "gemma3": "do_pan_and_scan",
        "gemma4": "max_soft_tokens",
        "gemini-3": "media_resolution",
    }
    alike = {"internvl3.5", "smolvlm2", "smolvlm2-500m"}
    fixed = {"llava-1.5", "paligemma", "paligemma-448", "paligemma-896", "gemma3n"}
    assert {name for name, one in families().items() if one.refusal} == set(expected) | alike | fixed
    assert all("any setting" in (family(name).refusal or "") for name in fixed)
    for name, parameter in expected.items():
        refusal = family(name).refusal or ""
        assert refusal.startswith(f"{name}: not controllable by resizing; use ")
        assert parameter in refusal


@pytest.mark.parametrize("name", ["idefics3", "smolvlm", "gemma3", "gemma4"])
def test_uncontrollable_families_do_not_follow_size(name: str) -> None:
    assert len({count_tokens(name, 600 * k, 800 * k) for k in range(1, 8)}) == 1


SPELLINGS = {"Qwen2.5VL": "qwen2.5-vl", "qwen_3_vl": "qwen3-vl", "pixtrl": "pixtral", "GPT4o": "gpt-4o"}
OTHERS = "zzz qwen9-vl qwen2.6-vl gemma9 gemma4n internvl9 o9 gpt-9 llama minicpm-o intern pixtral2 claude-opus-9"


@pytest.mark.parametrize(("typed", "meant"), [*SPELLINGS.items(), ("claued", "claude"), ("smollvlm", "smolvlm")])
def test_an_unknown_family_names_the_same_in_another_spelling(typed: str, meant: str) -> None:
    with pytest.raises(UnknownFamily, match=f"unknown family '{typed}'; did you mean '{meant}'\\?"):
        count_tokens(typed, 100, 100)


@pytest.mark.parametrize("typed", [*OTHERS.split(), ""])
def test_an_unknown_family_is_never_taken_for_another_architecture(typed: str) -> None:
    with pytest.raises(UnknownFamily, match=f"unknown family '{typed}'; stakes families lists"):
        family(typed)


@pytest.mark.parametrize("side", [0, -1, 1.5, 100.0, "100", None, True, 2**31])
@pytest.mark.parametrize("name", ["qwen2.5-vl", "claude"])
def test_a_side_must_be_a_number_of_pixels(name: str, side: Any) -> None:
    with pytest.raises(BadInput, match="^width must be"):
        count_tokens(name, side, 100)
    with pytest.raises(BadInput, match="^height must be"):
        count_tokens(name, 100, side)


def test_bounds_are_for_factor_families_only() -> None:
    with pytest.raises(BadInput, match="^pixtral takes no max_pixels; size.longest_edge sets its tokens"):
        count_tokens("pixtral", 100, 100, max_pixels=784)
    with pytest.raises(BadInput, match="^max_pixels must be a whole number of pixels, at least 1, not 0"):
        count_tokens("qwen2-vl", 100, 100, max_pixels=0)


@pytest.mark.parametrize("name", families())
def test_every_family_answers_or_refuses_up_to_the_largest_sides(name: str) -> None:
    for width, height in [(1, 1), (1, 6000), (6000, 1), (2**31 - 1, 2**31 - 1), (2**31 - 1, 1)]:
        try:
            answer: int | str = count_tokens(name, width, height)
        except BadInput as refusal:
            answer = str(refusal)
        assert f"an image of {width}x{height} " in answer if isinstance(answer, str) else answer >= 1


def test_counting_imports_no_numerical_library() -> None:
    code = (
        "import sys; from stakes.vision.geometry import count_tokens; count_tokens('qwen2.5-vl', 9, 9);"
        "print([m for m in ('torch', 'transformers', 'numpy', 'PIL') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
