"""Blank tokens dropped before the encoder: the masked encoder, exact counts, kept positions, nothing dropped by all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image
from tests.models.fast.captured import CAPTURABLE, FakeGraphs
from tests.models.tiny import blank, picture, tiny
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from stakes.errors import BadInput
from stakes.models import Request
from stakes.models.fast.vision_packed import PackedEncoder
from stakes.models.local.image_cache import EncodedCache
from stakes.models.local.qwen_vl import QwenVL
from stakes.vision.deletion.blank import InkFilter, Kept

QWEN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
INK = (1, 2, 3, 8, 9, 14, 21, 22, 28, 29, 33)  # of 5 x 7 tokens
NATIVE = 35


def page(family: str, seed: int = 0, ink: tuple[int, ...] = INK) -> Image.Image:
    """White paper of 5 x 7 tokens with noise in some of them."""
    side = 2 * tiny(family).model.config.vision_config.patch_size
    made = blank(5 * side, 7 * side)
    for token in ink:
        at = (token % 5 * side, token // 5 * side)
        made.paste(picture(side, side, seed=100 * seed + token), at)
    return made


def reader(family: str, attention: str = "sdpa", **more: Any) -> Any:
    return replace(tiny(family, attention), cache=EncodedCache(), **more)


@contextmanager
def masked_keys(visual: Any, attention: str, hidden: Tensor) -> Iterator[None]:
    """The stock encoder with the keys of some patches masked in every attention; ``hidden``: [P] in its own order."""
    module = type(visual.blocks[0].attn).__module__
    eager = vars(__import__(module, fromlist=["x"]))["eager_attention_forward"]
    stock = ALL_ATTENTION_FUNCTIONS.get_interface(attention, eager)
    at = 0

    def masked(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **more: Any) -> Any:
        nonlocal at
        length = key.shape[2]
        unseen = hidden[at : at + length].expand(length, -1) & ~torch.eye(length, dtype=torch.bool)
        at = (at + length) % len(hidden)  # a block attends in one call, or window by window
        mask = torch.zeros(1, 1, length, length, dtype=query.dtype).masked_fill(unseen, -1e30)
        return stock(module, query, key, value, attention_mask=mask, **more)

    ALL_ATTENTION_FUNCTIONS.register("masked-keys", masked)
    visual.config._attn_implementation = "masked-keys"
    try:
        yield
    finally:
        visual.config._attn_implementation = attention


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", QWEN)
@torch.inference_mode()
def test_dropping_equals_masking_the_keys_of_the_dropped_tokens_in_the_stock_encoder(
    family: str, attention: str
) -> None:
    model = replace(reader(family, attention), model=deepcopy(tiny(family, attention).model).double())
    image = page(family)
    found = model.encode(image, exact=False, attention=False, ink=InkFilter(8, 14))
    kept = found.indices
    assert len(found.features) == 14
    assert set(INK) < set(kept.tolist())
    inputs = model.processor.images(images=[image], return_tensors="pt")
    visual, grid = model.model.model.visual, inputs["image_grid_thw"]
    hidden = torch.ones(NATIVE, dtype=torch.bool)
    hidden[kept] = False
    order = torch.arange(NATIVE)
    if family == "qwen2_5_vl":
        from transformers.vision_utils import get_vision_window_index

        order = get_vision_window_index(grid, 2, visual.window_size, visual.patch_size)[0]
    with masked_keys(visual, attention, hidden[order].repeat_interleave(4)):
        out = model.model.model.get_image_features(inputs["pixel_values"].double(), grid, return_dict=True)
    expected = out.pooler_output[0]
    assert_near(found.features, expected[kept])
    levels = getattr(out, "deepstack_features", None) or []
    assert len(levels) == len(found.deepstack)
    for one, (other,) in zip(found.deepstack, levels, strict=True):
        assert_near(one, other[kept])
    whole = model.encode(image, exact=False, attention=False).features
    assert float((whole[kept] - found.features).abs().max()) > 1e-3, "blank paper that nothing looks at proves nothing"


def assert_near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-6 * float(expected.abs().max()), rtol=1e-6)


@pytest.mark.parametrize("family", QWEN)
@torch.inference_mode()
def test_naming_every_token_gives_what_naming_none_gives(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features, deepstack features, attention received and keys in reading order."""
    model = reader(family)
    image = page(family)
    whole = model.encode(image, exact=False, attention=True)
    monkeypatch.setattr(InkFilter, "keep", lambda *_: Kept(torch.arange(NATIVE), 3))
    found = model.encode(image, exact=False, attention=True, ink=InkFilter(8, 3))
    pairs = [(found.features, whole.features), (found.received, whole.received), (found.keys, whole.keys)]
    for one, other in [*pairs, *zip(found.deepstack, whole.deepstack, strict=True)]:
        torch.testing.assert_close(one, other, atol=1e-5 * float(other.abs().max()), rtol=1e-5)


