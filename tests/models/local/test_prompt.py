"""Prompts are built together: what each is, and how often that copies to and from the accelerator."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from tests.models.fast.captured import fresh
from tests.models.tiny import FAMILIES, picture

from stakes.errors import BadInput
from stakes.models import Request
from stakes.models.local import ahead as ahead_module
from stakes.models.local import prompt as prompt_module
from stakes.models.local.image_cache import chunks_by_area, open_all
from stakes.models.local.prefix import selection_key
from stakes.models.local.prompt import prepare
from stakes.vision.deletion.exact import PromptTensors, Selection, delete, upload, zero_mask
from stakes.vision.selectors import base
from stakes.vision.selectors.base import Scene, Selector
from stakes.vision.selectors.redundancy import Redundancy


def assert_same(found: PromptTensors, expected: PromptTensors) -> None:
    for name in ("embeds", "positions", "visual"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert found.next_position == expected.next_position
    assert len(found.deepstack) == len(expected.deepstack)
    assert all(torch.equal(one, two) for one, two in zip(found.deepstack, expected.deepstack, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("selector", ["redundancy", "random", "cdpruner", "visionzip"])
@torch.inference_mode()
def test_a_prompt_is_the_whole_one_without_what_was_deleted(
    family: str, selector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fresh(family, fast=False)
    selections: list[Selection] = []
    real = selection_key

    def spy(selector: Any, selection: Selection) -> Any:
        selections.append(selection)
        return real(selector, selection)

    monkeypatch.setattr(prompt_module, "selection_key", spy)
    page = picture(150, 120, 3)
    whole = model.prepare(Request(page, "What is it?")).prompt
    found = model.prepare(Request(page, "What is it?", 5, "deletion", selector)).prompt
    (selection,) = selections
    assert (selection.merge is not None) == (selector == "visionzip")
    assert_same(found, delete(whole, selection))
    if selection.merge is None:
        masked = model.prepare(Request(page, "What is it?", 5, "zero-mask", selector)).prompt
        assert_same(masked, zero_mask(whole, selections[-1]))


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_requests_prepared_together_equal_those_prepared_alone(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_module, "CHUNK", 3)
    model = fresh(family, fast=False)
    kinds = [(None, "resolution"), (6, "deletion"), (4, "zero-mask"), (4, "deletion")]
    requests = [
        Request(picture(120 + 30 * (i % 3), 120, i), f"What is {'it ' * i}?", *kinds[i % 4])  # type: ignore[arg-type]
        for i in range(7)
    ]
    for request, job in zip(requests, prepare(model, requests, {}), strict=True):
        alone = model.prepare(request)
        assert_same(job.prompt, alone.prompt)
        assert torch.equal(job.ids, alone.ids)
        assert (job.request, job.native, job.realised, job.prefix) == (request, *_facts(alone))
        assert job.spent["encoder"] > 0


def _facts(job: Any) -> tuple[Any, ...]:
    return job.native, job.realised, job.prefix


@pytest.mark.parametrize(("selector", "times"), [("redundancy", 0), ("saliency", 0), ("cdpruner", 2)])
def test_a_question_is_embedded_for_selectors_that_look_at_it(
    selector: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[str] = []
    real = prompt_module.question_embeds

    def spy(model: Any, question: str) -> Any:
        embedded.append(question)
        return real(model, question)

    monkeypatch.setattr(prompt_module, "question_embeds", spy)
    fresh("qwen2_5_vl", fast=False).answer(
        [Request(picture(150, 120, i), "What?", 5, "deletion", selector) for i in range(2)]
    )
    assert len(embedded) == times


@pytest.mark.parametrize("count", [1, 7])
def test_the_number_of_copies_does_not_grow_with_the_requests(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[torch.Tensor] = []
    back: list[torch.Tensor] = []
    copy_to_host, rank_ahead = base.copy_to_host, Redundancy.rank_ahead

    def sending(values: torch.Tensor, device: torch.device) -> torch.Tensor:
        sent.append(values)
        return upload(values, device)

    def reading(values: torch.Tensor) -> torch.Tensor:
        back.append(values)
        return copy_to_host(values)

    def ranking(self: Redundancy, *scenes: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base, "copy_to_host", reading)  # later, rankings are on the host, where reading is nothing
            rank_ahead(self, *scenes)

    monkeypatch.setattr(prompt_module, "upload", sending)
    monkeypatch.setattr(Redundancy, "rank_ahead", ranking)
    model = fresh("qwen2_5_vl", fast=True)
    model.answer([Request(picture(150, 120, i), "What?", 5, "deletion") for i in range(count)])
    assert len(sent) == 2  # the words, and the tokens that stay
    assert len(back) == 2  # the rankings, and the extremes of what was ranked


def test_rankings_made_ahead_hold_no_other_memory() -> None:
    scenes = [Scene(torch.randn(20, 8)) for _ in range(4)]
    Redundancy().rank_ahead(scenes, [5, 20, 5, 5])
    for scene in scenes:
        ranking = scene.rankings[Redundancy()]
        assert ranking.untyped_storage().nbytes() == 8 * len(ranking)


@dataclass(frozen=True)
class HiddenMerge(Selector):
    """Merges without declaring it."""

    name: ClassVar[str] = "hidden-merge"

    def choose(self, scene: Scene, budget: int) -> Selection:
        return Selection(torch.arange(budget), torch.eye(len(scene.features))[:budget])


@dataclass(frozen=True)
class Narrow(Selector):
    """Returns a dtype that no index may have."""

    name: ClassVar[str] = "narrow"

    def rank(self, scene: Scene, count: int) -> torch.Tensor:
        return torch.arange(count).flip(0).to(torch.uint8)


def test_results_of_custom_selectors_are_checked() -> None:
    model, page = fresh("qwen2_5_vl", fast=False), picture(150, 120, 1)
    with pytest.raises(BadInput, match="'hidden-merge' merged some: use deletion"):
        model.answer([Request(page, "What?", 5, "zero-mask", HiddenMerge())])
    (answer,) = model.answer([Request(page, "What?", 5, "deletion", Narrow())])
    assert answer.realised_tokens == 5


def test_pages_are_encoded_once_however_small_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large pages of the first requests must not push out small ones that were encoded ahead."""
    model = fresh("qwen2_5_vl", fast=True)
    requests = [Request(picture(224, 168, i), "What?") for i in range(6)]
    requests += [Request(picture(112, 84, 100 + i), "What?") for i in range(12)]
    large = model.encode(requests[0].image, exact=False, attention=False)
    model.cache.limit = int(2.5 * large.bytes)
    seen: list[Any] = []
    real = type(model).encode_many

    def spy(self: Any, images: Any, *more: Any, **named: Any) -> Any:
        seen.extend(images)
        return real(self, images, *more, **named)

    monkeypatch.setattr(type(model), "encode_many", spy)
    monkeypatch.setattr(ahead_module, "chunks_by_area", lambda images: chunks_by_area(images, 2 * 150 * 120))
    model.answer(requests)
    assert len(seen) == len(requests)


