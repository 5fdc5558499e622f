"""Answers with SparseVLM and PyramidDrop: their budgets are spent, whatever else is in the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.tiny import FAMILIES, blank, picture, stock_inputs, tiny

from stakes.errors import BadInput, InfeasibleBudget
from stakes.models import Request
from stakes.vision.deletion.exact import Selection
from stakes.vision.selectors import make
from stakes.vision.selectors.fastv import FastV
from stakes.vision.selectors.layers import LayerView, Stage
from stakes.vision.selectors.pyramiddrop import PyramidDrop
from stakes.vision.selectors.sparsevlm import SparseVLM

SPECS = ["sparsevlm", "sparsevlm:merge=False", "pyramiddrop", "dart"]


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_budget_of_all_tokens_is_stock_generate_also_beside_requests_that_drop(family: str) -> None:
    model = tiny(family)
    image = picture(120, 90, seed=5)
    inputs = stock_inputs(family, [image], ["What is it?"])
    stock = model.model.generate(**inputs, max_new_tokens=8, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    expected = model.processor.tokenizer.decode(stock, skip_special_tokens=True).strip()
    native = int((inputs["input_ids"] == model.processor.image_token_id).sum())
    for spec in SPECS:
        whole = Request(image, "What is it?", native, "deletion", spec)
        part = Request(image, "What is it?", 3, "deletion", spec)
        (alone,) = model.answer([whole])
        beside, fewer = model.answer([whole, part])
        assert alone.text == beside.text == expected
        assert (beside.realised_tokens, beside.layer_tokens) == (native, native)
        assert fewer.realised_tokens == 3
        assert fewer.layer_tokens < native


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("family", "attention"), [("qwen2_5_vl", "sdpa"), ("llava_onevision", "eager")])
def test_an_answer_does_not_depend_on_its_batch_and_spends_its_budget_blank_pages_too(
    family: str, attention: str, spec: str
) -> None:
    model = tiny(family, attention)
    selector: Any = make(spec)
    pages = [picture(150, 120, 1), blank(90, 170), picture(100, 100, 2), blank(140, 60)]
    requests = [
        Request(page, f"Where is number {i}{'?' * i}", budget, "deletion", spec)
        for i, page in enumerate(pages)
        for budget in (1, 2, 5, 9)
    ]
    together = model.answer(requests)
    for request, answer in zip(requests, together, strict=True):
        (alone,) = model.answer([request])
        assert (answer.text, answer.layer_tokens) == (alone.text, alone.layer_tokens)
        assert answer.realised_tokens == request.budget
        assert answer.input_tokens == answer.encoder_tokens == answer.native_tokens
        assert answer.layer_tokens == selector.average(answer.native_tokens, request.budget, 4)
    assert len({answer.text for answer in together}) > 4, "equal answers would prove nothing"


@pytest.mark.parametrize("spec", ["fastv", *SPECS])
@pytest.mark.parametrize("share", [0.9, 0.6])
def test_the_budget_for_a_layer_average_is_the_largest_that_realises_no_more(spec: str, share: float) -> None:
    model = tiny("qwen2_5_vl")
    selector: Any = make(spec)
    image = picture(200, 160, 4)
    (whole,) = model.answer([Request(image, "What?")])
    target = share * whole.native_tokens
    budget = selector.budget_for(whole.native_tokens, target, 4)
    this, more = model.answer([Request(image, "What?", b, "deletion", spec) for b in (budget, budget + 1)])
    assert this.layer_tokens <= target < more.layer_tokens
    assert this.realised_tokens == budget


@pytest.mark.parametrize("spec", ["fastv", *SPECS])
@pytest.mark.parametrize("family", ["qwen3_vl", "llava_onevision"])
def test_a_budget_averaged_over_layers_is_that_of_the_tokens_that_it_leaves(family: str, spec: str) -> None:
    model = tiny(family)
    counted = f"{spec}{',' if ':' in spec else ':'}count=layers"
    image = picture(200, 160, 4)
    (whole,) = model.answer([Request(image, "What?")])
    native = whole.native_tokens
    averages = [native, 4 * native // 5, 7 * native // 10]
    found = model.answer([Request(image, "What?", budget, "deletion", counted) for budget in averages])
    for budget, answer in zip(averages, found, strict=True):
        left = answer.realised_tokens
        same, *more = model.answer(
            [Request(image, "What?", n, "deletion", spec) for n in (left, left + 1) if n <= native]
        )
        assert (answer.budget, answer.text, answer.layer_tokens) == (budget, same.text, same.layer_tokens)
        assert answer.layer_tokens <= budget
        assert all(budget < one.layer_tokens for one in more)
    assert found[0].realised_tokens == found[0].layer_tokens == native
    with pytest.raises(InfeasibleBudget, match=rf"cannot average 3 of {native} tokens over 4 layers; its least is"):
        model.answer([Request(image, "What?", 3, "deletion", counted)])


def test_hooks_are_gone_after_a_selector_fails_inside_the_model() -> None:
    model = tiny("qwen3_vl")
    layers = model.model.model.language_model.layers

    def hooks() -> int:
        return sum(len(layer._forward_pre_hooks) + len(layer._forward_hooks) for layer in layers)

    during: list[int] = []

    class Fails(PyramidDrop):
        def choose(self, view: LayerView, keep: int) -> Selection:
            during.append(hooks())
            if view.index == 2:
                raise ZeroDivisionError
            return super().choose(view, keep)

    request = Request(picture(150, 120), "What?", 5, "deletion", "sparsevlm")
    (before,) = model.answer([request])
    with pytest.raises(ZeroDivisionError):
        model.answer([replace(request, selector=Fails())])
    assert during == [7, 7]
    assert hooks() == 0
    assert model.answer([request])[0].text == before.text


def test_options_are_read_and_checked() -> None:
    assert make("sparsevlm:layers=(0,1,3),merge=False") == SparseVLM(merge=False, layers=(0, 1, 3))
    assert make("pyramiddrop:layers=(8,16,24)") == PyramidDrop(layers=(8, 16, 24))
    assert SparseVLM(layers=(0, 1, 3)).plan(576, 113, 8) == (Stage(1, 309), Stage(2, 204), Stage(4, 113))
    for spec, message in {
        "sparsevlm:merge=no": "merge=True or merge=False, not 'no'",
        "sparsevlm:layers=(2,6)": "three layers",
        "sparsevlm:layers=2": "three layers",
        "pyramiddrop:layers=8": "layers=",
        "pyramiddrop:layers=()": "layers=",
    }.items():
        with pytest.raises(BadInput, match=message):
            make(spec)
    for deep in (SparseVLM(layers=(2, 6, 15)), PyramidDrop(layers=(2, 4)), PyramidDrop(layers=(3, 2))):
        with pytest.raises(BadInput, match="which a decoder of 4 has not all"):
            deep.plan(100, 9, 4)
    with pytest.raises(BadInput, match="which a decoder of 1 has not all"):
        SparseVLM().plan(100, 9, 1)
    assert FastV().plan(100, 9, 4) == (Stage(2, 9),)
