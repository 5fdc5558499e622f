"""A model's identity changes with whatever changes its answers, and native tokens are known before it answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.tiny import FAMILIES, picture, tiny

from stakes.errors import BadInput
from stakes.models import load
from stakes.models.base import Request
from stakes.models.identity import ModelName, family_of, identity, image_features, model_name, native_tokens


def differs(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {key for key in one if one[key] != other[key]}


def test_a_weight_the_prompt_the_pixels_or_the_length_change_the_identity() -> None:
    model = tiny("qwen2_vl")
    before = identity(model)
    assert identity(tiny("qwen2_vl")) == before
    weight = next(model.model.parameters())
    with torch.no_grad():
        before_change = weight.view(-1)[0].clone()
        weight.view(-1)[0] += 1
        try:
            assert differs(before, identity(model)) == {"weights"}
        finally:
            weight.view(-1)[0] = before_change
    other = replace(model.processor, template=model.processor.template + " ")
    assert differs(before, identity(replace(model, processor=other))) == {"prompt"}
    other = replace(model.processor, images=tiny("qwen3_vl").processor.images)
    assert differs(before, identity(replace(model, processor=other))) == {"pixels"}
    assert differs(before, identity(replace(model, max_new_tokens=3))) == {"length"}
    assert differs(before, identity(tiny("qwen2_5_vl"))) == {"family", "weights"}


def test_a_model_knows_how_it_was_named_and_keeps_no_credentials() -> None:
    reader = load("embedded-small", max_new_tokens=8)
    assert str(model_name(reader)) == "embedded-small, answers of up to 8 tokens"
    assert model_name(load("embedded-small")) == ModelName(name="embedded-small")
    address = "https://someone:p4ssword@127.0.0.1:9/v1/?api-key=s3cret#here"
    with load(address, model="vlm", api_key="k3y") as server:
        assert model_name(server) == ModelName(name="vlm", endpoint="https://127.0.0.1:9/v1")
    assert model_name(tiny("qwen2_vl")) is None


def test_a_large_model_is_identified_by_some_values_of_every_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("qwen2_vl")
    whole = identity(model)["weights"]
    monkeypatch.setattr("stakes.models.identity.WHOLE", 1000)
    monkeypatch.setattr("stakes.models.identity.SAMPLED", 8)
    part = identity(model)["weights"]
    assert part != whole
    for weight in model.model.parameters():
        with torch.no_grad():
            weight.mul_(1.001)
            changed = identity(model)["weights"]
            weight.div_(1.001)
        assert changed != part or not weight.any()


@pytest.mark.parametrize("family", FAMILIES[:3])
def test_native_tokens_by_deletion_follow_the_checkpoints_processor(family: str) -> None:
    model = tiny(family)
    for size in ((500, 400), (60, 60), (150, 120)):
        (answer,) = model.answer([Request(picture(*size), "?", 2, "deletion")])
        assert native_tokens(model, *size, "deletion") == answer.native_tokens
    assert native_tokens(model, 500, 400, "resolution") > native_tokens(model, 500, 400, "deletion")


def test_a_model_may_provide_its_own_identity() -> None:
    class Remote:
        family = "qwen2.5-vl"

        def identity(self) -> dict[str, Any]:
            return {"server": "a", "version": 3}

        def native_tokens(self, width: int, height: int, mechanism: str) -> int:
            return 7

    assert identity(Remote()) == {"server": "a", "version": "3"}
    assert native_tokens(Remote(), 1, 1, "deletion") == 7
    assert image_features(Remote(), None) is None
    with pytest.raises(BadInput, match="does not say its family"):
        family_of(object())
    with pytest.raises(BadInput, match="has no identity"):
        identity(object())
