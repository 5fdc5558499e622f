"""Prompts are made together: what each is, and what making them asks of the accelerator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.models.recorded import fresh
from tests.models.tiny import FAMILIES, picture

from stakes.models import Request, preparing
from stakes.models.prefix import chosen
from stakes.models.preparing import prepare
from stakes.vision.deletion import Prompt, Selection, delete, zero_mask
from stakes.vision.selectors import base
from stakes.vision.selectors.base import Scene
from stakes.vision.selectors.redundancy import Redundancy
from stakes.vision.upload import upload


def assert_same(found: Prompt, expected: Prompt) -> None:
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
    real = chosen

    def noted(selector: Any, selection: Selection) -> Any:
        selections.append(selection)
        return real(selector, selection)

    monkeypatch.setattr(preparing, "chosen", noted)
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
def test_requests_prepared_together_are_what_they_are_alone(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "TOGETHER", 3)
    model = fresh(family, fast=False)
    kinds = [(None, "resolution"), (6, "deletion"), (4, "zero-mask"), (4, "deletion")]
    asked = [
        Request(picture(120 + 30 * (i % 3), 120, i), f"What is {'it ' * i}?", *kinds[i % 4])  # type: ignore[arg-type]
        for i in range(7)
    ]
    for request, job in zip(asked, prepare(model, asked, {}), strict=True):
        alone = model.prepare(request)
        assert_same(job.prompt, alone.prompt)
        assert torch.equal(job.ids, alone.ids)
        assert (job.request, job.native, job.realised, job.prefix) == (request, *_facts(alone))
        assert job.spent["host"] > 0


def _facts(job: Any) -> tuple[Any, ...]:
    return job.native, job.realised, job.prefix


@pytest.mark.parametrize(("selector", "times"), [("redundancy", 0), ("saliency", 0), ("cdpruner", 2)])
def test_a_question_is_embedded_for_selectors_that_look_at_it(
    selector: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = preparing.question_embeds

    def noted(model: Any, question: str) -> Any:
        asked.append(question)
        return real(model, question)

    monkeypatch.setattr(preparing, "question_embeds", noted)
    fresh("qwen2_5_vl", fast=False).answer(
        [Request(picture(150, 120, i), "What?", 5, "deletion", selector) for i in range(2)]
    )
    assert len(asked) == times


@pytest.mark.parametrize("count", [1, 7])
def test_what_goes_to_the_accelerator_and_back_does_not_grow_with_the_requests(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[torch.Tensor] = []
    back: list[torch.Tensor] = []
    on_its_way, rank_ahead = base.on_its_way, Redundancy.rank_ahead

    def sending(values: torch.Tensor, device: torch.device) -> torch.Tensor:
        sent.append(values)
        return upload(values, device)

    def reading(values: torch.Tensor) -> torch.Tensor:
        back.append(values)
        return on_its_way(values)

    def ranking(self: Redundancy, *scenes: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base, "on_its_way", reading)  # later, rankings are on the host, where reading is nothing
            rank_ahead(self, *scenes)

    monkeypatch.setattr(preparing, "upload", sending)
    monkeypatch.setattr(Redundancy, "rank_ahead", ranking)
    model = fresh("qwen2_5_vl", fast=True)
    model.answer([Request(picture(150, 120, i), "What?", 5, "deletion") for i in range(count)])
    assert len(sent) == 2  # the words, and the tokens that stay
    assert len(back) == 2  # the rankings, and the extremes of what was ranked


def test_rankings_made_ahead_hold_no_others_memory() -> None:
    scenes = [Scene(torch.randn(20, 8)) for _ in range(4)]
    Redundancy().rank_ahead(scenes, [5, 20, 5, 5])
    for scene in scenes:
        ranking = scene.rankings[Redundancy()]
        assert ranking.untyped_storage().nbytes() == 8 * len(ranking)
