"""On a real GPU: tokens are those of ``generate``, and the next call's images are encoded behind this call's answers.

python -m pytest tests/models/fast/test_gpu_answers.py          # one CUDA GPU; skips without
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.fast.captured import QUESTIONS, requests
from tests.models.tiny import FAMILIES, picture, stock_inputs, tiny

from stakes.models import Request
from stakes.models.fast import ops_for, torch_ops
from stakes.models.fast.decoder import FastDecoder
from stakes.models.local.image_cache import EncodedCache
from stakes.models.local.vlm import LocalVLM

DEVICE = torch.device("cuda")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def gpu_model(family: str, fast: bool, ops: Any = None) -> LocalVLM:
    one = tiny(family)
    model = replace(one, model=deepcopy(one.model).to(DEVICE), cache=EncodedCache(), fast=fast)
    if ops is not None:
        vars(model)["fast_decoder"] = FastDecoder(model.model, ops)
    return model


@pytest.mark.parametrize("ops", [torch_ops, None], ids=["torch", "triton"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_equal_generate_also_when_replayed(family: str, count: int, ops: Any) -> None:
    """In float32. The first answer captures the steps, the second replays them."""
    model = gpu_model(family, True, ops or ops_for(DEVICE))
    questions = requests(count, None, "resolution")
    pages: list[Any] = [one.image for one in questions]
    inputs = {name: x.to(DEVICE) for name, x in stock_inputs(family, pages, QUESTIONS[:count]).items()}
    stock = model.model.generate(**inputs, max_new_tokens=8, do_sample=False)[:, inputs["input_ids"].shape[1] :]
    expected = [model.processor.tokenizer.decode(row, skip_special_tokens=True).strip() for row in stock]
    for selector in (None, "fastv"):
        cut = [Request(one.image, one.question, 6, "deletion", selector) for one in questions]
        stock_loop = [answer.text for answer in gpu_model(family, False).answer(cut)]
        assert [answer.text for answer in model.answer(cut)] == stock_loop
    for _ in range(2):
        assert [answer.text for answer in model.answer(questions)] == expected
    assert len(set(expected)) == count, "equal answers would prove nothing"


def test_the_host_has_these_answers_before_the_device_has_encoded_the_next_images() -> None:
    model = gpu_model("qwen2_5_vl", True)
    calls = [requests(3, None, "resolution"), [Request(picture(120, 150, seed=7), QUESTIONS[0], 6, "deletion")]]
    plain = [[one.text for one in model.answer(call)] for call in calls]
    model.forget()
    for call in calls:
        model.open_ahead(call)
    for opened in list(model.ahead._calls):
        for _, future in opened.images.values():
            future.result()
    encode_many = model.encode_many
    passes: list[int] = []

    def slow(images: Any, *more: Any) -> Any:
        if passes:
            torch.cuda._sleep(4_000_000_000)  # type: ignore[no-untyped-call]  # two seconds of the device
        passes.append(len(images))
        return encode_many(images, *more)

    vars(model)["encode_many"] = slow
    assert [one.text for one in model.answer(calls[0])] == plain[0]
    assert passes == [3, 1]
    assert not torch.cuda.current_stream().query()
    assert [one.text for one in model.answer(calls[1])] == plain[1]
    assert passes == [3, 1]