@torch.inference_mode()
def test_the_packed_encoder_drops_the_same_tokens_of_several_images() -> None:
    slow, fast = reader("qwen2_5_vl"), reader("qwen2_5_vl", fast=True)
    pages = [
        page("qwen2_5_vl", seed=1),
        page("qwen2_5_vl", seed=2, ink=(0, 17, 34)),
        picture(150, 120),
        page("qwen2_5_vl"),
    ]
    filters = [InkFilter(8, 4), InkFilter(8, 9), InkFilter(8, 4), None]
    found = fast.encode_many(pages, [False] * 4, ink=filters)
    assert [len(one.features) for one in found] == [len(INK), 9, 20, NATIVE]
    for image, ink, one in zip(pages, filters, found, strict=True):
        expected = slow.encode(image, exact=False, attention=False, ink=ink)
        assert (one.indices is None) == (expected.indices is None)
        if expected.indices is not None:
            assert one.indices.tolist() == expected.indices.tolist()
        torch.testing.assert_close(
            one.features, expected.features, atol=1e-5 * float(expected.features.abs().max()), rtol=1e-5
        )


@torch.inference_mode()
def test_a_pass_over_some_tokens_is_not_captured() -> None:
    model = tiny("qwen2_5_vl")
    encoder = PackedEncoder(model.model.model.visual, CAPTURABLE)
    graphs: Any = FakeGraphs()
    encoder.graphs = graphs
    graphs.device = torch.device("cpu")
    inputs = model.processor.images(images=[page("qwen2_5_vl")], return_tensors="pt")
    shape = [tuple(row) for row in inputs["image_grid_thw"].tolist()]
    for kept in ([1, 2, 3], [30, 31]):
        assert len(encoder(inputs["pixel_values"], shape, [torch.tensor(kept)])) == len(kept)
    assert not graphs.works
    encoder(inputs["pixel_values"], shape)
    assert len(graphs.works) == 1


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("family", QWEN)
def test_counts_are_exact_and_positions_are_those_of_the_whole_image(family: str, fast: bool) -> None:
    model = reader(family, fast=fast)
    whole = model.prepare(Request(page(family), "What is it?"))
    for budget in (1, 4, len(INK), 12, 20, NATIVE):
        request = Request(page(family), "What is it?", budget, "deletion", "blank:tolerance=8+redundancy")
        (answer,) = model.answer([request])
        assert (answer.realised_tokens, answer.native_tokens) == (budget, NATIVE)
        assert answer.encoder_tokens == max(budget, len(INK))
        prompt = model.prepare(request).prompt
        part = whole.prompt.positions[:, whole.prompt.visual]
        own = prompt.positions[:, prompt.visual]
        columns = [int((part == one[:, None]).all(0).nonzero()[0]) for one in own.T]
        assert columns == sorted(set(columns))
        assert set(columns) <= set(INK) or budget > len(INK)
        assert set(columns) >= set(INK) or budget < len(INK)
        assert prompt.next_position == whole.prompt.next_position


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("family", QWEN)
def test_a_budget_of_all_tokens_and_a_page_without_blank_ones_change_no_bit(family: str, fast: bool) -> None:
    model, other = reader(family, fast=fast), reader(family, fast=fast)
    side = 2 * model.model.config.vision_config.patch_size
    full = picture(5 * side, 7 * side)
    for image, budget in ((page(family), NATIVE), (full, NATIVE), (full, 9)):
        first, second = (
            Request(image, "Who?", budget, "deletion", name) for name in ("blank+redundancy", "redundancy")
        )
        answers = [one.answer([request])[0] for one, request in ((model, first), (other, second))]
        assert answers[0].logprobs == answers[1].logprobs
        assert answers[0].encoder_tokens == NATIVE
        found, expected = model.prepare(first).prompt, other.prepare(second).prompt
        assert torch.equal(found.embeds, expected.embeds)
        assert torch.equal(found.positions, expected.positions)


