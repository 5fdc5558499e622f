"""The fast path (static cache, packed prompts, images in one call) says what stock ``generate`` says."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from tests.models.tiny import FAMILIES, blank, image_processor, picture, stock_inputs, tiny, token_id

from stakes.models import Request, plain_ops
from stakes.models.clock import Clock
from stakes.models.decoding import greedy
from stakes.models.fast_decode import FastDecoder
from stakes.models.fast_packing import packed, widen
from stakes.models.fast_state import columns_for, rows_for, tokens_for
from stakes.models.fast_weights import joined, known
from stakes.models.images import EncodedCache
from stakes.models.local import LocalVLM
from stakes.models.static_cache import StaticCache
from stakes.models.vision_packed import PackedEncoder
from stakes.vision.deletion import pack
from stakes.vision.deletion_layers import dropping
from stakes.vision.selectors import make

SIZES = [(150, 120), (90, 200), (120, 90)]
QUESTIONS = ["What is it?", "How much is the total on this page?", "Who?"]


def fresh(family: str, fast: bool) -> LocalVLM:
    return replace(tiny(family), cache=EncodedCache(), fast=fast)


@cache
def bucketed(family: str) -> FastDecoder:
    """As on a GPU in bfloat16: prompts widened to a bucket."""
    decoder = FastDecoder(tiny(family).model)
    decoder.buckets = True
    return decoder


class Replayed:
    """A recording as a GPU keeps it: what was passed under a name first is what runs ever after."""

    device, limit = torch.device("cuda"), 32

    def __init__(self) -> None:
        self.works: dict[Any, Any] = {}

    def __call__(self, name: Any, work: Any) -> Any:
        return self.works.setdefault(name, work)()

    def ready(self, name: Any, work: Any, clear: Any) -> None:
        if name not in self.works:
            self.works[name] = work
            clear()
            work()

    def forget(self) -> None:
        self.works.clear()


def device_lengths(query: Any, key: Any, value: Any, ends: Any, _: Any, longest: int, *more: Any) -> Any:
    """A flash kernel's contract: lengths are what ``ends`` says now, on the device."""
    assert int(ends.diff().max()) <= longest
    return plain_ops.attend_packed(query, key, value, ends, ends.diff().tolist(), longest, *more)


RECORDABLE = SimpleNamespace(**{**vars(plain_ops), "attend_packed": device_lengths, "takes_lengths": lambda *_: True})


def requests(count: int, budget: int | None, mechanism: Any, selector: str | None = None) -> list[Request]:
    pages = [picture(*size, seed=i) for i, size in enumerate(SIZES[:count])]
    return [
        Request(page, question, budget, mechanism, selector)
        for page, question in zip(pages, QUESTIONS[:count], strict=True)
    ]


