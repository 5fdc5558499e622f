"""Answers spend exactly their budget, whatever they are batched with."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.models.tiny import FAMILIES, blank, picture, tiny

from stakes.errors import BadInput, LedgerBreach, UnreadableImage
from stakes.models import VLM, Request
from stakes.models.local.image_cache import Encoded, EncodedCache
from stakes.models.local.vlm import LocalVLM

QWEN = FAMILIES[:3]


def fresh(family: str) -> LocalVLM:
    return replace(tiny(family), cache=EncodedCache())


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_does_not_depend_on_what_it_was_batched_with(family: str) -> None:
    requests = [
        Request(picture(150, 120, 1), "What is the total?", 7, "deletion"),
        Request(picture(80, 200, 2), "Who?"),
        Request(blank(100, 100), "When was that?", 3, "deletion", "saliency"),
        Request(picture(150, 120, 1), "Where?", 9, "deletion", "fastv"),
        Request(picture(80, 200, 2), "A much longer question than the others, is it?", 4, "deletion", "fastv"),
        Request(picture(60, 60, 3), "Why?", 2, "zero-mask", "random"),
        Request(picture(150, 120, 1), "What is the total?", 9, "deletion", "visionzip"),
    ]
    together = fresh(family).answer(requests)
    alone = [fresh(family).answer([request])[0] for request in requests]
    for one, other in zip(together, alone, strict=True):
        assert replace(one, timings={}) == replace(other, timings={})
        assert one.confidence == pytest.approx(other.confidence, abs=1e-4)
    assert len({answer.text for answer in together}) > 4


@pytest.mark.parametrize("family", FAMILIES)
def test_by_deletion_the_prompt_holds_exactly_the_budget(family: str) -> None:
    model = fresh(family)
    generator = np.random.default_rng(3)
    pages = [picture(130, 100, 1), picture(70, 190, 2), blank(140, 90), blank(57, 57)]
    selectors = ["redundancy", "random", "saliency", "visionzip", "cdpruner"]
    with torch.inference_mode():
        natives = [model.prepare(Request(page, "?")).native for page in pages]
        for i in range(60):
            page = i % len(pages)
            budget = int(generator.integers(1, natives[page] + 1))
            job = model.prepare(Request(pages[page], "What?", budget, "deletion", selectors[i % 5]))
            placeholders = int((job.ids == model.processor.image_token_id).sum())
            assert (job.realised, job.prompt.tokens, job.native) == (budget, budget, natives[page])
            assert len(job.prompt.embeds) == len(job.ids) - placeholders + budget


@pytest.mark.parametrize("family", QWEN)
def test_by_resizing_the_processor_emits_the_tokens_that_fit_predicted(family: str) -> None:
    from stakes.vision.image.resize import fit

    model = fresh(family)
    generator = np.random.default_rng(5)
    with torch.inference_mode():
        for i in range(20):
            page = picture(int(generator.integers(200, 500)), int(generator.integers(200, 500)), i)
            budget = int(generator.integers(72, 150) if family == "qwen3_vl" else generator.integers(6, 150))
            job = model.prepare(Request(page, "What?", budget))
            fitted = fit(page, budget, model.family)
            assert job.prompt.tokens == job.realised == fitted.tokens <= budget
            assert job.native == fitted.native


def test_a_processor_that_resizes_again_is_caught() -> None:
    """The tiny LLaVA has tiles of 28 pixels, so the published family's ladder is wrong for it."""
    with pytest.raises(LedgerBreach, match="fitted to 1[0-9]+ tokens"):
        fresh("llava_onevision").answer([Request(picture(300, 300), "What?", 1500)])


def test_in_model_selectors_report_what_every_layer_saw() -> None:
    (answer,) = fresh("qwen2_5_vl").answer([Request(picture(150, 120), "What?", 4, "deletion", "fastv:layer=1")])
    native = answer.native_tokens
    assert (answer.realised_tokens, answer.input_tokens, answer.encoder_tokens) == (4, native, native)
    assert answer.layer_tokens == (native + 3 * 4) / 4
    assert set(answer.timings) == {"encoder", "selector", "prefill", "decode", "host"}
    assert all(ms > 0 for ms in answer.timings.values())


def test_an_image_is_encoded_once_for_all_questions_and_budgets() -> None:
    model = fresh("qwen2_5_vl")
    calls: list[int] = []
    handle = model.model.model.visual.register_forward_hook(lambda *_: calls.append(1))
    png = io.BytesIO()
    picture(150, 120).save(png, "png")
    try:
        for image in (picture(150, 120), png.getvalue()):
            answers = model.answer([Request(image, q, b, "deletion") for q in ("What?", "Who?") for b in (3, 9)])
        assert len(calls) == 1
        assert answers[0].timings["encoder"] == 0
        model.answer([Request(picture(150, 120), "What?", 3, "deletion", "visionzip")])
        assert len(calls) == 2, "encoder attention was not kept, so the image is encoded again for it, once"
        model.answer([Request(picture(150, 120), "What?", 5, "deletion", s) for s in ("visionzip", "saliency")])
        assert len(calls) == 2
    finally:
        handle.remove()