def test_an_encoded_image_holds_no_other_memory() -> None:
    model = fresh("qwen2_5_vl", fast=True)
    found = model.encode_many([picture(112, 84, i) for i in range(5)], [False] * 5)
    assert all(one.features.untyped_storage().nbytes() == one.bytes for one in found)


def test_pixels_are_freed_before_tokens_are_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Any]] = []
    lived: list[int] = []
    rank = ahead_module._rank_ahead

    def opening(*some: Any) -> Any:
        found = open_all(*some)
        alive.extend(weakref.ref(one.pixels) for one in found)
        return found

    def ranking(*some: Any) -> None:
        lived.append(sum(one() is not None for one in alive))
        rank(*some)

    monkeypatch.setattr(ahead_module, "open_all", opening)
    monkeypatch.setattr(ahead_module, "_rank_ahead", ranking)
    fresh("qwen2_5_vl", fast=True).answer([Request(picture(112, 84, i), "What?", 5, "deletion") for i in range(3)])
    assert (len(alive), lived) == (3, [0])


class OtherDevice(torch.Tensor):
    """Records how it is copied; stands for a tensor of a device that is neither the host nor CUDA."""

    copied: ClassVar[list[Any]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.to:
            cls.copied.append((kwargs or {}).get("non_blocking"))
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


def test_only_cuda_copies_are_asynchronous(monkeypatch: pytest.MonkeyPatch) -> None:
    """``wait_for`` waits for no other; memory that is not pinned may be freed before another device has read it."""
    monkeypatch.setattr(OtherDevice, "copied", [])
    base.copy_to_host(torch.arange(3).as_subclass(OtherDevice))
    real = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **kind: real(*size, **kind).as_subclass(OtherDevice))
    assert OtherDevice.copied == [False]
