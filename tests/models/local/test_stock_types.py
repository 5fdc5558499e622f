"""Resolution works for 23 types that stakes has no code for: answers are stock generate's, tokens the family's.

The models are random and tiny, of the types' own classes; ``stock_types`` says which parts of the processors are real.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from tests.models.local.stock_types import FIXED
from tests.models.local.stock_types_sized import SIZED, build
from tests.models.tiny import picture

from stakes import models
from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach
from stakes.models import Request
from stakes.models.identity import menu_of
from stakes.models.local.stock import StockVLM
from stakes.models.local.stock_processor import StockProcessor, checkpoint_family
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry import family as named_family
from stakes.vision.image.resize import fitted_size

pytestmark = [  # of transformers itself
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`pixel_values_images` is deprecated:FutureWarning"),
]
# type -> the family that its processor's numbers give; of the fixed ones, the tokens of every image
FAMILIES = {
    "qwen3_5": "qwen3.5",
    "qwen3_5_moe": "qwen3.5",
    "exaone4_5": "max_pixels=12845056,merge=2,min_pixels=3136,patch=14",
    "video_llama_3": "max_pixels=1003520,merge=1,min_pixels=3136,patch=14",
    "glm4v": "glm-4.1v",
    "glm4v_moe": "glm-4.5v",
    "glm46v": "glm-4.6v",
    "glm_ocr": "like=glm-4.1v,factor=28,max_pixels=5880000,min_pixels=6272",
    "minicpmv4_6": "minicpm-v-4.6",
    "llava_next_video": "llava-next",
    "internvl": "internvl",
    "aya_vision": "per_tile=169,tile=364,tiles=12",
    "smolvlm": "like=idefics3,longest_edge=1024,per_tile=64,tile=512",
    "gemma4": "gemma4",
    "vipllava": "per_image=576",
    "video_llava": "per_image=256",
    "paligemma": "per_image=256",
    "deepseek_vl": "per_image=576",
    "deepseek_vl_hybrid": "per_image=576",
    "janus": "per_image=576",
    "blip-2": "per_image=32",
    "aria": "per_image=256",
    "idefics2": "per_image=64",
}
MENUS = {"internvl": 1300, "aya_vision": 700, "smolvlm": 200, "gemma4": 150}  # and a budget
RESIZED = {kind: 300 for kind in SIZED if kind in FAMILIES and kind not in MENUS} | {"llava_next_video": 1400}


@cache
def _model(kind: str) -> StockVLM:
    with torch.inference_mode(False):
        model, whole = build(kind)
    processor = StockProcessor(whole)
    family = checkpoint_family(processor, model.config, models.FAMILIES.get(kind))
    return StockVLM(model, processor, family, max_new_tokens=4)


@pytest.mark.parametrize("kind", FAMILIES)
def test_an_answer_is_stock_generates_and_its_tokens_are_those_of_the_prompt(kind: str) -> None:
    model, image = _model(kind), picture(400, 100)
    assert model.family == FAMILIES[kind]
    inputs = model.processor.inputs([image], "What is it?")
    out = model.model.generate(**inputs, max_new_tokens=4, do_sample=False)
    end = model.model.generation_config.eos_token_id
    stock = out[0, -4:] if end not in out[0].tolist() else out[0]
    (answer,) = model.answer([Request(image, "What is it?")])
    words = model.processor.tokenizer.decode(stock, skip_special_tokens=True).strip()
    assert words.endswith(answer.text)
    assert answer.realised_tokens == answer.native_tokens == count_tokens(model.family, 400, 100)
    assert answer.image_tokens == (answer.realised_tokens,)
    other = model.answer([Request(picture(400, 100, seed=3), "What is it?")])[0]
    assert other.confidence != answer.confidence, "the image is read"


@pytest.mark.parametrize("kind", RESIZED)
def test_a_budget_resizes_the_image_and_the_prompt_holds_so_many_tokens(kind: str) -> None:
    model, budget = _model(kind), RESIZED[kind]
    (answer,) = model.answer([Request(picture(900, 700), "What is it?", budget)])
    size = fitted_size(900, 700, budget, model.family)
    assert (
        answer.realised_tokens == size.tokens <= budget < answer.native_tokens == count_tokens(model.family, 900, 700)
    )
    assert size.tokens > 0.6 * budget


@pytest.mark.parametrize("kind", MENUS)
def test_where_resizing_changes_nothing_a_parameter_of_the_processor_realises_the_budget(kind: str) -> None:
    model, budget = _model(kind), MENUS[kind]
    entries = menu_of(model, "resolution")
    assert entries is not None
    image = picture(900, 700)
    small, whole = model.answer([Request(image, "What is it?", budget), Request(image, "What is it?")])
    assert 0 < small.realised_tokens <= budget < whole.realised_tokens
    assert small.native_tokens == entries[-1] == model.native_tokens(900, 700, "resolution")
    assert small.confidence != whole.confidence
    with pytest.raises(InfeasibleBudget, match="no setting is within"):
        model.answer([Request(image, "What is it?", 3)])


@pytest.mark.parametrize("kind", FIXED)
def test_a_type_whose_tokens_nothing_changes_refuses_a_budget_by_name(kind: str) -> None:
    with pytest.raises(BadInput, match=f"a {kind} takes a number of tokens that resizing does not change"):
        _model(kind).answer([Request(picture(64, 64), "What?", 100)])


@pytest.mark.parametrize("kind", ["qwen3_5", "glm4v", "idefics2", "smolvlm", "gemma4", "llava_next_video"])
def test_two_images_in_one_prompt_have_the_tokens_of_each(kind: str) -> None:
    model, images = _model(kind), (picture(400, 100), picture(300, 500, seed=2))
    (answer,) = model.answer([Request(images, "Which?")])
    assert answer.image_tokens == tuple(count_tokens(model.family, *image.size) for image in images)
    assert answer.realised_tokens == sum(answer.image_tokens)


def test_two_images_are_resized_to_their_own_budgets() -> None:
    model, images, budgets = _model("glm4v"), (picture(900, 700), picture(600, 800, seed=2)), (90, 150)
    (answer,) = model.answer([Request(images, "Which?", budgets=budgets)])
    fitted = [
        fitted_size(*image.size, budget, model.family).tokens for image, budget in zip(images, budgets, strict=True)
    ]
    assert list(answer.image_tokens) == fitted
    (swapped,) = model.answer([Request(images[::-1], "Which?", budgets=budgets[::-1])])
    assert swapped.image_tokens == answer.image_tokens[::-1]
    assert swapped.confidence != answer.confidence


def test_one_parameter_keeps_every_image_within_its_budget() -> None:
    model, images = _model("gemma4"), (picture(900, 700), picture(300, 500, seed=2))
    (answer,) = model.answer([Request(images, "Which?", budgets=(150, 600))])
    assert answer.image_tokens == tuple(
        count_tokens("like=gemma4,max_soft_tokens=140", *image.size) for image in images
    )


def test_a_type_whose_rule_is_not_known_asks_for_a_family_with_what_it_measured() -> None:
    with pytest.raises(BadInput, match=r"a lighton_ocr does not say .* images of 64x64, .* take \d+, \d+, \d+; give"):
        _model("lighton_ocr")


def test_a_wrong_count_is_an_error_with_both_numbers() -> None:
    model = _model("glm4v")
    wrong = StockVLM(model.model, model.processor, "qwen3-vl", max_new_tokens=4)
    with pytest.raises(LedgerBreach, match="tokens in qwen3-vl, and this checkpoint's processor wrote"):
        wrong.answer([Request((picture(300, 400), picture(500, 400)), "Which?", budgets=(70, 80))])


def test_every_image_text_type_answers_is_refused_by_name_or_is_measured_when_it_loads() -> None:
    kinds: Any = set(models.REFUSED)
    assert not kinds & {*FAMILIES, *models.FAMILIES, *models.ARCHITECTURES}
    assert len({*FAMILIES} - {"paddleocr_vl", "llava", "llava_next", "gemma3", "idefics3"}) >= 20
    assert all(named_family(name).name == name for name in FAMILIES.values())
