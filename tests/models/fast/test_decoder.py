"""The fast path (static cache, packed prompts, images in one call) generates what stock ``generate`` generates."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from tests.models.fast.captured import CAPTURABLE, QUESTIONS, FakeGraphs, bucketed, fresh, requests
from tests.models.tiny import FAMILIES, blank, picture, stock_inputs, tiny, token_id

from stakes.models import Request
from stakes.models.fast.decoder import FastDecoder
from stakes.models.local.generate import DecodeOptions, greedy
from stakes.models.local.resources import Clock
from stakes.vision.deletion.exact import pack
from stakes.vision.deletion.inside_layers import dropping
from stakes.vision.selectors import make


@pytest.mark.parametrize("mechanism", ["resolution", "deletion"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_with_every_token_the_fast_path_equals_generate(family: str, count: int, mechanism: str) -> None:
    """By resolution no budget is given; by deletion as many tokens as there are."""
    questions = requests(count, None, "resolution")
    inputs = stock_inputs(family, [one.image for one in questions], [one.question for one in questions])
    model = fresh(family, fast=True)
    stock = model.model.generate(**inputs, max_new_tokens=8, do_sample=False)[:, inputs["input_ids"].shape[1] :]
    if mechanism == "deletion":
        natives = (inputs["input_ids"] == model.processor.image_token_id).sum(1).tolist()
        questions = [Request(one.image, one.question, n, "deletion") for one, n in zip(questions, natives, strict=True)]
    decode = model.processor.tokenizer.decode
    texts = [decode(row, skip_special_tokens=True).strip() for row in stock]
    assert [answer.text for answer in model.answer(questions)] == texts
    assert len(set(texts)) == count, "equal answers would prove nothing"


@pytest.mark.parametrize(("mechanism", "selector"), [("resolution", None), ("deletion", None), ("deletion", "fastv")])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_with_a_budget_both_paths_give_equal_answers(
    family: str, count: int, mechanism: str, selector: str | None
) -> None:
    if mechanism == "resolution" and family == "llava_onevision":
        pytest.skip("its smallest budget needs 27 x 27 patches per tile, which no tiny model has")
    budget = {"qwen3_vl": 80}.get(family, 16) if mechanism == "resolution" else 6
    questions = requests(count, budget, mechanism, selector)
    fast = fresh(family, fast=True).answer(questions)
    stock = fresh(family, fast=False).answer(questions)
    assert [replace(answer, timings={}) for answer in fast] == [replace(answer, timings={}) for answer in stock]
    sure = [answer.confidence for answer in stock]
    assert [answer.confidence for answer in fast] == pytest.approx(sure, abs=1e-4)
    assert len(set(sure)) == count


@pytest.mark.parametrize("bucket", [False, True])
@pytest.mark.parametrize("penalty", [1.0, 3.0])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_logits_equal_those_of_the_stock_loop(family: str, penalty: float, bucket: bool) -> None:
    model = fresh(family, fast=False)
    jobs = [model.prepare(one) for one in requests(3, 5, "deletion")]
    batch, ids = pack([job.prompt for job in jobs]), [job.ids for job in jobs]
    decoder = bucketed(family) if bucket else FastDecoder(model.model)
    options = DecodeOptions(8, Clock(model.device), keep_logits=True)
    model.model.generation_config.repetition_penalty = penalty
    try:
        expected = greedy(model.model, batch, ids, options)
        decoder.greedy(batch, ids, options)
        result = decoder.greedy(batch, ids, options)  # the first call left nothing behind
    finally:
        model.model.generation_config.repetition_penalty = 1.0
    assert (result.tokens, result.truncated) == (expected.tokens, expected.truncated)
    assert len({tuple(row) for row in result.tokens}) == 3, "equal answers would prove nothing"
    for step, stock in enumerate(expected.logits):
        alive = [row for row in range(3) if len(result.tokens[row]) >= step]
        torch.testing.assert_close(
            result.logits[step][alive], stock[alive], atol=1e-5 * float(stock.abs().max()), rtol=1e-5
        )


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_every_norm_has_its_own_weights(family: str) -> None:
    """Those of a new model are all 1, with which no norm can be taken for another."""
    model = fresh(family, fast=False)
    model = replace(model, model=deepcopy(model.model))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weights in model.model.model.language_model.named_parameters():
            if "norm" in name:
                weights.uniform_(0.5, 2.0)
    with torch.inference_mode():
        jobs = [model.prepare(one) for one in requests(3, 5, "deletion")]
        batch, ids = pack([job.prompt for job in jobs]), [job.ids for job in jobs]
        options = DecodeOptions(8, Clock(model.device), keep_logits=True)
        expected = greedy(model.model, batch, ids, options)
        result = FastDecoder(model.model).greedy(batch, ids, options)
    assert result.tokens == expected.tokens
    torch.testing.assert_close(result.logits[1], expected.logits[1], atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_a_reused_state_holds_nothing_of_earlier_answers() -> None:
    """Long answers first, then short ones in the same buffers; and a batch of another size between them."""
    model = fresh("qwen2_5_vl", fast=True)
    once = [answer.text for answer in model.answer(requests(3, None, "resolution"))]
    long = [Request(picture(280, 280, seed=9), "A much longer question than any of the others, is it not?")] * 3
    model.answer(long)
    model.answer(long[:1])
    assert [answer.text for answer in model.answer(requests(3, None, "resolution"))] == once


@torch.inference_mode()
def test_a_captured_step_serves_other_prompts_than_those_it_was_captured_with() -> None:
    model = fresh("qwen2_5_vl", fast=False)
    decoder = FastDecoder(model.model, CAPTURABLE)
    decoder.graphs, decoder.ends = cast(Any, FakeGraphs()), []
    options = DecodeOptions(6, Clock(model.device), keep_logits=True)
    for budget, questions in (
        (5, QUESTIONS),
        (6, QUESTIONS[::-1]),
        (4, ["Why?", "When was it?", "Is it?"]),
        (5, QUESTIONS),
    ):
        some = [replace(one, question=q) for one, q in zip(requests(3, budget, "deletion"), questions, strict=True)]
        jobs = [model.prepare(one) for one in some]
        batch, ids = pack([job.prompt for job in jobs]), [job.ids for job in jobs]
        result = decoder.greedy(batch, ids, options)
        expected = greedy(model.model, batch, ids, options)
        for row in range(3):
            upto = len(expected.tokens[row])  # the stock loop stops at end tokens, of which this decoder has none
            assert result.tokens[row][:upto] == expected.tokens[row]
    prefills = [name for name in decoder.graphs.works if name[0] == "prefill"]  # type: ignore[attr-defined]
    assert 0 < len(prefills) < 4, "prompts of similar lengths must share a graph, or nothing was proven"


@torch.inference_mode()
def test_questions_on_one_page_share_its_prefix_on_the_fast_path_too() -> None:
    page = picture(150, 120, 1)
    some = [Request(page, q, 9, "deletion") for q in QUESTIONS] + [Request(blank(90, 90), q) for q in QUESTIONS]
    fast, stock = (fresh("qwen2_5_vl", fast=fast).answer(some) for fast in (True, False))
    assert [answer.text for answer in fast] == [answer.text for answer in stock]


@torch.inference_mode()
def test_a_selector_inside_the_model_leaves_later_layers_a_shorter_cache() -> None:
    model = fresh("qwen2_5_vl", fast=False)
    jobs = [model.prepare(one) for one in requests(2, 4, "deletion", "fastv")]
    batch, budgets = pack([job.prompt for job in jobs]), [4, 4]
    selector: Any = make("fastv")
    decoder = FastDecoder(model.model)
    with dropping(model.model.model.language_model, batch, selector, budgets) as drops:
        decoder.greedy(batch, [job.ids for job in jobs], DecodeOptions(2, Clock(model.device), drops=drops))
    (state,) = decoder.states.values()
    whole = [len(job.prompt.embeds) for job in jobs]
    short = [len(job.prompt.embeds) - job.prompt.tokens + 4 for job in jobs]
    assert (state.cache.lengths - 1).tolist() == [whole, whole, short, short]  # one token was generated on top


@torch.inference_mode()
def test_the_loop_stops_when_all_rows_have_ended() -> None:
    model = fresh("qwen2_5_vl", fast=False)
    decoder = FastDecoder(model.model)
    (job,) = (model.prepare(one) for one in requests(1, None, "resolution"))
    options = DecodeOptions(8, Clock(model.device), keep_logits=True)
    free = decoder.greedy(pack([job.prompt]), [job.ids], options)
    assert len(free.tokens[0]) > 3
    stop = free.tokens[0][2]
    decoder.ends, decoder._ends = [stop], torch.tensor([stop])
    cut = decoder.greedy(pack([job.prompt]), [job.ids], options)
    at = free.tokens[0].index(stop)
    assert (cut.tokens[0], cut.truncated, len(cut.logits)) == (free.tokens[0][:at], [False], at + 1)


def test_end_tokens_of_the_tiny_models_are_known() -> None:
    assert FastDecoder(tiny("qwen2_5_vl").model).ends == [token_id("<|im_end|>")]
