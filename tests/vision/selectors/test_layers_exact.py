"""SparseVLM and PyramidDrop drop exactly inside the model, and keep the tokens with the highest attention."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.tiny import FAMILIES, tiny
from tests.vision.deletion.test_deletion import BUDGETS, decode, masked_logits, others, unpruned
from torch import Tensor

from stakes.errors import BadInput
from stakes.models.local.prompt import Job
from stakes.models.local.vlm import LocalVLM
from stakes.vision.deletion.exact import Selection, pack
from stakes.vision.deletion.inside_layers import Drops, dropping
from stakes.vision.selectors.layers import LayerSelector, LayerView
from stakes.vision.selectors.pyramiddrop import PyramidDrop
from stakes.vision.selectors.sparsevlm import SparseVLM, raters

PLAIN = [SparseVLM(merge=False), PyramidDrop(), PyramidDrop(layers=(1, 3))]
ALL = [SparseVLM(), *PLAIN]
REAL = [*((family, "sdpa") for family in FAMILIES), ("qwen2_5_vl", "eager"), ("llava_onevision", "eager")]


def spy_on(selector: LayerSelector, seen: list[tuple[LayerView, Selection]]) -> LayerSelector:
    """The same selector; what it saw and checked goes to ``seen``."""

    class Spy(type(selector)):  # type: ignore[misc]
        def select(self, view: LayerView, keep: int) -> Selection:
            selection: Selection = super().select(view, keep)
            seen.append((view, selection))
            return selection

    made: LayerSelector = Spy(**vars(selector))
    return made


def run(model: LocalVLM, jobs: list[Job], selector: LayerSelector, budgets: list[int]) -> tuple[Any, Drops]:
    batch = pack([job.prompt for job in jobs])
    with dropping(model.model.model.language_model, batch, selector, budgets) as drops:
        return decode(model, batch, jobs, drops=drops), drops


def into(tokens: Tensor, alive: Tensor, selection: Selection) -> Tensor:
    """[N, D] -> the same with the selection's tokens, merged or not, written where they stand."""
    return tokens.index_copy(0, alive[selection.indices], selection.apply(tokens[alive]))


def reference(model: LocalVLM, job: Job, drops: list[tuple[int, Tensor, Selection]], tokens: list[int]) -> Tensor:
    """[steps, V] logits of the unpruned sequence, without cache.

    ``drops``: (layer, the visual tokens alive before it, what it keeps). From that layer on, the keys of the others are
    hidden from everyone; where tokens merge, the merged ones are written over the kept in front of the layer.
    """
    layers, prompt = model.model.model.language_model.layers, job.prompt
    hidden = [torch.tensor([], dtype=torch.long)] * len(layers)
    deepstack, handles = list(prompt.deepstack), []
    for at, alive, selection in drops:
        hidden[at:] = [others(alive[selection.indices], prompt.tokens)] * (len(layers) - at)
        deepstack[at:] = [into(level, alive, selection) for level in deepstack[at:]]

        def merge(_: Any, args: Any, kwargs: Any, alive: Tensor = alive, selection: Selection = selection) -> Any:
            return (into(args[0][0], prompt.visual[alive], selection)[None], *args[1:]), kwargs

        handles.append(layers[at].register_forward_pre_hook(merge, with_kwargs=True))
    try:
        return masked_logits(model, replace(prompt, deepstack=tuple(deepstack)), hidden, tokens)
    finally:
        for handle in handles:
            handle.remove()


def history(job: Job, seen: list[tuple[LayerView, Selection]]) -> list[tuple[int, Tensor, Selection]]:
    """The drops of one job, in tokens of its image."""
    own = [(view, selection) for view, selection in seen if torch.equal(view.inputs, job.prompt.embeds)]
    return [
        (view.index, torch.searchsorted(job.prompt.visual, view.columns[view.visual]), selection)
        for view, selection in own
    ]


