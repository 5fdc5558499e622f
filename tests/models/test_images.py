"""The images of a call are opened side by side, each once, and as they would be one by one."""

import threading
from collections.abc import Hashable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stakes.errors import UnreadableImage
from stakes.models import Request, images
from stakes.models.images import Opened, open_all, open_once


def page(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (280, 224, 3), dtype=np.uint8))


def test_opened_together_they_are_what_they_are_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(images, "WORKERS", 4)
    opening: list[str] = []
    real = images._open

    def noted(request: Request, family: str) -> Opened:
        opening.append(threading.current_thread().name)
        return real(request, family)

    monkeypatch.setattr(images, "_open", noted)
    page(3).save(tmp_path / "page.png")
    pages = [page(0), page(1), page(2), str(tmp_path / "page.png")]
    requests = [Request(one, "What?", budget) for budget in (None, 20, 50) for one in (*pages, pages[0])]
    requests.append(Request(pages[1], "What?", 20, "deletion"))  # by deletion it is the whole page, opened above
    known: dict[Hashable, Opened] = {}
    together = open_all(requests, "qwen2.5-vl", known)
    assert len(opening) == len(known) == 12
    assert threading.main_thread().name not in opening
    alone: dict[Hashable, Opened] = {}
    for request, found in zip(requests, together, strict=True):
        expected = open_once(request, "qwen2.5-vl", alone)
        assert found.key == expected.key
        assert found.image.tobytes() == expected.image.tobytes()
        assert (found.fitted is None) == (request.budget is None or request.mechanism == "deletion")
    assert [one.key for one in open_all(requests, "qwen2.5-vl", known)] == [one.key for one in together]
    assert len(opening) == 24  # twelve together and the same twelve alone: nothing for the second call


def test_an_image_that_cannot_be_opened_is_named_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "WORKERS", 4)
    requests = [Request(page(0), "What?"), Request(b"no picture", "What?"), Request(page(1), "What?")]
    with pytest.raises(UnreadableImage):
        open_all(requests, "qwen2.5-vl", {})
