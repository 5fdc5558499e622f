"""A prefix that questions share is read once, and changes no answer."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.tiny import FAMILIES, picture, tiny
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from stakes.models import Request
from stakes.models.local import prefix as prefix_module
from stakes.models.local.attention import gqa_attention, gqa_without_repeat, last_token_prefill
from stakes.models.local.generate import Decoded, DecodeOptions, forward, greedy
from stakes.models.local.image_cache import EncodedCache
from stakes.models.local.kv_cache import empty_cache
from stakes.models.local.prefix import plan_batches, prefill_prefixes, prefix, suffix
from stakes.models.local.resources import Clock
from stakes.models.local.vlm import LocalVLM
from stakes.vision.deletion.exact import pack
from stakes.vision.deletion.inside_layers import causal_mask

QUESTIONS = ("What is the total?", "Who?", "A much longer question than the others, is it not?", "When was that?")


def fresh(family: str, attention: str = "sdpa") -> LocalVLM:
    return replace(tiny(family, attention), cache=EncodedCache())


@contextmanager
def forward_passes(model: LocalVLM) -> Iterator[list[tuple[int, int]]]:
    """(rows, columns) of every forward pass of more than one column."""
    passes: list[tuple[int, int]] = []

    def hook(_: Any, args: Any, kwargs: Any) -> None:
        rows, columns = kwargs["inputs_embeds"].shape[:2]
        if columns > 1:
            passes.append((rows, columns))

    handle = model.model.model.language_model.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield passes
    finally:
        handle.remove()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_questions_on_a_shared_prefix_have_the_logits_of_whole_prompts(family: str, attention: str) -> None:
    """Two pages of different lengths, one of them pruned, so prefixes and questions are both padded."""
    model = fresh(family, attention)
    requests = [Request(picture(150, 120, 1), q) for q in QUESTIONS[:3]]
    requests += [Request(picture(90, 170, 2), q, 5, "deletion") for q in QUESTIONS[1:]]
    jobs = [model.prepare(request) for request in requests]
    ids, clock = [job.ids for job in jobs], Clock(model.device)
    options = DecodeOptions(6, clock, keep_logits=True)
    whole = greedy(model.model, pack([job.prompt for job in jobs]), ids, options)
    past = prefill_prefixes(model.model, [jobs[0].prompt, jobs[3].prompt], [0, 0, 0, 1, 1, 1], clock).repeat(40)
    shared = greedy(model.model, pack([suffix(job.prompt) for job in jobs]), ids, replace(options, past=past))
    assert shared.tokens == whole.tokens
    assert len({tuple(row) for row in whole.tokens}) > 3, "equal answers would prove nothing"
    for one, other in zip(shared.logits, whole.logits, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_prefix_of_a_call_is_read_once_and_answers_do_not_change(family: str) -> None:
    model = fresh(family)
    ways: list[dict[str, Any]] = [
        {"image": picture(150, 120, 1)},
        {"image": picture(150, 120, 1), "budget": 7, "mechanism": "deletion"},
        {"image": picture(80, 200, 2), "budget": 4, "mechanism": "deletion", "selector": "visionzip"},
        {"image": picture(80, 200, 2), "budget": 4, "mechanism": "zero-mask", "selector": "saliency"},
        {"image": picture(150, 120, 1), "budget": 7, "mechanism": "deletion", "selector": "random", "sample": "x"},
    ]
    if family != "llava_onevision":
        ways.append({"image": picture(400, 300, 3), "budget": 80})
    requests = [Request(question=question, **way) for question in QUESTIONS for way in ways]
    alone = [fresh(family).answer([request])[0] for request in requests]
    with forward_passes(model) as passes:
        together = model.answer(requests)
    for one, other in zip(together, alone, strict=True):
        assert replace(one, timings={}) == replace(other, timings={})
    longest = max(len(model.prepare(Request(picture(9, 9), q)).ids) for q in QUESTIONS)
    questions = [rows for rows, _ in passes[-len(requests) // model.batch_size :]]
    prefixes = [rows for rows, _ in passes[: -len(questions)]]
    assert sum(prefixes) == len(ways)
    assert sum(questions) == len(requests)
    assert all(columns < longest for _, columns in passes[-len(questions) :])


def test_tokens_that_depend_on_the_question_are_not_shared() -> None:
    model = fresh("qwen2_5_vl")
    page = picture(150, 120, 1)
    for selector in ("random", "cdpruner", "fastv"):
        requests = [Request(page, q, 6, "deletion", selector) for q in QUESTIONS]
        alone = [model.answer([request])[0].text for request in requests]
        with forward_passes(model) as passes:
            assert [answer.text for answer in model.answer(requests)] == alone
        assert [rows for rows, _ in passes] == [4], selector


def test_a_prompt_with_the_question_before_the_image_is_not_shared() -> None:
    stock = fresh("qwen2_5_vl")
    image, text = "<|vision_start|><|image_pad|><|vision_end|>", "{{ m.content[1].text }}"
    template = "{% for m in messages %}<|im_start|>" + text + image + "<|im_end|>{% endfor %}<|im_start|>assistant\n"
    model = replace(stock, processor=replace(stock.processor, template=template))
    requests = [Request(picture(150, 120, 1), question) for question in QUESTIONS]
    with forward_passes(model) as passes:
        together = model.answer(requests)
    assert [rows for rows, _ in passes] == [4]
    assert [answer.text for answer in together] == [model.answer([request])[0].text for request in requests]


def test_more_questions_than_a_batch_holds_read_their_page_once() -> None:
    model = replace(fresh("qwen2_5_vl"), batch_size=3)
    requests = [Request(picture(150, 120, 1), f"Question {i}?") for i in range(7)]
    with forward_passes(model) as passes:
        answers = model.answer(requests)
    assert [rows for rows, _ in passes] == [1, 3, 3, 1]
    assert [a.text for a in answers] == [model.answer([request])[0].text for request in requests]


def test_the_time_of_a_prefix_is_shared_by_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*args: Any) -> Any:
        past = prefill_prefixes(*args)
        args[-1].spent["prefill"] += 4e6
        return past

    monkeypatch.setattr("stakes.models.local.vlm.prefill_prefixes", slow)
    answers = fresh("qwen2_5_vl").answer([Request(picture(150, 120, 1), question) for question in QUESTIONS])
    assert [round(answer.timings["prefill"] / 1e6, 1) for answer in answers] == [1.0] * 4
    assert set(answers[0].timings) == {"encoder", "selector", "prefill", "decode", "host"}
    assert answers[1].timings["encoder"] == 0


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.inference_mode()
def test_chunks_with_a_gap_and_rows_that_leave_change_no_logit_and_no_answer(attention: str) -> None:
    """Questions of different lengths read two at a time, so that chunks begin at different columns of one cache."""
    model = fresh("qwen2_5_vl", attention)
    questions = sorted((*QUESTIONS, "Why is that so, if it is so at all?", "?"), key=len)
    jobs = [model.prepare(Request(picture(90 + 60 * (i % 2), 120, i % 2), q)) for i, q in enumerate(questions)]
    ids, clock = [job.ids for job in jobs], Clock(model.device)
    past = prefill_prefixes(model.model, [jobs[0].prompt, jobs[1].prompt], [i % 2 for i in range(len(jobs))], clock)
    batch = pack([suffix(job.prompt) for job in jobs])
    ends = model.model.generation_config.eos_token_id

    def decode(rows_at_once: int, keep_logits: bool) -> Decoded:
        before = past.repeat(batch.embeds.shape[1] + 12)
        options = DecodeOptions(12, clock, keep_logits=keep_logits, past=before, rows_at_once=rows_at_once)
        return greedy(model.model, batch, ids, options)

    whole, chunks = decode(len(jobs), True), decode(2, True)
    for one, other in zip(chunks.logits, whole.logits, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    try:  # let rows end one after another, so that the batch is halved more than once
        model.model.generation_config.eos_token_id = [ends, *(row[at + 1] for at, row in enumerate(whole.tokens))]
        stays, leaves = decode(len(jobs), True), decode(2, False)
    finally:
        model.model.generation_config.eos_token_id = ends
    assert leaves.tokens == stays.tokens
    assert leaves.truncated == stays.truncated
    assert len({len(row) for row in stays.tokens}) > 2


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_last_token_prefill_equals_the_end_of_the_whole_pass(family: str) -> None:
    model = fresh(family)
    language_model = model.model.model.language_model
    batch = pack([model.prepare(Request(picture(150, 120, 1), q)).prompt for q in QUESTIONS])
    whole_cache, cache = empty_cache(4), empty_cache(4)
    whole = forward(model.model, batch, batch.mask, whole_cache)
    with last_token_prefill(language_model):
        one = forward(model.model, batch, batch.mask, cache)
    assert one.shape[1] == 1
    torch.testing.assert_close(one, whole[:, -1:], atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(cache.contents(), whole_cache.contents(), strict=True):
        torch.testing.assert_close(ours, theirs)
    with last_token_prefill(language_model, enabled=False):
        assert forward(model.model, batch, batch.mask, empty_cache(4)).shape == whole.shape
    assert "forward" not in language_model.layers[-1].__dict__


@torch.inference_mode()
def test_prefix_and_suffix_are_the_prompt() -> None:
    prompt = fresh("qwen3_vl").prepare(Request(picture(150, 120, 1), "What?")).prompt
    one, two = prefix(prompt), suffix(prompt)
    assert torch.equal(torch.cat((one.embeds, two.embeds)), prompt.embeds)
    assert torch.equal(torch.cat((one.positions, two.positions), 1), prompt.positions)
    assert (one.tokens, two.tokens, len(one.deepstack), two.deepstack) == (prompt.tokens, 0, 3, ())


def test_the_plan_holds_every_request_once_and_separates_kinds() -> None:
    prefixes = ["a", "b", "a", None, "b", "c", None, "a"]
    kinds = [None, None, None, "fastv", None, None, "fastv", None]
    batches = list(plan_batches(prefixes, kinds, [5, 4, 5, 3, 4, 2, 9, 5], 4))
    assert batches == [[[5]], [[3], [6]], [[1, 4], [0, 2, 7]]]
    assert doctest.testmod(prefix_module).failed == 0


def test_a_preallocated_cache_holds_what_was_added() -> None:
    (layer,) = empty_cache(1).layers
    parts = [torch.randn(2, 3, n, 4) for n in (5, 1, 40, 1, 1)]
    for i, part in enumerate(parts):
        keys, values = layer.update(part, -part)
        assert torch.equal(keys, torch.cat(parts[: i + 1], 2))
        assert torch.equal(values, -keys)
        assert layer.get_seq_length() == keys.shape[2]


@pytest.mark.parametrize("length", [1, 5])
def test_grouped_heads_equal_repeated_keys(length: int) -> None:
    query, key, value = torch.randn(2, 6, length, 8), torch.randn(2, 2, 11, 8), torch.randn(2, 2, 11, 8)
    valid = torch.arange(11) >= torch.tensor([[0], [4]])
    mask = causal_mask(valid, length, "sdpa", torch.float32)
    assert mask is not None
    attention = tiny("qwen2_vl").model.model.language_model.layers[0].self_attn
    before = attention.num_key_value_groups
    try:
        attention.num_key_value_groups = 3
        expected, _ = sdpa_attention_forward(attention, query, key, value, mask, scaling=0.3)
    finally:
        attention.num_key_value_groups = before
    out, _ = gqa_attention(attention, query, key, value, mask, scaling=0.3)
    torch.testing.assert_close(out, expected)


def test_the_attention_is_restored_after_the_block_also_after_an_error() -> None:
    language_model = tiny("qwen2_5_vl").model.model.language_model
    names = set(ALL_ATTENTION_FUNCTIONS)
    inside: list[bool] = []

    def fails() -> None:
        with gqa_without_repeat(language_model) as replaced:
            inside.extend((replaced, language_model.config._attn_implementation != "sdpa"))
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert inside == [True, True]
    assert language_model.config._attn_implementation == "sdpa"
    assert set(ALL_ATTENTION_FUNCTIONS) == names
    with gqa_without_repeat(tiny("qwen2_5_vl", "eager").model.model.language_model) as replaced:
        assert not replaced