@pytest.mark.parametrize("fast", [False, True])
def test_sets_of_one_image_do_not_share_a_place_in_the_cache(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    image, name = page("qwen2_5_vl"), "blank:tolerance=8+redundancy"
    specs = [(4, name), (20, name), (4, "redundancy"), (9, name), (20, "redundancy"), (26, name), (20, name)]
    specs += [(NATIVE, name), (20, "blank:tolerance=0+redundancy")]
    requests = [Request(image, "How much?", budget, "deletion", one) for budget, one in specs]
    alone = [reader("qwen2_5_vl", fast=fast).prepare(request) for request in requests]
    model = reader("qwen2_5_vl", fast=fast)
    encoded: list[Any] = []
    method = "pack_patches" if fast else "_pixels"
    stock = getattr(QwenVL, method)

    def spy(*args: Any, **more: Any) -> Any:
        encoded.append(args[1])
        return stock(*args, **more)

    monkeypatch.setattr(QwenVL, method, spy)
    for request, expected in zip(requests, alone, strict=True):
        job = model.prepare(request)
        assert job.encoder_tokens == expected.encoder_tokens
        assert torch.equal(job.prompt.embeds, expected.prompt.embeds)
        assert torch.equal(job.prompt.positions, expected.prompt.positions)
    assert len(encoded) == 5, "ink alone, 20 and 26 tokens, the whole image, and 20 by another tolerance"
    together = reader("qwen2_5_vl", fast=fast).answer(requests)
    singly = [model.answer([request])[0] for request in requests]
    assert [(one.text, one.encoder_tokens) for one in together] == [(one.text, one.encoder_tokens) for one in singly]


def test_other_selectors_choose_among_what_is_not_blank() -> None:
    model = reader("qwen2_5_vl")
    for name in ("random", "fastervlm", "visionzip", "cdpruner", "mmtok"):
        (answer,) = model.answer([Request(page("qwen2_5_vl"), "Where?", 6, "deletion", f"blank+{name}")])
        assert (answer.realised_tokens, answer.encoder_tokens) == (6, len(INK))


def test_each_image_of_a_prompt_drops_its_own_blank_tokens() -> None:
    model = reader("qwen3_vl")
    images = (page("qwen3_vl"), page("qwen3_vl", seed=3, ink=(7, 8)))
    (answer,) = model.answer([Request(images, "Both?", None, "deletion", "blank+redundancy", budgets=(5, 6))])
    assert answer.image_tokens == (5, 6)
    assert answer.encoder_tokens == len(INK) + 6


@pytest.mark.parametrize(
    ("family", "selector", "mechanism", "words"),
    [
        ("llava_onevision", "blank+redundancy", "deletion", "not of a llava_onevision"),
        ("qwen2_5_vl", "blank+redundancy", "zero-mask", "use deletion"),
        ("qwen2_5_vl", "blank+fastv", "deletion", "'fastv' drops inside"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(family: str, selector: str, mechanism: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        reader(family).answer([Request(picture(84, 84), "Why?", 3, mechanism, selector)])


def test_a_transformers_without_such_arguments_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stakes.models.local.qwen_vl.accepts_kept_tokens", lambda _: False)
    with pytest.raises(BadInput, match="install a newer one"):
        reader("qwen2_vl").answer([Request(picture(84, 84), "Why?", 3, "deletion", "blank+redundancy")])