@pytest.mark.parametrize("mechanism", ["resolution", "deletion"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_with_every_token_the_fast_path_writes_what_generate_writes(family: str, count: int, mechanism: str) -> None:
    """By resolution no budget is given; by deletion as many tokens as there are."""
    asked = requests(count, None, "resolution")
    inputs = stock_inputs(family, [one.image for one in asked], [one.question for one in asked])
    model = fresh(family, fast=True)
    stock = model.model.generate(**inputs, max_new_tokens=8, do_sample=False)[:, inputs["input_ids"].shape[1] :]
    if mechanism == "deletion":
        natives = (inputs["input_ids"] == model.processor.image_token_id).sum(1).tolist()
        asked = [Request(one.image, one.question, n, "deletion") for one, n in zip(asked, natives, strict=True)]
    decode = model.processor.tokenizer.decode
    texts = [decode(row, skip_special_tokens=True).strip() for row in stock]
    assert [answer.text for answer in model.answer(asked)] == texts
    assert len(set(texts)) == count, "the answers say nothing if they are all alike"


@pytest.mark.parametrize(("mechanism", "selector"), [("resolution", None), ("deletion", None), ("deletion", "fastv")])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_with_a_budget_both_paths_answer_alike(family: str, count: int, mechanism: str, selector: str | None) -> None:
    if mechanism == "resolution" and family == "llava_onevision":
        pytest.skip("its smallest budget is that of 27 x 27 patches a tile, which no tiny model has")
    budget = {"qwen3_vl": 80}.get(family, 16) if mechanism == "resolution" else 6
    asked = requests(count, budget, mechanism, selector)
    ours = fresh(family, fast=True).answer(asked)
    theirs = fresh(family, fast=False).answer(asked)
    assert [replace(answer, timings={}) for answer in ours] == [replace(answer, timings={}) for answer in theirs]


@pytest.mark.parametrize("bucket", [False, True])
@pytest.mark.parametrize("penalty", [1.0, 3.0])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_logits_are_those_of_the_other_loop(family: str, penalty: float, bucket: bool) -> None:
    model = fresh(family, fast=False)
    jobs = [model.prepare(one) for one in requests(3, 5, "deletion")]
    batch, ids = pack([job.prompt for job in jobs]), [job.ids for job in jobs]
    decoder = bucketed(family) if bucket else FastDecoder(model.model)
    options: dict[str, Any] = {"max_new_tokens": 8, "clock": Clock(model.device), "keep_logits": True}
    model.model.generation_config.repetition_penalty = penalty
    try:
        expected = greedy(model.model, batch, ids, **options)
        decoder.greedy(model.model, batch, ids, **options)
        found = decoder.greedy(model.model, batch, ids, **options)  # the first has left nothing behind
    finally:
        model.model.generation_config.repetition_penalty = 1.0
    assert (found.tokens, found.truncated) == (expected.tokens, expected.truncated)
    assert len({tuple(row) for row in found.tokens}) == 3, "the answers say nothing if they are all alike"
    for step, theirs in enumerate(expected.logits):
        alive = [row for row in range(3) if len(found.tokens[row]) >= step]
        torch.testing.assert_close(
            found.logits[step][alive], theirs[alive], atol=1e-5 * float(theirs.abs().max()), rtol=1e-5
        )


@torch.inference_mode()
def test_a_used_state_remembers_nothing() -> None:
    """Long answers first, then short ones in the same buffers; and a batch of another size between them."""
    model = fresh("qwen2_5_vl", fast=True)
    once = [answer.text for answer in model.answer(requests(3, None, "resolution"))]
    long = [Request(picture(280, 280, seed=9), "A much longer question than any of the others, is it not?")] * 3
    model.answer(long)
    model.answer(long[:1])
    assert [answer.text for answer in model.answer(requests(3, None, "resolution"))] == once


@torch.inference_mode()
def test_a_recording_answers_other_prompts_than_those_it_was_made_with() -> None:
    model = fresh("qwen2_5_vl", fast=False)
    decoder = FastDecoder(model.model, RECORDABLE)
    decoder.graphs, decoder.ends = cast(Any, Replayed()), []
    options: dict[str, Any] = {"max_new_tokens": 6, "clock": Clock(model.device), "keep_logits": True}
    for budget, questions in (
        (5, QUESTIONS),
        (6, QUESTIONS[::-1]),
        (4, ["Why?", "When was it?", "Is it?"]),
        (5, QUESTIONS),
    ):
        asked = [replace(one, question=q) for one, q in zip(requests(3, budget, "deletion"), questions, strict=True)]
        jobs = [model.prepare(one) for one in asked]
        batch, ids = pack([job.prompt for job in jobs]), [job.ids for job in jobs]
        found = decoder.greedy(model.model, batch, ids, **options)
        expected = greedy(model.model, batch, ids, **options)
        for row in range(3):
            upto = len(expected.tokens[row])  # the other loop stops at end tokens, of which this one knows none
            assert found.tokens[row][:upto] == expected.tokens[row]
    reads = [name for name in decoder.graphs.works if name[0] == "read"]  # type: ignore[attr-defined]
    assert len(reads) < 4, "prompts of like lengths must share a recording, or nothing was proven"


@torch.inference_mode()
def test_a_recorded_encoder_sees_the_image_that_it_is_given() -> None:
    visual = tiny("qwen2_5_vl").model.model.visual
    encoder = PackedEncoder(visual, RECORDABLE)
    encoder.graphs = cast(Any, Replayed())
    encoder.graphs.device = torch.device("cpu")
    for seed in range(3):
        seen = image_processor("qwen2_5_vl")(images=[picture(150, 120, seed)], return_tensors="pt")
        shapes = [tuple(row) for row in seen["image_grid_thw"].tolist()]
        expected = PackedEncoder(visual)(seen["pixel_values"], shapes)
        torch.testing.assert_close(encoder(seen["pixel_values"], shapes), expected)
    assert len(encoder.graphs.works) == 1  # type: ignore[attr-defined]


@torch.inference_mode()
def test_questions_on_one_page_share_it_on_the_fast_path_too() -> None:
    page = picture(150, 120, 1)
    asked = [Request(page, q, 9, "deletion") for q in QUESTIONS] + [Request(blank(90, 90), q) for q in QUESTIONS]
    ours, theirs = (fresh("qwen2_5_vl", fast=fast).answer(asked) for fast in (True, False))
    assert [answer.text for answer in ours] == [answer.text for answer in theirs]


@torch.inference_mode()
def test_a_selector_inside_the_model_leaves_later_layers_a_shorter_cache() -> None:
    model = fresh("qwen2_5_vl", fast=False)
    jobs = [model.prepare(one) for one in requests(2, 4, "deletion", "fastv")]
    batch, budgets = pack([job.prompt for job in jobs]), [4, 4]
    selector: Any = make("fastv")
    decoder = FastDecoder(model.model)
    with dropping(model.model.model.language_model, batch, selector, budgets) as drops:
        options: dict[str, Any] = {"max_new_tokens": 2, "clock": Clock(model.device), "deepstack": False}
        decoder.greedy(model.model, batch, [job.ids for job in jobs], drops=drops, **options)
    (state,) = decoder.states.values()
    whole = [len(job.prompt.embeds) for job in jobs]
    short = [len(job.prompt.embeds) - job.prompt.tokens + 4 for job in jobs]
    assert (state.cache.lengths - 1).tolist() == [whole, whole, short, short]  # one token was written on top


@torch.inference_mode()
def test_the_loop_stops_when_all_have_ended() -> None:
    model = fresh("qwen2_5_vl", fast=False)
    decoder = FastDecoder(model.model)
    (job,) = (model.prepare(one) for one in requests(1, None, "resolution"))
    options: dict[str, Any] = {"max_new_tokens": 8, "clock": Clock(model.device), "keep_logits": True}
    free = decoder.greedy(model.model, pack([job.prompt]), [job.ids], **options)
    assert len(free.tokens[0]) > 3
    stop = free.tokens[0][2]
    decoder.ends, decoder._ends = [stop], torch.tensor([stop])
    cut = decoder.greedy(model.model, pack([job.prompt]), [job.ids], **options)
    at = free.tokens[0].index(stop)
    assert (cut.tokens[0], cut.truncated, len(cut.logits)) == (free.tokens[0][:at], [False], at + 1)


@pytest.mark.parametrize("count", [1, 4])
@torch.inference_mode()
def test_images_encoded_in_one_call_have_the_stock_encoders_features(count: int) -> None:
    model = tiny("qwen2_5_vl")
    pages = [picture(*size, seed=i) for i, size in enumerate([(150, 120), (260, 130), (64, 300), (224, 224)][:count])]
    inputs = model.processor.images(images=pages, return_tensors="pt")
    pixels, grid = inputs["pixel_values"], inputs["image_grid_thw"]
    expected = torch.cat(model.model.model.get_image_features(pixels, grid, return_dict=True).pooler_output)
    near: dict[str, Any] = {"atol": 1e-5 * float(expected.abs().max()), "rtol": 1e-5}
    visual = model.model.model.visual
    shapes = [tuple(row) for row in grid.tolist()]
    torch.testing.assert_close(PackedEncoder(visual)(pixels, shapes), expected, **near)
    found = fresh("qwen2_5_vl", fast=True).encode_many(pages, [False] * count)
    torch.testing.assert_close(torch.cat([one.features for one in found]), expected, **near)
    wrong = PackedEncoder(visual)(pixels, [(t, w, h) for t, h, w in shapes])
    assert (wrong - expected).abs().max() > 1e-3, "features that ignore the sizes prove nothing"


def test_an_encoder_of_another_kind_is_left_to_the_other_path() -> None:
    for family in ("qwen2_vl", "qwen3_vl"):
        assert not PackedEncoder.takes(tiny(family).model.model.visual)
    assert PackedEncoder.takes(tiny("qwen2_5_vl").model.model.visual)


def test_layers_of_another_kind_are_left_to_the_other_loop() -> None:
    assert all(FastDecoder.takes(tiny(family).model) for family in FAMILIES)
    model = deepcopy(tiny("qwen2_5_vl").model)
    layer = model.model.language_model.layers[1]
    layer.mlp.act_fn = torch.nn.GELU()
    assert not known(model.model.language_model)
    layer.mlp.act_fn = torch.nn.SiLU()
    assert known(model.model.language_model)
    layer.extra_norm = torch.nn.Identity()
    assert not known(model.model.language_model)


def test_on_a_cpu_the_path_is_the_plain_one_unless_asked() -> None:
    assert replace(tiny("qwen2_5_vl"), fast=None).fast_decoder is None
    assert fresh("qwen2_5_vl", fast=True).fast_decoder is not None


def test_a_model_that_moves_makes_its_fast_path_anew() -> None:
    model = fresh("qwen2_5_vl", fast=True)
    before = model.answer(requests(1, None, "resolution"))[0].text
    decoder, encoder = model.fast_decoder, vars(model)["_encoder"]
    model.forget_fast_path()
    model.cache = EncodedCache()
    assert model.answer(requests(1, None, "resolution"))[0].text == before
    assert model.fast_decoder is not decoder
    assert vars(model)["_encoder"] is not encoder


def test_joined_parameters_are_used_as_they_stand() -> None:
    whole = torch.arange(24.0).view(6, 4)
    parts = [torch.nn.Parameter(part) for part in (whole[:2], whole[2:3], whole[3:])]
    again = joined(parts)
    assert again.data_ptr() == whole.data_ptr()
    assert torch.equal(again, whole)
    apart = joined([parts[0], parts[2]])
    assert torch.equal(apart, torch.cat((whole[:2], whole[3:])))
    assert apart.data_ptr() != whole.data_ptr()


@torch.inference_mode()
def test_widened_prompts_fill_the_bucket_and_only_the_spare_row() -> None:
    model = fresh("qwen2_5_vl", fast=False)
    batch = pack([model.prepare(one).prompt for one in requests(3, 5, "deletion")])
    lengths = batch.mask.sum(1).tolist()
    rotary = model.model.model.language_model.rotary_emb
    some = packed(batch, lengths, 4, lambda positions: rotary(batch.embeds, positions))
    size = tokens_for(sum(lengths))
    wide = widen(some, 4, 256, size)
    assert len(wide.embeds) == size == wide.ends[-1] == sum(wide.lengths)
    assert wide.ends.diff().tolist() == wide.lengths
    assert set(wide.rows[sum(lengths) :].tolist()) == {4}
    assert wide.last[:3].tolist() == [sum(lengths[: i + 1]) - 1 for i in range(3)]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000, 1025, 4096, 31_104])
