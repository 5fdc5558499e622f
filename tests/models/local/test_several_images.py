"""Several images in one prompt, each with its budget: by resolution and by exact deletion, counted image by image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.tiny import picture, stock_processor, tiny, token_id
from tests.vision.deletion.test_deletion import assert_same_as_masking, decode, others, selected

from stakes.errors import BadInput
from stakes.models import Request
from stakes.models.local.image_cache import EncodedCache
from stakes.vision.deletion.exact import pack
from stakes.vision.image.resize import fitted_size

QWEN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
PAIRS = [((150, 120), (90, 200)), ((64, 64), (200, 60)), ((120, 90), (70, 130))]
QUESTIONS = ["Which is larger?", "What is the sum of both totals?", "Same?"]
BUDGETS = [(6, 11), (3, 5), (9, 2)]


def _images(row: int) -> tuple[Any, ...]:
    return tuple(picture(*size, seed=10 * row + i) for i, size in enumerate(PAIRS[row]))


def _stock(family: str, attention: str, count: int) -> tuple[list[list[int]], Any, list[list[int]]]:
    """Tokens and logits of stock generate, and the image tokens of each image that the stock processor wrote."""
    model, processor = tiny(family, attention), stock_processor(family)
    texts = []
    for question in QUESTIONS[:count]:
        content = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": f"{question} Answer briefly."}]
        chat = [{"role": "user", "content": content}]
        texts.append(processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False))
    images = [list(_images(row)) for row in range(count)]
    inputs = processor(text=texts, images=images, return_tensors="pt", padding=True)
    out = model.model.generate(
        **inputs, max_new_tokens=8, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    end = token_id("<|im_end|>")
    rows = out.sequences[:, inputs["input_ids"].shape[1] :].tolist()
    native = (inputs["image_grid_thw"].prod(-1) // 4).view(count, 2).tolist()
    return [row[: row.index(end)] if end in row else row for row in rows], out.logits, native


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", QWEN)
@torch.inference_mode()
def test_keep_all_of_two_images_equals_stock_generate(family: str, attention: str, count: int) -> None:
    tokens, logits, native = _stock(family, attention, count)
    model = replace(tiny(family, attention), cache=EncodedCache())
    jobs = [model.prepare(Request(_images(row), QUESTIONS[row])) for row in range(count)]
    ours = decode(model, pack([job.prompt for job in jobs]), jobs)
    assert [list(job.image_tokens) for job in jobs] == native
    assert [row[:5] for row in ours.tokens] == [row[:5] for row in tokens]
    for step, theirs in enumerate(ours.logits):
        alive = [row for row in range(count) if len(ours.tokens[row]) >= step]
        near = 1e-5 * float(logits[step].abs().max())
        torch.testing.assert_close(theirs[alive], logits[step][alive], atol=near, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", QWEN)
@torch.inference_mode()
def test_deleting_from_two_images_equals_hiding_the_keys(family: str, attention: str, count: int) -> None:
    model = tiny(family, attention)
    depth = model.model.config.get_text_config().num_hidden_layers
    whole = [model.prepare(Request(_images(row), QUESTIONS[row])) for row in range(count)]
    pruned, hidden = [], []
    for row, unpruned in enumerate(whole):
        request = Request(
            _images(row), QUESTIONS[row], mechanism="deletion", selector="redundancy", budgets=BUDGETS[row], sample="s"
        )
        job = model.prepare(request)
        assert job.image_tokens == BUDGETS[row]
        assert job.prompt.tokens == sum(BUDGETS[row])
        first, second = unpruned.image_tokens
        kept = [selected(model, part) for part in request.parts]
        both = torch.cat((kept[0], first + kept[1]))
        torch.testing.assert_close(
            job.prompt.embeds[job.prompt.visual], unpruned.prompt.embeds[unpruned.prompt.visual[both]]
        )
        hidden.append([others(both, first + second)] * depth)
        pruned.append(job.prompt)
    assert_same_as_masking(model, whole, decode(model, pack(pruned), whole), hidden)


@pytest.mark.parametrize("family", QWEN)
def test_each_image_is_resized_to_its_own_budget(family: str) -> None:
    model = replace(tiny(family), cache=EncodedCache())
    images, budgets = (picture(900, 700), picture(640, 800, seed=2)), (90, 150)
    sizes = [fitted_size(*one.size, budget, model.family) for one, budget in zip(images, budgets, strict=True)]
    (answer,) = model.answer([Request(images, "Which?", budgets=budgets)])
    assert answer.image_tokens == tuple(size.tokens for size in sizes)
    assert (answer.realised_tokens, answer.budget) == (sum(answer.image_tokens), sum(budgets))
    assert all(0 < count <= budget for count, budget in zip(answer.image_tokens, budgets, strict=True))
    (swapped,) = model.answer([Request(images[::-1], "Which?", budgets=budgets[::-1])])
    assert swapped.image_tokens == answer.image_tokens[::-1]
    assert swapped.confidence != answer.confidence, "both images are read, in their order"


def test_one_image_may_keep_all_of_its_tokens() -> None:
    model = tiny("qwen2_5_vl")
    (answer,) = model.answer([Request(_images(0), "Which?", mechanism="deletion", budgets=(None, 4))])
    native = model.answer([Request(_images(0)[0], "Which?")])[0].native_tokens
    assert answer.image_tokens == (native, 4)
    assert answer.budget is None


def test_two_questions_on_the_same_two_images_share_them_and_answer_as_alone() -> None:
    model = tiny("qwen2_5_vl")
    requests = [Request(_images(0), question, mechanism="deletion", budgets=(6, 11)) for question in QUESTIONS]
    keys = {model.prepare(request).prefix for request in requests}
    assert len(keys) == 1
    assert len({model.prepare(replace(requests[0], budgets=(6, 10))).prefix, *keys}) == 2
    together = [answer.text for answer in model.answer(requests)]
    assert together == [model.answer([one])[0].text for one in requests]
    assert len(set(together)) > 1, "equal answers would prove nothing"


def test_zero_mask_zeroes_what_each_image_drops() -> None:
    model = tiny("qwen3_vl")
    job = model.prepare(Request(_images(0), "Which?", mechanism="zero-mask", budgets=(6, 11)))
    zero = (job.prompt.embeds[job.prompt.visual] == 0).all(-1)
    first = model.prepare(Request(_images(0)[0], "Which?")).encoder_tokens
    assert (int((~zero[:first]).sum()), int((~zero[first:]).sum())) == (6, 11)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"budget": 5}, "2 images have a budget each; give budgets="),
        ({"budgets": (5,)}, "2 images need as many budgets, not 1"),
        ({"budgets": (5, 0)}, "a budget must be a whole number"),
    ],
)
def test_budgets_that_do_not_fit_the_images_are_refused(more: dict[str, Any], match: str) -> None:
    with pytest.raises(BadInput, match=match):
        Request((picture(64, 64), picture(64, 64)), "What?", **more)


def test_one_image_takes_no_list_of_budgets_and_an_empty_list_is_no_image() -> None:
    with pytest.raises(BadInput, match="budgets are for several images"):
        Request(picture(64, 64), "What?", budgets=(5,))
    with pytest.raises(BadInput, match="needs an image"):
        Request([], "What?")


def test_a_family_or_a_selector_that_cannot_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="a llava_onevision is asked about one image here, not 2"):
        tiny("llava_onevision").answer([Request(_images(0), "What?")])
    with pytest.raises(BadInput, match="'fastv' drops inside the model, among the tokens of all images"):
        tiny("qwen2_vl").answer(
            [Request(_images(0), "What?", mechanism="deletion", selector="fastv:layer=1", budgets=(3, 3))]
        )
