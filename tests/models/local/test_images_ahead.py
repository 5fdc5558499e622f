"""The images of the next call are opened while this one is answered: the same images, once, within bounds."""

import threading
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.models.fast.captured import fresh
from tests.models.tiny import picture

from stakes.errors import UnreadableImage
from stakes.models import Request
from stakes.models.local import ahead as ahead_module
from stakes.models.local import image_cache
from stakes.models.local.ahead import ImagesAhead
from stakes.models.local.image_cache import OpenedImage, open_all
from stakes.vision.deletion.blank import InkFilter

FAMILY = "qwen2.5-vl"


def page(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (280, 224, 3), dtype=np.uint8))


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which images were opened, one entry each."""
    for thread in threading.enumerate():
        if thread.name.startswith("stakes-ahead"):  # of an earlier test
            thread.join()
    seen: list[str] = []
    real = image_cache.open_request

    def spy(request: Request, family: str) -> OpenedImage:
        seen.append(threading.current_thread().name)
        return real(request, family)

    for module in (image_cache, ahead_module):
        monkeypatch.setattr(module, "open_request", spy)
    return seen


def test_images_opened_ahead_are_those_of_the_call_and_opened_once(openings: list[str]) -> None:
    requests = [Request(page(i), "What?", budget) for i in range(3) for budget in (None, 20)]
    expected = [one.key for one in open_all(requests, FAMILY, {})]
    del openings[:]
    ahead = ImagesAhead()
    ahead.start(requests, FAMILY)
    opened, _ = ahead.take(requests)
    assert [one.key for one in open_all(requests, FAMILY, opened)] == expected
    assert len(openings) == 6
    assert all(name.startswith("stakes-ahead") for name in openings)
    assert ahead.take(requests) == ({}, None)


def test_the_next_call_is_opened_while_this_one_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 'device' of this call goes on only once an image of the next one is open."""
    model, opened = fresh("qwen2_5_vl", fast=True), threading.Event()
    this, following = ([Request(picture(150 + n, 120), "What is it?", 12)] for n in (0, 30))
    real_open, real_encode = image_cache.open_request, type(model).encode_many

    def opening(request: Request, family: str) -> OpenedImage:
        made = real_open(request, family)
        if request is following[0]:
            opened.set()
        return made

    def device(*args: Any) -> Any:
        assert opened.wait(20), "the next image was not opened while the device worked"
        return real_encode(*args)

    for module in (image_cache, ahead_module):
        monkeypatch.setattr(module, "open_request", opening)
    monkeypatch.setattr(type(model), "encode_many", device)
    model.open_ahead(this)
    model.open_ahead(following)
    assert [one.realised_tokens for one in model.answer(this)] == [12]
    assert model.answer(following)[0].realised_tokens <= 12


@pytest.mark.parametrize("fast", [True, False])
def test_answers_are_the_same_and_the_slow_path_uses_it_too(fast: bool, openings: list[str]) -> None:
    model = fresh("qwen2_5_vl", fast=fast)
    requests = [Request(picture(150, 120), "What is it?", 12), Request(picture(90, 200), "Who?", 6, "deletion")]
    plain = model.answer(requests)
    model.forget()
    del openings[:]
    model.open_ahead(requests)
    again = model.answer(requests)
    assert [(one.text, one.realised_tokens, one.logprobs) for one in again] == [
        (one.text, one.realised_tokens, one.logprobs) for one in plain
    ]
    assert all(name.startswith("stakes-ahead") for name in openings)


def test_an_error_is_raised_by_the_call_that_has_the_image() -> None:
    ahead = ImagesAhead()
    good, bad = [Request(page(0), "What?")], [Request(page(1), "What?"), Request(b"no picture", "What?")]
    ahead.start(good, FAMILY)
    ahead.start(bad, FAMILY)
    assert len(ahead.take(good)[0]) == 1
    with pytest.raises(UnreadableImage):
        ahead.take(bad)
    assert len(ahead.take(good)[0]) == 0


def test_two_calls_are_held_at_most_and_bytes_are_bounded() -> None:
    ahead = ImagesAhead()
    calls = [[Request(page(i), "What?")] for i in range(4)]
    for call in calls:
        ahead.start(call, FAMILY)
    assert [len(ahead.take(call)[0]) for call in calls] == [0, 0, 1, 1]
    small = ImagesAhead(limit=0)
    small.start(calls[0], FAMILY)
    assert small.take(calls[0]) == ({}, None)  # left to the call


def test_an_image_of_two_calls_is_opened_once(openings: list[str]) -> None:
    """Deletion asks about one image at budget after budget."""
    image, ahead = page(0), ImagesAhead()
    calls = [[Request(image, "What?", budget, "deletion")] for budget in (10, 20)]
    for call in calls:
        ahead.start(call, FAMILY)
    assert [len(ahead.take(call)[0]) for call in calls] == [1, 1]
    assert len(openings) == 1


def test_the_next_call_finds_blank_tokens_looked_for() -> None:
    """Reading the pixels is the host's work too: the call itself looks at none. Levels serve other budgets."""
    model = fresh("qwen2_5_vl", fast=True)
    requests = [Request(picture(112, 84, n), "What?", 4, "deletion", "blank+redundancy") for n in range(2)]
    plain = model.answer(requests)
    model.forget()
    model.open_ahead(requests)
    opened, _ = model.ahead.take(requests)
    pages = [one.pixels for one in opened.values() if one.pixels is not None]
    ink = InkFilter(16, 4)
    assert [page.is_known(28, ink) for page in pages] == [True] * 2
    other = InkFilter(16, 5)
    assert not pages[0].is_known(28, other)
    object.__setattr__(pages[0], "values", np.zeros((84, 112, 3), dtype=np.uint8))  # whose tokens are all blank
    found = pages[0].keep(28, other)
    assert found is not None
    assert found.ink > 0
    model.open_ahead(requests)
    assert [(one.text, one.logprobs) for one in model.answer(requests)] == [(one.text, one.logprobs) for one in plain]