def test_buckets_hold_what_they_are_for_and_little_more(count: int) -> None:
    assert count <= tokens_for(count) <= max(64, count * 1.125 + 64)
    assert count <= columns_for(count) < count + 256
    assert count <= rows_for(count) < max(2, 2 * count)


def test_attention_on_a_cache_ignores_what_is_behind_its_end() -> None:
    torch.manual_seed(0)
    query, keys, values = torch.randn(2, 4, 8), torch.randn(2, 16, 2, 8), torch.randn(2, 16, 2, 8)
    lengths = torch.tensor([5, 16])
    found = plain_ops.attend_cached(query, keys, values, lengths, 0.3)
    for row, length in enumerate(lengths.tolist()):
        for head in range(4):
            weights = (keys[row, :length, head // 2] @ query[row, head] * 0.3).softmax(0)
            torch.testing.assert_close(found[row, head], weights @ values[row, :length, head // 2])


def test_a_cache_taken_over_stands_at_the_left() -> None:
    cache = StaticCache.make(1, 2, 6, 1, torch.zeros(1), 1)
    valid = torch.tensor([[False, True, False, True], [True, True, True, True]])
    values = torch.arange(8.0).view(2, 1, 4, 1)
    cache.take(0, values, values + 10, valid)
    assert cache.lengths.tolist() == [[2, 4]]
    assert cache.keys[0, 0, :2, 0, 0].tolist() == [1, 3]
    assert cache.values[0, 1, :4, 0, 0].tolist() == [14, 15, 16, 17]


def test_end_tokens_of_the_tiny_models_are_known() -> None:
    assert FastDecoder(tiny("qwen2_5_vl").model).ends == [token_id("<|im_end|>")]
