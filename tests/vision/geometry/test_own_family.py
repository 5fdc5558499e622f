"""A family of one's own, described by its numbers, works wherever a name does."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image

import stakes
from stakes.budgets.digests import _part_digests
from stakes.budgets.policy import Policy
from stakes.commands.options.served_policy import read_policy
from stakes.errors import BadInput, UnknownFamily
from stakes.vision.geometry import count_tokens, family
from stakes.vision.geometry.menus import menu, supported

OWN = "patch=14,merge=2,min_pixels=3136,max_pixels=12845056"
ONE_SPELLING = "max_pixels=12845056,merge=2,min_pixels=3136,patch=14"


@given(st.integers(1, 6000), st.integers(1, 6000))
def test_qwens_numbers_count_as_qwen(width: int, height: int) -> None:
    assume(max(width, height) <= 200 * min(width, height))
    assert count_tokens(OWN, width, height) == count_tokens("qwen2.5-vl", width, height)


def test_tiles_fixed_and_alike_count_as_their_rules() -> None:
    for width, height in [(100, 100), (1654, 2339), (3000, 500)]:
        page = (width, height)
        assert count_tokens("tile=448,tiles=12,per_tile=256", *page) == count_tokens("internvl", *page)
        assert count_tokens("per_image=729", *page) == 729
        assert count_tokens("like=qwen2.5-vl,max_pixels=1003520", *page) == count_tokens(
            "qwen2.5-vl", *page, max_pixels=1003520
        )
    assert count_tokens("like=gpt-5-mini,multiplier=1.2", 1024, 1024) == 1229


def test_an_image_is_fitted_to_a_budget_of_ones_own_family() -> None:
    page = Image.new("RGB", (756, 1008))
    own, known = stakes.fit(page, 576, OWN), stakes.fit(page, 576, "qwen2.5-vl")
    assert (own.image.size, own.tokens) == (known.image.size, known.tokens)
    assert stakes.fit(page, 300, "like=llama4,most=4").tokens <= 300
    with pytest.raises(BadInput, match="per_image=729: not controllable by resizing; every image takes the same"):
        stakes.fit(page, 576, "per_image=729")


def test_engine_parameters_reach_it() -> None:
    assert supported(OWN) == tuple(name for name in supported("qwen2.5-vl") if name != "vllm-deletion")
    assert menu("vllm", "tile=448,tiles=2,per_tile=256") == (256, 768)


def test_a_policy_records_it_in_one_spelling() -> None:
    spellings = [OWN, " patch=14, merge = 2,min_pixels=3136,max_pixels=12845056", ONE_SPELLING]
    policies = [read_policy(None, ["high=576", "low=64"], None, spelling) for spelling in spellings]
    assert {policy.family for policy in policies} == {ONE_SPELLING} == {family(OWN).name}
    assert len({str(_part_digests(policy)) for policy in policies}) == 1
    other = read_policy(None, ["high=576", "low=64"], None, OWN.replace("3136", "6272"))
    assert _part_digests(other)["setting"] != _part_digests(policies[0])["setting"]
    again = Policy.model_validate_json(policies[0].model_dump_json(by_alias=True))
    assert again.family == ONE_SPELLING


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("patch=14", "has the keys patch; give max_pixels, merge, min_pixels, patch; or per_tile, tile, tiles"),
        ("patch=14,patch=2", "'patch=2' must be a key and its value, once each"),
        ("patch=,merge=2", "'patch=' must be a key and its value"),
        ("patch=a,merge=2,min_pixels=1,max_pixels=9", "patch must be a positive number, int, not 'a'"),
        ("patch=14,merge=2,min_pixels=9,max_pixels=8", "max_pixels is below min_pixels"),
        ("patch=0,merge=2,min_pixels=9,max_pixels=8", "patch must be a positive number"),
        ("patch=14.5,merge=2,min_pixels=9,max_pixels=8", "patch must be a positive number, int, not '14.5'"),
        ("like=qwen9-vl,max_pixels=9", "unknown family 'qwen9-vl'; stakes families lists"),
        ("like=pixtral", "pixtral has the numbers longest_edge, patch; give some of them"),
        ("like=pixtral,most=3", "pixtral has the numbers longest_edge, patch"),
        ("like=gpt-5-mini,multiplier=nan", "multiplier must be a positive number, float, not 'nan'"),
    ],
)
def test_a_description_that_is_none_is_refused_in_words(text: str, message: str) -> None:
    with pytest.raises(UnknownFamily) as raised:
        family(text)
    assert message in str(raised.value)