@pytest.mark.parametrize("selector", ALL, ids=repr)
@pytest.mark.parametrize(("family", "attention"), REAL)
@torch.inference_mode()
def test_dropping_at_its_layers_equals_hiding_the_keys_from_there_on(
    family: str, attention: str, selector: LayerSelector
) -> None:
    """At every decoding step, three images of different sizes and budgets at once; counts as scheduled."""
    model = tiny(family, attention)
    jobs = unpruned(model)
    seen: list[tuple[LayerView, Selection]] = []
    ours, drops = run(model, jobs, spy_on(selector, seen), BUDGETS)
    for row, (job, budget) in enumerate(zip(jobs, BUDGETS, strict=True)):
        past = history(job, seen)
        plan = selector.plan(job.prompt.tokens, budget, 4)
        assert [(layer, len(selection.indices)) for layer, _, selection in past] == list(plan)
        assert any(selection.merge is not None for *_, selection in past) == selector.merges
        counts = [job.prompt.tokens] * 4
        for stage in plan:
            counts[stage.layer :] = [stage.keep] * (4 - stage.layer)
        assert drops.counts[row] == counts
        assert counts[-1] == budget
        tokens = ours.tokens[row]
        theirs = reference(model, job, past, tokens)
        mine = torch.stack([step[row] for step in ours.logits])[: len(tokens) + 1]
        assert len(mine) >= 2, "one step proves nothing about the positions of decoding"
        torch.testing.assert_close(mine, theirs[: len(mine)], atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("selector", PLAIN, ids=repr)
@torch.inference_mode()
def test_every_stage_keeps_the_tokens_with_the_highest_eager_attention(family: str, selector: LayerSelector) -> None:
    """Weights from the unpruned eager model with the dropped tokens hidden; raters by their formula, in loops."""
    model = tiny(family, "eager")
    job = unpruned(model)[0]
    seen: list[tuple[LayerView, Selection]] = []
    run(model, [job], spy_on(selector, seen), [6])
    prompt = job.prompt
    after = range(int(prompt.visual.max()) + 1, len(prompt.embeds))
    rating = torch.zeros(len(after))
    for pixel in prompt.embeds[prompt.visual]:
        rating += torch.stack([prompt.embeds[t] @ pixel for t in after]).softmax(0) / prompt.tokens
    rows = [t for t, r in zip(after, rating, strict=True) if r > rating.mean()]
    assert 0 < len(rows) < len(after), "raters that are all or none of the words prove nothing"
    assert len(seen) == len(selector.plan(prompt.tokens, 6, 4))
    for stage, (at, alive, selection) in enumerate(history(job, seen)):
        layer = at - 1 if isinstance(selector, SparseVLM) else at
        weights: list[Tensor] = []
        module = model.model.model.language_model.layers[layer].self_attn
        handle = module.register_forward_hook(lambda _m, _a, out, weights=weights: weights.append(out[1][0].mean(0)))
        try:
            reference(model, job, history(job, seen)[:stage], [])
        finally:
            handle.remove()
        queries = rows if isinstance(selector, SparseVLM) else [len(prompt.embeds) - 1]
        score = weights[0][queries].mean(0)[prompt.visual[alive]]
        assert selection.indices.tolist() == sorted(score.topk(len(selection.indices)).indices.tolist())
        if isinstance(selector, SparseVLM):
            view = seen[stage][0]
            assert view.columns[raters(view)].tolist() == rows


@torch.inference_mode()
def test_all_words_rate_where_all_ratings_are_equal() -> None:
    job = unpruned(tiny("llava_onevision"))[0]
    equal = job.prompt.embeds.clone()
    equal[int(job.prompt.visual.max()) + 1 :] = 0
    every = torch.arange(len(equal))
    view = LayerView(1, [], equal, equal, equal, equal, job.prompt.visual, every, equal, torch.nn.Identity())
    assert raters(view).tolist() == list(range(int(job.prompt.visual.max()) + 1, len(equal)))
    end = int(job.prompt.visual.max()) + 1
    with pytest.raises(BadInput, match="this prompt has none"):
        raters(replace(view, columns=every[:end], inputs=equal[:end], hidden=equal[:end]))


@pytest.mark.parametrize("selector", PLAIN, ids=repr)
@torch.inference_mode()
def test_a_tie_goes_to_the_lowest_index(selector: LayerSelector) -> None:
    """Without queries attention is uniform, so all scores are equal."""
    model = tiny("qwen2_5_vl")
    mute = copy.copy(model)
    mute.model = copy.deepcopy(model.model)
    for layer in mute.model.model.language_model.layers:
        torch.nn.init.zeros_(layer.self_attn.q_proj.weight)
        torch.nn.init.zeros_(layer.self_attn.q_proj.bias)
    job = unpruned(model)[0]
    _, drops = run(mute, [job], selector, [7])
    assert torch.equal(drops.columns[0][drops.visual[0]], job.prompt.visual[:7])
