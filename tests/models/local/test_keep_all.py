"""With all tokens kept, our own encoding, prefill and decoding equal stock ``generate``: tokens equal, logits to 1e-5.

Every logit does where the image is encoded by the stock encoder. ``vision_encoder`` rounds differently (closer to the
truth, see ``test_vision_encoder``), by 1e-6 of the largest feature, which a tiny random model amplifies: with it,
logits are compared to 1e-5 of the largest.
"""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.tiny import DELETABLE, FAMILIES, picture, stock_inputs, tiny, token_id

from stakes.models import Request
from stakes.models.local.generate import Decoded, DecodeOptions, greedy
from stakes.models.local.image_cache import EncodedCache
from stakes.models.local.resources import Clock
from stakes.vision.deletion.exact import Selection, delete, pack

SIZES = [(150, 120), (90, 200), (64, 64)]
QUESTIONS = ["What is it?", "How much is the total on this page?", "Who?"]


def _both(family: str, attention: str, count: int, penalty: float = 1.0, **rules: Any) -> tuple[Decoded, Any, Any]:
    model = replace(tiny(family, attention), cache=EncodedCache())
    images = [picture(*size, seed=i) for i, size in enumerate(SIZES[:count])]
    inputs = stock_inputs(family, images, QUESTIONS[:count])
    length = inputs["input_ids"].shape[1]
    rules |= {"repetition_penalty": penalty}
    settings = vars(model.model.generation_config)
    before = {name: settings[name] for name in rules}
    try:
        settings.update(rules)
        stock = model.model.generate(
            **inputs, max_new_tokens=8, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
        with torch.inference_mode():
            jobs = [model.prepare(Request(i, q)) for i, q in zip(images, QUESTIONS[:count], strict=True)]
            everything = [delete(job.prompt, Selection(torch.arange(job.prompt.tokens))) for job in jobs]
            ids = [job.ids for job in jobs]
            options = DecodeOptions(8, Clock(model.device), keep_logits=True)
            ours = greedy(model.model, pack(everything), ids, options)
    finally:
        settings.update(before)
    return ours, stock.sequences[:, length:], stock.logits


def _upto_end(tokens: list[int]) -> list[int]:
    end = token_id("<|im_end|>")
    return tokens[: tokens.index(end)] if end in tokens else tokens


@pytest.mark.parametrize("encoder", ["stock", "fast"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", DELETABLE)
def test_keep_all_equals_stock_generate(
    family: str, attention: str, count: int, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if encoder == "stock":
        monkeypatch.setattr("stakes.models.local.qwen_vl.fast_encoder", nullcontext)
        monkeypatch.setattr("stakes.models.local.qwen_vl.accepts_one_frame", lambda _: False)
    ours, tokens, logits = _both(family, attention, count)
    assert ours.tokens == [_upto_end(row) for row in tokens.tolist()]
    assert len({tuple(row) for row in ours.tokens}) == count, "equal answers would prove nothing"
    for step, theirs in enumerate(logits):
        alive = [row for row in range(count) if len(ours.tokens[row]) >= step]
        near = 1e-5 * max(1.0, float(theirs.abs().max()))  # products of another shape are summed in another order
        torch.testing.assert_close(ours.logits[step][alive], theirs[alive], atol=near, rtol=1e-5)


@pytest.mark.parametrize("penalty", [1.0, 3.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_are_those_of_the_logits_that_chose_the_tokens(family: str, penalty: float) -> None:
    """Of each token and of the end token, for rows of any length."""
    ours, tokens, logits = _both(family, "sdpa", 3, penalty)
    for row, (answer, given) in enumerate(zip(tokens.tolist(), ours.logprobs, strict=True)):
        length = len(_upto_end(answer)) + (token_id("<|im_end|>") in answer)
        chosen = ours.logits if penalty != 1.0 else logits  # generate returns the logits before the penalty
        expected = [float(chosen[step][row].log_softmax(-1)[answer[step]]) for step in range(length)]
        assert given == pytest.approx(expected, abs=1e-4)
        assert max(given) <= 0


def test_a_checkpoints_repetition_penalty_is_applied_as_in_generate() -> None:
    plain, _, _ = _both("qwen2_5_vl", "sdpa", 1)
    ours, tokens, _ = _both("qwen2_5_vl", "sdpa", 1, penalty=3.0)
    assert ours.tokens == [_upto_end(row) for row in tokens.tolist()]
    assert ours.tokens != plain.tokens


@pytest.mark.parametrize("penalty", [1.0, 1.1])
@pytest.mark.parametrize(
    "rule", ["no_repeat_ngram_size", "bad_words_ids", "min_new_tokens", "suppress_tokens", "begin_suppress_tokens"]
)
def test_a_checkpoints_other_rules_of_decoding_are_applied_as_in_generate(rule: str, penalty: float) -> None:
    """Rules on what the plain answers have: their repeated tokens, their first, and the one that would end them."""
    plain, _, _ = _both("qwen2_5_vl", "sdpa", 3, penalty)
    firsts = sorted({row[0] for row in plain.tokens})
    values = {
        "no_repeat_ngram_size": 1,
        "bad_words_ids": [row[:2] for row in plain.tokens],
        "min_new_tokens": 8,
        "suppress_tokens": firsts,
        "begin_suppress_tokens": firsts,
    }
    if rule == "min_new_tokens":  # the first answer's second token ends it
        end = {"eos_token_id": [token_id("<|im_end|>"), plain.tokens[0][1]]}
        ours, tokens, _ = _both("qwen2_5_vl", "sdpa", 3, penalty, **end, min_new_tokens=8)
        assert [len(row) for row in ours.tokens] == [8, 8, 8]
    else:
        ours, tokens, _ = _both("qwen2_5_vl", "sdpa", 3, penalty, **{rule: values[rule]})
    assert ours.tokens == [_upto_end(row) for row in tokens.tolist()]
    assert ours.tokens != plain.tokens


def test_rules_that_the_gpu_engine_does_not_know_are_left_to_the_plain_loop() -> None:
    model = replace(tiny("qwen2_5_vl"), cache=EncodedCache(), fast=True)
    model.model.generation_config.suppress_tokens = [5]
    try:
        assert model.fast_decoder is None
    finally:
        model.model.generation_config.suppress_tokens = None
    assert replace(model).fast_decoder is not None


@pytest.mark.parametrize("family", DELETABLE)
def test_an_answer_without_a_budget_equals_generate(family: str) -> None:
    model = tiny(family)
    image = picture(120, 90, seed=5)
    inputs = stock_inputs(family, [image], ["What is it?"])
    stock = model.model.generate(**inputs, max_new_tokens=8, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    (answer,) = model.answer([Request(image, "What is it?")])
    assert answer.text == model.processor.tokenizer.decode(stock, skip_special_tokens=True).strip()
    native = int((inputs["input_ids"] == model.processor.image_token_id).sum())
    assert (answer.native_tokens, answer.realised_tokens, answer.input_tokens) == (native, native, native)
    assert answer.truncated == (token_id("<|im_end|>") not in stock.tolist())
