"""Exact deletion by its definition: equal to hiding the deleted tokens' keys in the unpruned model, at every step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.models.tiny import DELETABLE, FAMILIES, picture, tiny
from torch import Tensor

from stakes.models import Request
from stakes.models.local.generate import Decoded, DecodeOptions, greedy
from stakes.models.local.prompt import Job, question_embeds
from stakes.models.local.resources import Clock
from stakes.models.local.vlm import LocalVLM
from stakes.vision.deletion.exact import Batch, PromptTensors, Selection, delete, pack, zero_mask
from stakes.vision.deletion.inside_layers import dropping
from stakes.vision.selectors import SELECTORS, make
from stakes.vision.selectors.base import Scene, Selector
from stakes.vision.selectors.dart import DART
from stakes.vision.selectors.fastv import FastV
from stakes.vision.selectors.layers import LayerSelector, LayerView, Stage

BEFORE_THE_FIRST_LAYER = ["visionzip:merge=False"]  # and all that merge nothing, whoever adds one
BEFORE_THE_FIRST_LAYER += [name for name in SELECTORS if isinstance(one := make(name), Selector) and not one.merges]
SIZES, BUDGETS = [(150, 120), (90, 200), (70, 64)], [6, 11, 3]
STEPS = 5


def unpruned(model: LocalVLM) -> list[Job]:
    images = [picture(*size, seed=i) for i, size in enumerate(SIZES)]
    return [model.prepare(Request(image, f"What is it, {i}?", sample=str(i))) for i, image in enumerate(images)]


def decode(model: LocalVLM, batch: Batch, jobs: list[Job], **more: Any) -> Decoded:
    options = DecodeOptions(STEPS, Clock(model.device), keep_logits=True, **more)
    return greedy(model.model, batch, [job.ids for job in jobs], options)


def masked_logits(model: LocalVLM, prompt: PromptTensors, hidden_by_layer: list[Tensor], tokens: list[int]) -> Tensor:
    """[steps, V]: the unpruned sequence in one pass without cache, each layer blind to its own set of visual tokens."""
    language_model = model.model.get_decoder()
    new = model.model.get_input_embeddings()(torch.tensor(tokens, dtype=torch.long))
    embeds = torch.cat((prompt.embeds, new))[None]
    length, start = embeds.shape[1], len(prompt.embeds)
    after = prompt.next_position + torch.arange(len(tokens))
    positions = torch.cat((prompt.positions, after.expand(len(prompt.positions), -1)), dim=1)[:, None]
    causal = torch.ones(length, length).tril().bool()
    handles = []
    for layer, hidden in zip(language_model.layers, hidden_by_layer, strict=True):
        allowed = causal.clone()
        allowed[:, prompt.visual[hidden]] = False
        allowed |= torch.eye(length, dtype=torch.bool)  # a hidden token may see itself; its output is never read
        mask = torch.zeros(1, 1, length, length).masked_fill(~allowed, -1e30)
        hook = lambda _, args, kwargs, mask=mask: (args, {**kwargs, "attention_mask": mask})  # noqa: E731
        handles.append(layer.register_forward_pre_hook(hook, with_kwargs=True))
    extra: dict[str, Any] = {}
    if prompt.deepstack:
        visual = torch.zeros(1, length, dtype=torch.bool)
        visual[0, prompt.visual] = True
        extra = {"visual_pos_masks": visual, "deepstack_visual_embeds": list(prompt.deepstack)}
    try:
        out = language_model(
            inputs_embeds=embeds,
            attention_mask=torch.ones(1, length, dtype=torch.long),
            position_ids=positions if len(positions) > 1 else positions[0],
            use_cache=False,
            **extra,
        ).last_hidden_state
    finally:
        for handle in handles:
            handle.remove()
    return torch.as_tensor(model.model.lm_head(out[0, start - 1 :]))


def others(keep: Tensor, native: int) -> Tensor:
    return torch.tensor([i for i in range(native) if i not in set(keep.tolist())], dtype=torch.long)


def assert_same_as_masking(model: LocalVLM, jobs: list[Job], ours: Decoded, hidden: list[list[Tensor]]) -> None:
    for row, job in enumerate(jobs):
        tokens = ours.tokens[row]
        reference = masked_logits(model, job.prompt, hidden[row], tokens)
        mine = torch.stack([step[row] for step in ours.logits])[: len(tokens) + 1]
        torch.testing.assert_close(mine, reference[: len(mine)], atol=2e-5, rtol=1e-5)
        assert len(mine) >= 2, "one step proves nothing about the positions of decoding"


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", DELETABLE)
@torch.inference_mode()
def test_deleting_equals_hiding_the_keys_for_every_selector(family: str, attention: str) -> None:
    model = tiny(family, attention)
    depth = model.model.config.get_text_config().num_hidden_layers
    jobs = unpruned(model)
    for name in BEFORE_THE_FIRST_LAYER:
        prompts, hidden = [], []
        for i, (job, budget) in enumerate(zip(jobs, BUDGETS, strict=True)):
            request = Request(picture(*SIZES[i], seed=i), f"What is it, {i}?", budget, "deletion", name, sample=str(i))
            pruned = model.prepare(request).prompt
            assert pruned.tokens == budget
            keep = selected(model, request)
            torch.testing.assert_close(pruned.embeds[pruned.visual], job.prompt.embeds[job.prompt.visual[keep]])
            prompts.append(pruned)
            hidden.append([others(keep, job.prompt.tokens)] * depth)
        assert_same_as_masking(model, jobs, decode(model, pack(prompts), jobs), hidden)


def selected(model: LocalVLM, request: Request) -> Tensor:
    """The indices that the selector chooses."""
    selector: Any = make(request.selector)
    encoded = model.encode(request.image, exact=False, attention=True)
    question = question_embeds(model, request.question)
    scene = Scene(encoded.features, question, str(request.sample), encoded.received, encoded.keys)
    assert request.budget is not None
    indices: Tensor = selector.select(scene, request.budget).indices
    return indices


@torch.inference_mode()
def test_kept_tokens_keep_their_positions_and_decoding_continues_after_the_unpruned_sequence() -> None:
    (job, *_) = unpruned(tiny("qwen2_5_vl"))
    keep = torch.tensor([0, 7, 8, 19])
    shorter = delete(job.prompt, Selection(keep))
    assert torch.equal(shorter.positions[:, shorter.visual], job.prompt.positions[:, job.prompt.visual[keep]])
    text = torch.ones(len(job.prompt.embeds), dtype=torch.bool)
    text[job.prompt.visual] = False
    assert torch.equal(shorter.positions[:, -10:], job.prompt.positions[:, text][:, -10:])
    assert shorter.next_position == job.prompt.next_position == int(job.prompt.positions.max()) + 1


@torch.inference_mode()
def test_deepstack_features_are_deleted_with_their_tokens() -> None:
    (job, *_) = unpruned(tiny("qwen3_vl"))
    assert len(job.prompt.deepstack) == 3
    keep = torch.tensor([2, 3, 11])
    for whole, part in zip(job.prompt.deepstack, delete(job.prompt, Selection(keep)).deepstack, strict=True):
        assert torch.equal(part, whole[keep])


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_zero_masking_is_not_deletion(family: str) -> None:
    """The control: zero vectors still take part in attention, so the logits equal neither model's."""
    model = tiny(family)
    jobs = unpruned(model)[:1]
    selection = Selection(torch.arange(4))
    zeroed = decode(model, pack([zero_mask(jobs[0].prompt, selection)]), jobs).logits[0]
    deleted = decode(model, pack([delete(jobs[0].prompt, selection)]), jobs).logits[0]
    assert float((zeroed - deleted).abs().max()) > 0.05


