"""The images of the next call are encoded before the host has read this one's answers: once, with equal answers."""

import threading
from functools import partial
from typing import Any

import pytest
from tests.models.fast.captured import fresh
from tests.models.tiny import picture

from stakes.errors import BadInput, UnreadableImage
from stakes.models import Request
from stakes.models.local import ahead, image_cache
from stakes.models.local.ahead import encode_next
from stakes.models.local.image_cache import OpenedImage
from stakes.models.local.resources import Clock


def encoded(monkeypatch: pytest.MonkeyPatch, model: Any) -> list[int]:
    """How many images each pass of the encoder has."""
    seen: list[int] = []
    real = type(model).encode_many

    def spy(self: Any, images: Any, *more: Any, **named: Any) -> Any:
        seen.append(len(images))
        return real(self, images, *more, **named)

    monkeypatch.setattr(type(model), "encode_many", spy)
    return seen


def four(seed: int) -> list[Request]:
    """About as many images, half of them by deletion."""
    images = [picture(112, 84, seed + n) for n in range(4)]
    by_deletion = [Request(image, "What?", 6, "deletion") for image in images[2:]]
    return [Request(image, "What?", 6) for image in images[:2]] + by_deletion


def wait_until_open(model: Any) -> None:
    for call in list(model.ahead._calls):
        for _, future in call.images.values():
            future.exception()


def test_the_next_call_is_encoded_before_the_host_waits_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, with equal answers, in batches of two; its time is its own call's."""
    model = fresh("qwen2_5_vl", fast=True)
    calls = [four(seed) for seed in (0, 10)]
    plain = [model.answer(call) for call in calls]
    model.forget()
    model.batch_size, seen = 2, encoded(monkeypatch, model)
    model.open_ahead(calls[0])
    model.open_ahead(calls[1])
    wait_until_open(model)
    first = model.answer(calls[0])
    assert seen == [4, 4]
    second = model.answer(calls[1])
    assert seen == [4, 4]
    for found, expected in zip((first, second), plain, strict=True):
        assert [(one.text, one.realised_tokens) for one in found] == [
            (one.text, one.realised_tokens) for one in expected
        ]
        assert all(one.timings["encoder"] > 0 for one in found)
    again = model.answer(calls[1])  # from the cache
    assert max(one.timings["encoder"] for one in again) < 0.2 * min(one.timings["encoder"] for one in second)


def test_a_next_call_that_is_not_open_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model, go_on = fresh("qwen2_5_vl", fast=True), threading.Event()
    this, following = ([Request(picture(150 + n, 120), "What is it?", 12)] for n in (0, 30))
    real = image_cache.open_request

    def opening(request: Request, family: str) -> OpenedImage:
        assert request is this[0] or go_on.wait(20)
        return real(request, family)

    monkeypatch.setattr(ahead, "open_request", opening)
    seen = encoded(monkeypatch, model)
    model.open_ahead(this)
    model.open_ahead(following)
    assert len(model.answer(this)) == 1
    assert seen == [1]
    go_on.set()
    assert len(model.answer(following)) == 1
    assert seen == [1, 1]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Request(b"no picture", "What?"), UnreadableImage),
        (Request(picture(112, 84), "What?", 4, "zero-mask", "blank+redundancy"), BadInput),
    ],
)
def test_what_is_wrong_with_the_next_call_is_not_this_ones_error(request_: Request, error: type[Exception]) -> None:
    model, this = fresh("qwen2_5_vl", fast=True), [Request(picture(150, 120), "What is it?", 12)]
    model.open_ahead(this)
    model.open_ahead([request_])
    wait_until_open(model)
    assert len(model.answer(this)) == 1
    with pytest.raises(error):
        model.answer([request_])


def test_an_encoder_that_fails_on_the_next_call_fails_there(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fresh("qwen2_5_vl", fast=True)
    this, following = ([Request(picture(150 + n, 120), "What is it?", 12)] for n in (0, 30))
    real, passes = type(model).encode_many, list[int]()

    def failing(self: Any, images: Any, *more: Any) -> Any:
        passes.append(len(images))
        if len(passes) > 1:
            raise RuntimeError("no such kernel")
        return real(self, images, *more)

    monkeypatch.setattr(type(model), "encode_many", failing)
    model.open_ahead(this)
    model.open_ahead(following)
    wait_until_open(model)
    assert len(model.answer(this)) == 1
    with pytest.raises(RuntimeError, match="no such kernel"):
        model.answer(following)
    assert passes == [1] * 3


def test_images_of_the_next_call_are_waited_for_until_this_one_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    model, go_on = fresh("qwen2_5_vl", fast=True), threading.Event()
    seen = encoded(monkeypatch, model)
    looks: list[None] = []
    real = image_cache.open_request

    def opening(request: Request, family: str) -> OpenedImage:
        assert go_on.wait(20)
        return real(request, family)

    def over(last: int, opens: int) -> bool:
        looks.append(None)
        if len(looks) == opens:
            go_on.set()
        return len(looks) == last

    monkeypatch.setattr(ahead, "open_request", opening)
    model.open_ahead([Request(picture(150, 120), "What is it?", 12)])
    encode_next(model, Clock(model.device), lambda: over(last=5, opens=0))
    assert len(looks) == 5
    assert seen == []
    encode_next(model, Clock(model.device), lambda: over(last=0, opens=9))
    assert len(looks) >= 9
    assert seen == [1]


def test_a_call_larger_than_the_cache_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fresh("qwen2_5_vl", fast=True)
    this, following = ([Request(picture(112, 84, seed + n), "What?") for n in range(9)] for seed in (0, 20))
    two_at_once = partial(image_cache.chunks_by_area, limit=2 * 112 * 84)
    monkeypatch.setattr(ahead, "chunks_by_area", two_at_once)
    model.answer(this[:1])
    model.cache.limit = 8 * model.cache._bytes
    model.forget()
    seen = encoded(monkeypatch, model)
    plain = [one.text for one in model.answer(following)]
    assert sum(seen) == 9
    model.forget()
    seen.clear()
    model.open_ahead(this[:1])
    model.open_ahead(following)
    wait_until_open(model)
    model.answer(this[:1])
    assert sum(seen) > 1
    assert [one.text for one in model.answer(following)] == plain
    assert sum(seen) == 1 + 9


def test_what_was_encoded_for_a_call_is_in_its_time_and_in_no_other() -> None:
    model = fresh("qwen2_5_vl", fast=True)
    this, following, known = (four(seed) for seed in (0, 10, 20))
    model.answer(known)
    model.open_ahead(this)
    model.open_ahead(following)
    wait_until_open(model)
    model.answer(this)
    assert model.answer([]) == []
    cached = model.answer(known)
    waiting = model.answer(following)
    assert max(one.timings["encoder"] for one in cached) < 0.2 * min(one.timings["encoder"] for one in waiting)


def test_a_call_that_is_never_made_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fresh("qwen2_5_vl", fast=True)
    seen = encoded(monkeypatch, model)
    model.open_ahead(four(10))
    wait_until_open(model)
    for seed in (20, 30):
        model.answer(four(seed))
        model.cache.clear()
    assert seen == [4, 4, 4]


def test_a_call_that_was_forgotten_is_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fresh("qwen2_5_vl", fast=True)
    seen = encoded(monkeypatch, model)
    model.open_ahead(four(10))
    wait_until_open(model)
    model.forget()
    model.answer(four(40))
    assert seen == [4]
