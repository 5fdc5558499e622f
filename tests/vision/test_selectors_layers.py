"""SparseVLM and PyramidDrop: their schedules, their scores, and that they drop inside the model exactly."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.tiny import FAMILIES, blank, picture, stock_inputs, tiny
from tests.vision.test_deletion import BUDGETS, decode, masked_logits, others, unpruned
from torch import Tensor

from stakes.errors import BadInput
from stakes.models import Request
from stakes.models.local import Job, LocalVLM
from stakes.vision.deletion import Selection, pack
from stakes.vision.deletion_layers import Drops, dropping
from stakes.vision.selectors import make
from stakes.vision.selectors.fastv import FastV
from stakes.vision.selectors.layers import LayerSelector, LayerView, Stage
from stakes.vision.selectors.pyramiddrop import PyramidDrop, quarters
from stakes.vision.selectors.sparsevlm import SparseVLM, density_peaks, merged, raters, recyclable, scaled

PLAIN = [SparseVLM(merge=False), PyramidDrop(), PyramidDrop(layers=(1, 3))]
ALL = [SparseVLM(), *PLAIN]
SPECS = ["sparsevlm", "sparsevlm:merge=False", "pyramiddrop"]
REAL = [*((family, "sdpa") for family in FAMILIES), ("qwen2_5_vl", "eager"), ("llava_onevision", "eager")]


# Schedules


@pytest.mark.parametrize(
    ("merge", "budget", "keeps"),
    [
        (False, 118, (300, 200)), (False, 60, (238, 108)), (False, 28, (246, 54)), (False, 20, (66, 34)),
        (True, 113, (309, 204)), (True, 39, (312, 117)), (True, 27, (249, 55)), (True, 18, (82, 32)),
    ],
)  # fmt: skip
def test_sparsevlm_reproduces_the_released_tables(merge: bool, budget: int, keeps: tuple[int, int]) -> None:
    plan = SparseVLM(merge).plan(576, budget, 32)
    assert plan == (Stage(3, keeps[0]), Stage(7, keeps[1]), Stage(16, budget))
    twice = SparseVLM(merge).plan(1152, 2 * budget, 32)
    assert [stage.keep for stage in twice] == [2 * keeps[0], 2 * keeps[1], 2 * budget]


@pytest.mark.parametrize("setting", [(300, 200, 110), (303, 110, 36), (238, 48, 26), (66, 30, 17)])
def test_the_table_with_clusters_is_v1s_plus_what_v1_recycles(setting: tuple[int, int, int]) -> None:
    """Their arithmetic, step by step from 576 tokens: top-k, then 30 % + 1 of the rest into a tenth + 1."""
    native, left = 576, []
    for chosen in setting:
        clusters = int((int((native - chosen) * 0.3) + 1) / 10) + 1
        assert merged(native, chosen + clusters) == clusters
        native = chosen + clusters
        left.append(native)
    assert [stage.keep for stage in SparseVLM().plan(576, left[-1], 32)] == left


@pytest.mark.parametrize(
    ("depth", "layers"),
    [(32, [3, 7, 16]), (80, [3, 7, 16]), (28, [3, 6, 14]), (8, [1, 2, 4]), (4, [1, 2, 3]), (3, [1, 2]), (2, [1])],
)
def test_sparsevlm_scales_its_layers_to_a_shallower_decoder(depth: int, layers: list[int]) -> None:
    assert scaled(depth) == layers
    assert SparseVLM().plan(100, 7, depth)[-1] == Stage(layers[-1], 7)


def test_pyramiddrop_shrinks_by_one_ratio_at_the_quarters() -> None:
    assert PyramidDrop().plan(576, 72, 32) == (Stage(8, 288), Stage(16, 144), Stage(24, 72))
    assert PyramidDrop(layers=(2, 5)).plan(100, 36, 8) == (Stage(2, 60), Stage(5, 36))
    assert [quarters(depth) for depth in (28, 6, 4, 3, 2)] == [(7, 14, 21), (1, 3, 4), (1, 2, 3), (1, 2), (1,)]


@given(st.integers(1, 3000), st.data(), st.integers(2, 90))
@settings(max_examples=300, deadline=None)
def test_every_plan_is_sound_and_one_more_token_never_lowers_the_average(
    native: int, data: st.DataObject, depth: int
) -> None:
    budget = data.draw(st.integers(1, native))
    for selector in (SparseVLM(), SparseVLM(merge=False), PyramidDrop()):
        assert budget == native or selector.plan(native, budget, depth)[-1].keep == budget
        if budget < native:
            assert selector.average(native, budget, depth) < selector.average(native, budget + 1, depth)


@given(st.integers(2, 3000), st.data())
@settings(max_examples=300, deadline=None)
def test_clusters_are_what_the_release_makes_of_the_rest_but_at_most_half(native: int, data: st.DataObject) -> None:
    keep = data.draw(st.integers(1, native))
    clusters = merged(native, keep)
    pruned = native - keep + clusters
    published = int((int(pruned * 0.3) + 1) / 10) + 1 if keep < native else 0
    assert clusters == min(published, keep // 2)
    assert clusters <= recyclable(pruned) <= pruned


# Choosing


class Told(SparseVLM):
    """SparseVLM with the scores given."""

    def scores(self, view: LayerView) -> Tensor:
        return view.inputs[:, 0]


def told(scores: Tensor, hidden: Tensor) -> LayerView:
    every = torch.arange(len(scores))
    return LayerView(1, [], hidden, hidden, hidden, hidden, every, every, scores[:, None])


def test_sparsevlm_recycles_the_next_best_into_means_at_the_place_of_their_centres() -> None:
    dice = torch.Generator().manual_seed(3)
    scores, hidden = torch.rand(200, generator=dice), torch.randn(200, 6, generator=dice)
    selection = Told().select(told(scores, hidden), 40)
    order = scores.argsort(descending=True)
    assert selection.merge is not None
    best, recycled = order[:34], order[34:84].sort().values  # 166 pruned, 30 % + 1 recycled into a tenth + 1
    centres, owner = density_peaks(hidden[recycled], 6)
    merged_rows = ~torch.isin(selection.indices, best)
    assert set(selection.indices[merged_rows].tolist()) == set(recycled[centres].tolist())
    out = selection.apply(hidden)
    torch.testing.assert_close(out[~merged_rows], hidden[best.sort().values])
    taken = selection.merge[merged_rows].sum(0).nonzero()[:, 0]
    assert set(taken.tolist()) == set(recycled.tolist()), "each recycled token goes into one cluster, no other does"
    for index, row in zip(selection.indices[merged_rows], out[merged_rows], strict=True):
        cluster = recycled[owner == owner[recycled == index]]
        torch.testing.assert_close(row, hidden[cluster].mean(0))


def test_without_merging_sparsevlm_keeps_the_best_as_they_are() -> None:
    scores, hidden = torch.rand(50, generator=torch.Generator().manual_seed(1)), torch.randn(50, 6)
    selection = Told(merge=False).select(told(scores, hidden), 9)
    assert selection.merge is None
    assert selection.indices.tolist() == sorted(scores.argsort(descending=True)[:9].tolist())
    assert SparseVLM().merges
    assert not SparseVLM(merge=False).merges
    assert not PyramidDrop().merges


@pytest.mark.parametrize("native", [1, 2, 3, 11, 60])
@pytest.mark.parametrize("alike", [False, True])
def test_merging_spends_every_keep_exactly_also_on_duplicates(native: int, alike: bool) -> None:
    hidden = torch.ones(native, 4) if alike else torch.randn(native, 4, generator=torch.Generator().manual_seed(0))
    scores = torch.ones(native) if alike else hidden[:, 0]
    for keep in range(1, native + 1):
        selection = Told().select(told(scores, hidden), keep)
        indices = selection.indices.tolist()
        assert len(indices) == keep
        assert indices == sorted(set(indices))
        if alike:
            assert indices == list(range(keep)), "ties go to the lowest index, for kept tokens and for clusters"
            torch.testing.assert_close(selection.apply(hidden), hidden[:keep])


def test_of_equal_tokens_the_first_ones_are_the_centres() -> None:
    """Blank paper: densities are equal, so without a rule two centres may fall on the same kind of token."""
    ink = torch.tensor([[0.0, 0], [0, 0], [0, 0], [9, 9], [9, 9], [9, 9]])
    centres, owner = density_peaks(ink, 2)
    assert (centres.tolist(), owner.tolist()) == ([0, 3], [0, 0, 0, 1, 1, 1])
    selection = Told().select(told(torch.arange(40.0), torch.ones(40, 3)), 12)
    assert merged(40, 12) == 1
    assert selection.indices.tolist() == [20, *range(29, 40)], "the first of the 9 recycled, 20 to 28, is their centre"


def blackboard(points: Tensor, count: int) -> tuple[list[int], list[int]]:
    """Density peaks in loops: the definition, in double."""
    n = len(points)
    d = [[float((a - b).double().norm()) / points.shape[1] ** 0.5 for b in points] for a in points]
    density = [float(torch.tensor([x * x for x in sorted(row)[:count]]).double().mean().neg().exp()) for row in d]
    largest = max(max(row) for row in d)
    gap = [min([d[i][j] for j in range(n) if density[j] > density[i]], default=largest) for i in range(n)]
    centres = sorted(range(n), key=lambda i: -gap[i] * density[i])[:count]
    owner = [min(range(count), key=lambda c: d[i][centres[c]]) for i in range(n)]
    for c, i in enumerate(centres):
        owner[i] = c
    return centres, owner


@pytest.mark.parametrize("seed", range(4))
def test_density_peaks_are_those_of_the_definition(seed: int) -> None:
    points = torch.randn(40, 5, generator=torch.Generator().manual_seed(seed))
    centres, owner = density_peaks(points, 4)
    assert (centres.tolist(), owner.tolist()) == blackboard(points, 4)


# In the model


def watch(selector: LayerSelector, seen: list[tuple[LayerView, Selection]]) -> LayerSelector:
    """The same selector; what it saw and checked goes to ``seen``."""

    class Watched(type(selector)):  # type: ignore[misc]
        def select(self, view: LayerView, keep: int) -> Selection:
            selection: Selection = super().select(view, keep)
            seen.append((view, selection))
            return selection

    made: LayerSelector = Watched(**vars(selector))
    return made


def run(model: LocalVLM, jobs: list[Job], selector: LayerSelector, budgets: list[int]) -> tuple[Any, Drops]:
    batch = pack([job.prompt for job in jobs])
    with dropping(model.model.model.language_model, batch, selector, budgets) as drops:
        return decode(model, batch, jobs, deepstack=False), drops


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
        return masked_logits(model, replace(job, prompt=replace(prompt, deepstack=tuple(deepstack))), hidden, tokens)
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
    ours, drops = run(model, jobs, watch(selector, seen), BUDGETS)
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
        assert len(mine) >= 2, "one step shows nothing about the positions of decoding"
        torch.testing.assert_close(mine, theirs[: len(mine)], atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("selector", PLAIN, ids=repr)
@torch.inference_mode()
def test_every_stage_keeps_what_an_eager_decoders_own_weights_rate_highest(
    family: str, selector: LayerSelector
) -> None:
    """Weights from the unpruned eager model with the tokens gone so far hidden; raters by their formula, in loops."""
    model = tiny(family, "eager")
    job = unpruned(model)[0]
    seen: list[tuple[LayerView, Selection]] = []
    run(model, [job], watch(selector, seen), [6])
    prompt = job.prompt
    after = range(int(prompt.visual.max()) + 1, len(prompt.embeds))
    rating = torch.zeros(len(after))
    for pixel in prompt.embeds[prompt.visual]:
        rating += torch.stack([prompt.embeds[t] @ pixel for t in after]).softmax(0) / prompt.tokens
    rows = [t for t, r in zip(after, rating, strict=True) if r > rating.mean()]
    assert 0 < len(rows) < len(after), "raters that are all or none of the words show nothing"
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
def test_where_no_word_stands_out_all_of_them_rate() -> None:
    job = unpruned(tiny("llava_onevision"))[0]
    alike = job.prompt.embeds.clone()
    alike[int(job.prompt.visual.max()) + 1 :] = 0
    every = torch.arange(len(alike))
    view = LayerView(1, [], alike, alike, alike, alike, job.prompt.visual, every, alike)
    assert raters(view).tolist() == list(range(int(job.prompt.visual.max()) + 1, len(alike)))
    end = int(job.prompt.visual.max()) + 1
    with pytest.raises(BadInput, match="this prompt has none"):
        raters(replace(view, columns=every[:end], inputs=alike[:end], hidden=alike[:end]))


@pytest.mark.parametrize("selector", PLAIN, ids=repr)
@torch.inference_mode()
def test_a_tie_goes_to_the_lowest_index(selector: LayerSelector) -> None:
    """Without queries every key is looked at alike, so all scores are equal."""
    model = tiny("qwen2_5_vl")
    mute = copy.copy(model)
    mute.model = copy.deepcopy(model.model)
    for layer in mute.model.model.language_model.layers:
        torch.nn.init.zeros_(layer.self_attn.q_proj.weight)
        torch.nn.init.zeros_(layer.self_attn.q_proj.bias)
    job = unpruned(model)[0]
    _, drops = run(mute, [job], selector, [7])
    assert torch.equal(drops.columns[0][drops.visual[0]], job.prompt.visual[:7])


# Answers


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_budget_of_all_tokens_is_stock_generate_also_beside_requests_that_drop(family: str) -> None:
    model = tiny(family)
    image = picture(120, 90, seed=5)
    inputs = stock_inputs(family, [image], ["What is it?"])
    stock = model.model.generate(**inputs, max_new_tokens=8, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    expected = model.processor.tokenizer.decode(stock, skip_special_tokens=True).strip()
    native = int((inputs["input_ids"] == model.processor.image_token_id).sum())
    for spec in SPECS:
        whole = Request(image, "What is it?", native, "deletion", spec)
        part = Request(image, "What is it?", 3, "deletion", spec)
        (alone,) = model.answer([whole])
        beside, fewer = model.answer([whole, part])
        assert alone.text == beside.text == expected
        assert (beside.realised_tokens, beside.layer_tokens) == (native, native)
        assert fewer.realised_tokens == 3
        assert fewer.layer_tokens < native


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("family", "attention"), [("qwen2_5_vl", "sdpa"), ("llava_onevision", "eager")])
def test_an_answer_does_not_depend_on_its_batch_and_spends_its_budget_blank_pages_too(
    family: str, attention: str, spec: str
) -> None:
    model = tiny(family, attention)
    selector: Any = make(spec)
    pages = [picture(150, 120, 1), blank(90, 170), picture(100, 100, 2), blank(140, 60)]
    requests = [
        Request(page, f"Where is number {i}{'?' * i}", budget, "deletion", spec)
        for i, page in enumerate(pages)
        for budget in (1, 2, 5, 9)
    ]
    together = model.answer(requests)
    for request, answer in zip(requests, together, strict=True):
        (alone,) = model.answer([request])
        assert (answer.text, answer.layer_tokens) == (alone.text, alone.layer_tokens)
        assert answer.realised_tokens == request.budget
        assert answer.input_tokens == answer.encoder_tokens == answer.native_tokens
        assert answer.layer_tokens == selector.average(answer.native_tokens, request.budget, 4)
    assert len({answer.text for answer in together}) > 4, "the answers say nothing if they are all alike"


@pytest.mark.parametrize("spec", ["fastv", *SPECS])
@pytest.mark.parametrize("share", [0.9, 0.6])
def test_the_budget_for_a_layer_average_is_the_largest_that_realises_no_more(spec: str, share: float) -> None:
    model = tiny("qwen2_5_vl")
    selector: Any = make(spec)
    image = picture(200, 160, 4)
    (whole,) = model.answer([Request(image, "What?")])
    target = share * whole.native_tokens
    budget = selector.budget_for(whole.native_tokens, target, 4)
    this, more = model.answer([Request(image, "What?", b, "deletion", spec) for b in (budget, budget + 1)])
    assert this.layer_tokens <= target < more.layer_tokens
    assert this.realised_tokens == budget


def test_hooks_are_gone_after_a_selector_fails_inside_the_model() -> None:
    model = tiny("qwen3_vl")
    layers = model.model.model.language_model.layers

    def hooks() -> int:
        return sum(len(layer._forward_pre_hooks) + len(layer._forward_hooks) for layer in layers)

    during: list[int] = []

    class Fails(PyramidDrop):
        def choose(self, view: LayerView, keep: int) -> Selection:
            during.append(hooks())
            if view.index == 2:
                raise ZeroDivisionError
            return super().choose(view, keep)

    request = Request(picture(150, 120), "What?", 5, "deletion", "sparsevlm")
    (before,) = model.answer([request])
    with pytest.raises(ZeroDivisionError):
        model.answer([replace(request, selector=Fails())])
    assert during == [7, 7]
    assert hooks() == 0
    assert model.answer([request])[0].text == before.text


def test_options_are_read_and_checked() -> None:
    assert make("sparsevlm:layers=(0,1,3),merge=False") == SparseVLM(merge=False, layers=(0, 1, 3))
    assert make("pyramiddrop:layers=(8,16,24)") == PyramidDrop(layers=(8, 16, 24))
    assert SparseVLM(layers=(0, 1, 3)).plan(576, 113, 8) == (Stage(1, 309), Stage(2, 204), Stage(4, 113))
    for spec, says in {
        "sparsevlm:merge=no": "merge=True or merge=False, not 'no'",
        "sparsevlm:layers=(2,6)": "three layers",
        "sparsevlm:layers=2": "three layers",
        "pyramiddrop:layers=8": "layers=",
        "pyramiddrop:layers=()": "layers=",
    }.items():
        with pytest.raises(BadInput, match=says):
            make(spec)
    for deep in (SparseVLM(layers=(2, 6, 15)), PyramidDrop(layers=(2, 4)), PyramidDrop(layers=(3, 2))):
        with pytest.raises(BadInput, match="which a decoder of 4 has not all"):
            deep.plan(100, 9, 4)
    with pytest.raises(BadInput, match="which a decoder of 1 has not all"):
        SparseVLM().plan(100, 9, 1)
    assert FastV().plan(100, 9, 4) == (Stage(2, 9),)