class Staged(LayerSelector):
    """Two drops by simple rules, so that several stages and uneven batches are tested."""

    name = "staged"

    def stages(self, native: int, budget: int, depth: int) -> tuple[Stage, ...]:
        return Stage(1, (native + budget) // 2), Stage(3, budget)

    def choose(self, view: LayerView, keep: int) -> Selection:
        return Selection(torch.arange(len(view.visual)).flip(0)[:keep])


@pytest.mark.parametrize("selector", [FastV(), FastV(layer=1, rows="mean"), FastV(layer=3), DART(), Staged()], ids=repr)
@pytest.mark.parametrize(("family", "attention"), [*((f, "sdpa") for f in DELETABLE), ("qwen3_vl", "eager")])
@torch.inference_mode()
def test_in_model_drops_equal_hiding_the_keys_layer_by_layer(
    family: str, attention: str, selector: LayerSelector
) -> None:
    model = tiny(family, attention)
    jobs = unpruned(model)
    batch = pack([job.prompt for job in jobs])
    language_model = model.model.model.language_model
    chosen: list[dict[int, Tensor]] = [{} for _ in jobs]

    class Spy(type(selector)):  # type: ignore[misc]
        def choose(self, view: LayerView, keep: int) -> Selection:
            selection: Selection = super().choose(view, keep)
            row = next(i for i, job in enumerate(jobs) if torch.equal(job.prompt.embeds, view.inputs))
            columns = view.columns[view.visual[selection.indices.sort().values]]
            chosen[row][view.index] = torch.searchsorted(jobs[row].prompt.visual, columns)
            return selection

    spy = Spy(**vars(selector))
    with dropping(language_model, batch, spy, BUDGETS) as drops:
        ours = decode(model, batch, jobs, drops=drops)
    depth = len(language_model.layers)
    hidden = []
    for row, job in enumerate(jobs):
        alive, by_layer = torch.arange(job.prompt.tokens), []
        for layer in range(depth):
            alive = chosen[row].get(layer, alive)
            by_layer.append(others(alive, job.prompt.tokens))
            assert drops.counts[row][layer] == len(alive)
        assert len(alive) == BUDGETS[row]
        hidden.append(by_layer)
    assert_same_as_masking(model, jobs, ours, hidden)


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_the_cache_is_short_from_the_layer_that_drops(family: str) -> None:
    model = tiny(family)
    (job, *_) = unpruned(model)
    batch, language_model = pack([job.prompt]), model.model.model.language_model
    with dropping(language_model, batch, FastV(layer=2), [5]):
        positions = batch.positions if len(batch.positions) > 1 else batch.positions[0]
        out = language_model(
            inputs_embeds=batch.embeds, attention_mask=batch.mask, position_ids=positions, use_cache=True
        )
    whole = len(job.prompt.embeds)
    short = whole - job.prompt.tokens + 5
    assert [out.past_key_values.get_seq_length(i) for i in range(4)] == [whole, whole, short, short]


@torch.inference_mode()
def test_hooks_are_gone_after_the_block_also_after_an_exception() -> None:
    model = tiny("qwen3_vl")
    (job, *_) = unpruned(model)
    batch, language_model = pack([job.prompt]), model.model.model.language_model

    def hooks() -> int:
        return sum(len(layer._forward_pre_hooks) + len(layer._forward_hooks) for layer in language_model.layers)

    assert hooks() == 0
    with dropping(language_model, batch, FastV(), [5]):
        assert hooks() == 7
    assert hooks() == 0
    with pytest.raises(ZeroDivisionError), dropping(language_model, batch, FastV(), [5]):
        raise ZeroDivisionError
    assert hooks() == 0


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_recomputed_attention_rows_are_those_of_an_eager_decoder(family: str) -> None:
    """FastV's score, with rows=last and rows=mean, from the weights of the eager model."""
    model = tiny(family, "eager")
    (job, *_) = unpruned(model)
    batch, language_model = pack([job.prompt]), model.model.model.language_model
    inputs = {
        "inputs_embeds": batch.embeds,
        "attention_mask": batch.mask,
        "position_ids": batch.positions if len(batch.positions) > 1 else batch.positions[0],
    }
    if batch.deepstack:
        inputs |= {"visual_pos_masks": batch.visual, "deepstack_visual_embeds": list(batch.deepstack)}  # type: ignore[dict-item]
    weights = language_model(**inputs, output_attentions=True).attentions[1][0].mean(0)
    seen: dict[str, Tensor] = {}

    class Spy(FastV):
        def choose(self, view: LayerView, keep: int) -> Selection:
            seen[self.rows] = self._scores(view)
            return super().choose(view, keep)

    for rows in ("last", "mean"):
        with dropping(language_model, batch, Spy(rows=rows), [4]) as drops:
            decode(model, batch, [job], drops=drops)
    torch.testing.assert_close(seen["last"], weights[-1], atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(seen["mean"], weights.mean(0), atol=1e-6, rtol=1e-4)
    best = weights[-1][job.prompt.visual].topk(4).indices.sort().values
    with dropping(language_model, batch, FastV(), [4]) as drops:
        decode(model, batch, [job], drops=drops)
    assert torch.equal(drops.columns[0][drops.visual[0]], job.prompt.visual[best])