def test_the_cache_drops_the_oldest_image() -> None:
    cache = EncodedCache(limit=2 * 40)
    for name in "abc":
        cache.put(name, Encoded(torch.zeros(5, 2)))
    assert [cache.get(name, attention=False) is not None for name in "abc"] == [False, True, True]


def test_a_batch_larger_than_batch_size_is_split_and_answers_stay_in_order() -> None:
    model = fresh("qwen2_5_vl")
    requests = [Request(picture(60 + 30 * (i % 3), 90, i % 3), f"Question {i}?", 3, "deletion") for i in range(5)]
    small = replace(model, batch_size=2).answer(requests)
    assert [a.text for a in small] == [a.text for a in model.answer(requests)]
    assert model.answer([]) == []
    assert isinstance(model, VLM)


def test_truncated_reports_whether_the_answer_was_cut() -> None:
    model = fresh("qwen2_5_vl")
    request = Request(picture(150, 120), "What?")
    (long,) = replace(model, max_new_tokens=3).answer([request])
    assert long.truncated
    job = model.prepare(request)
    first = model._decode([job])[0].tokens[0][1]
    ends = model.model.generation_config.eos_token_id
    try:
        model.model.generation_config.eos_token_id = [ends, first]
        (short,) = replace(model, max_new_tokens=3).answer([request])
    finally:
        model.model.generation_config.eos_token_id = ends
    assert not short.truncated


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"budget": 0}, BadInput, "whole number of visual tokens, at least 1"),
        ({"budget": 2.5}, BadInput, "whole number of visual tokens, at least 1"),
        ({"budget": True}, BadInput, "whole number of visual tokens, at least 1, not True"),
        ({"budget": 64.0}, BadInput, "whole number of visual tokens, at least 1, not 64.0"),
        ({"mechanism": "magic"}, BadInput, "resolution, deletion, zero-mask"),
        ({"selector": "fastv"}, BadInput, "mechanism='deletion'"),
        ({"budget": 4, "mechanism": "deletion", "selector": "best"}, BadInput, "no selector is called 'best'"),
        ({"budget": 4, "mechanism": "zero-mask", "selector": "fastv"}, BadInput, "drops inside the model"),
        ({"budget": 4, "mechanism": "zero-mask", "selector": "visionzip"}, BadInput, "merge=False"),
        ({"budget": 10**6, "mechanism": "deletion"}, LedgerBreach, "exceeds the image's"),
        ({"question": "<|image_pad|>"}, BadInput, "has one image"),
        ({"image": b""}, UnreadableImage, "0 bytes"),
    ],
)
def test_bad_requests_are_refused_with_a_reason(more: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fresh("qwen2_5_vl").answer([Request(**{"image": picture(60, 60), "question": "What?", **more})])


def test_out_of_memory_names_a_budget_that_fits() -> None:
    model = fresh("qwen2_5_vl")
    language_model = model.model.model.language_model

    def too_long(_: Any, args: Any, kwargs: Any) -> None:
        if kwargs["inputs_embeds"].shape[1] > 71:
            raise torch.OutOfMemoryError("CUDA out of memory")

    handle = language_model.register_forward_pre_hook(too_long, with_kwargs=True)
    try:
        with pytest.raises(
            BadInput, match=r"out of memory while reading 1 prompts .* a budget of 3 visual tokens fits"
        ):
            model.answer([Request(picture(200, 160), "What?")])
    finally:
        handle.remove()
    assert model.answer([Request(picture(200, 160), "What?", 3, "deletion")])[0].realised_tokens == 3


def test_an_encoder_out_of_memory_names_a_resolution_that_fits() -> None:
    model = fresh("qwen2_5_vl")

    def too_large(_: Any, args: Any) -> None:
        if len(args[0]) > 4 * 70:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    handle = model.model.model.visual.patch_embed.register_forward_pre_hook(too_large)
    try:
        with pytest.raises(BadInput, match=r"encoding an image of 300x300 pixels; .* a budget of 64 fits"):
            model.answer([Request(picture(300, 300), "What?", 3, "deletion")])
    finally:
        handle.remove()


def test_numpy_integers_are_budgets() -> None:
    for budget in (np.int64(256), np.uint8(7), np.array(7)):
        request = Request("page.png", "What?", budget)  # type: ignore[arg-type]
        assert (request.budget, type(request.budget)) == (int(budget), int)
