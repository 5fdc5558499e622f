"""Families that run by their own processor: keeping all equals stock ``generate``, deletion equals masking."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from tests.models.tiny import picture, tf
from tests.models.tiny_spliced import SPLICED, WINDOWS, spliced
from torch import Tensor

from stakes.models import Request
from stakes.models.local.generate import Decoded, DecodeOptions, greedy
from stakes.models.local.resources import Clock
from stakes.models.local.stock_processor import TEXT_INPUTS
from stakes.vision.deletion.exact import PromptTensors, pack
from stakes.vision.selectors.base import Scene
from stakes.vision.selectors.redundancy import Redundancy

# GLM-4V's own processor makes an array of a tensor.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
KINDS = [*SPLICED, *(f"{kind}+windows" for kind in WINDOWS)]
SIZES = [(60, 40), (30, 90), (64, 64)]
QUESTIONS = ["What is it?", "How much is the total on this page?", "Who?"]


def pages(count: int, images: int) -> list[list[Any]]:
    """So many images for each of so many questions."""
    return [[picture(*SIZES[(i + n) % 3], seed=i + 10 * n) for n in range(images)] for i in range(count)]


def ask(images: list[Any], question: str, budgets: list[int] | None = None) -> Request:
    """One image with its budget, or several with theirs."""
    how: dict[str, Any] = {} if budgets is None else {"mechanism": "deletion", "selector": "redundancy"}
    if len(images) > 1:
        return Request(tuple(images), question, budgets=None if budgets is None else tuple(budgets), **how)
    return Request(images[0], question, None if budgets is None else budgets[0], **how)


def stock_inputs(model: Any, images: list[list[Any]]) -> dict[str, Any]:
    """What a user of transformers would pass to ``generate``, left-padded."""
    whole = model.processor.whole
    conversations = [
        [
            {
                "role": "user",
                "content": [{"type": "image"}] * len(own) + [{"type": "text", "text": f"{question} Answer briefly."}],
            }
        ]
        for own, question in zip(images, QUESTIONS, strict=False)
    ]
    render = partial(tf.ProcessorMixin.apply_chat_template, whole, add_generation_prompt=True, tokenize=False)
    texts = [render(one) for one in conversations]
    return dict(whole(images=images, text=texts, return_tensors="pt", padding=True))


def decode(model: Any, prompts: list[PromptTensors], ids: list[Tensor]) -> Decoded:
    options = DecodeOptions(8, Clock(model.device), keep_logits=True)
    return greedy(model.model, pack(prompts), ids, options)


SHAPES = [(attention, count, each) for attention in ("eager", "sdpa") for count in (1, 3) for each in (1, 2)]


@pytest.mark.parametrize(("attention", "count", "each"), SHAPES)
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_keep_all_equals_stock_generate(kind: str, attention: str, count: int, each: int) -> None:
    model, images = spliced(kind, attention), pages(count, each)
    inputs = stock_inputs(model, images)
    stock = model.model.generate(
        **inputs, max_new_tokens=8, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    jobs = [model.prepare(ask(images[i], QUESTIONS[i])) for i in range(count)]
    for job, row, mask in zip(jobs, inputs["input_ids"], inputs["attention_mask"], strict=True):
        assert job.ids.tolist() == row[mask.bool()].tolist()
    ours = decode(model, [job.prompt for job in jobs], [job.ids for job in jobs])
    assert ours.tokens == stock.sequences[:, inputs["input_ids"].shape[1] :].tolist()
    assert len({tuple(row.tolist()) for row in ours.logits[0]}) == count, "equal rows would prove nothing"
    for mine, theirs in zip(ours.logits, stock.logits, strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-5)


def masked_logits(model: Any, images: list[Any], job: Any, hidden: Tensor, tokens: list[int]) -> Tensor:
    """[steps, V] by the stock model in one pass: the whole prompt, with the hidden columns masked in every layer."""
    ids = torch.cat((job.ids, torch.tensor(tokens, dtype=torch.long)))[None]
    visual = (ids == model.processor.image_token_id).long()
    mask = torch.ones_like(ids)
    mask[0, visual[0].nonzero()[:, 0][hidden]] = 0
    prompt = job.prompt
    later = (prompt.next_position + torch.arange(len(tokens))).expand(len(prompt.positions), -1)
    positions = torch.cat((prompt.positions, later), 1)[:, None]
    kinds = {"gemma3": {"token_type_ids": visual}, "glm4v": {"mm_token_type_ids": visual}}
    pixels = {name: value for name, value in stock_inputs(model, [images]).items() if name not in TEXT_INPUTS}
    out = model.model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions if len(positions) > 1 else positions[0],
        use_cache=False,
        **pixels,
        **kinds.get(model.model.config.model_type, {}),
    )
    logits: Tensor = out.logits[0, len(job.ids) - 1 :]
    return logits


BUDGETS = [[4, 3], [5, 2], [3, 4]]  # features of the images of each question


@pytest.mark.parametrize(("attention", "count", "each"), SHAPES)
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_deletion_equals_masking(kind: str, attention: str, count: int, each: int) -> None:
    model, images = spliced(kind, attention), pages(count, each)
    whole = [model.prepare(ask(own, question)) for own, question in zip(images, QUESTIONS, strict=False)]
    jobs, dropped = [], []
    for i, job in enumerate(whole):
        encoded = [model.encode(image, exact=False, attention=False) for image in images[i]]
        budgets, start, gone = BUDGETS[i][:each], 0, []
        for one, budget in zip(encoded, budgets, strict=True):
            keep = Redundancy().select(Scene(one.features), budget).indices
            gone += [start + n for n in range(len(one.features)) if n not in set(keep.tolist())]
            start += len(one.features)
        assert start == job.prompt.tokens
        dropped.append(gone)
        counted = [budget + one.markers for budget, one in zip(budgets, encoded, strict=True)]
        jobs.append(model.prepare(ask(images[i], QUESTIONS[i], counted)))
        assert (jobs[i].image_tokens, jobs[i].prompt.tokens) == (tuple(counted), sum(budgets))
        assert len(job.prompt.embeds) - len(jobs[i].prompt.embeds) == len(gone) > 0
        assert jobs[i].prompt.next_position == job.prompt.next_position
    ours = decode(model, [job.prompt for job in jobs], [job.ids for job in jobs])
    kept = decode(model, [job.prompt for job in whole], [job.ids for job in whole])
    assert float((kept.logits[0] - ours.logits[0]).abs().max()) > 0.01, "what is deleted must matter"
    for row, job in enumerate(whole):
        reference = masked_logits(model, images[row], job, torch.tensor(dropped[row]), ours.tokens[row])
        mine = torch.stack([step[row] for step in ours.logits])
        assert len(mine) == 8
        torch.testing.assert_close(mine, reference[:8], atol=2e-5, rtol=1e-5)
