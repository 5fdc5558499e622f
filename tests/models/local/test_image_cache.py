"""The images of a call are opened in threads, each once, with the same result as one by one."""

import hashlib
import io
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.models.fast.captured import fresh

from stakes.errors import UnreadableImage
from stakes.models import Request
from stakes.models.local import image_cache as images
from stakes.models.local.ahead import encode_ahead
from stakes.models.local.image_cache import Encoded, EncodedCache, OpenedImage, OpenedImages, open_all, open_once
from stakes.models.local.resources import Clock


def page(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (280, 224, 3), dtype=np.uint8))


def test_images_opened_together_equal_those_opened_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(images, "WORKERS", 4)
    opening: list[str] = []
    real = images.open_request

    def spy(request: Request, family: str) -> OpenedImage:
        opening.append(threading.current_thread().name)
        return real(request, family)

    monkeypatch.setattr(images, "open_request", spy)
    page(3).save(tmp_path / "page.png")
    pages = [page(0), page(1), page(2), str(tmp_path / "page.png")]
    requests = [Request(one, "What?", budget) for budget in (None, 20, 50) for one in (*pages, pages[0])]
    requests.append(Request(pages[1], "What?", 20, "deletion"))  # by deletion it is the whole page, opened above
    known: OpenedImages = {}
    together = open_all(requests, "qwen2.5-vl", known)
    assert len(opening) == len(known) == 12
    assert threading.main_thread().name not in opening
    alone: OpenedImages = {}
    for request, found in zip(requests, together, strict=True):
        expected = open_once(request, "qwen2.5-vl", alone)
        assert found.key == expected.key
        assert found.image.tobytes() == expected.image.tobytes()
        assert (found.fitted is None) == (request.budget is None or request.mechanism == "deletion")
    assert [one.key for one in open_all(requests, "qwen2.5-vl", known)] == [one.key for one in together]
    assert len(opening) == 24  # twelve together and the same twelve alone: nothing for the second call


def test_an_image_that_cannot_be_opened_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "WORKERS", 4)
    requests = [Request(page(0), "What?"), Request(b"no picture", "What?"), Request(page(1), "What?")]
    with pytest.raises(UnreadableImage):
        open_all(requests, "qwen2.5-vl", {})


@pytest.mark.parametrize("workers", [1, 4])
def test_pixels_are_read_once_for_the_key_and_the_encoder(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "WORKERS", workers)
    known: OpenedImages = {}
    for found in open_all(
        [Request(page(i), "What?", budget) for i in (0, 1) for budget in (None, 20)], "qwen2.5-vl", known
    ):
        assert found.pixels is not None
        assert np.array_equal(found.pixels.values, np.asarray(found.image))
        person = f"{found.image.width}x{found.image.height}".encode()
        name = hashlib.blake2b(found.image.tobytes(), digest_size=16, person=person).hexdigest()
        assert found.key[:2] == (name, found.image.size)


def test_no_second_copy_of_the_pixels_is_kept() -> None:
    model = fresh("qwen2_5_vl", fast=True)
    opened: OpenedImages = {}
    requests = [Request(page(i), "What?", 5, "deletion") for i in (0, 1)]
    encode_ahead(model, requests, opened, Clock(model.device))
    assert [one.pixels for one in opened.values()] == [None, None]
    assert open_once(Request(page(2), "What?"), "qwen2.5-vl", opened).pixels is None


def test_a_file_that_libvips_fits_holds_its_bytes_once() -> None:
    out, opened = io.BytesIO(), OpenedImages()
    page(1).resize((480, 320)).save(out, "PNG")
    (found,) = open_all([Request(out.getvalue(), "What?", 20)], "qwen2.5-vl", opened)
    assert found.fitted is not None
    assert found.fitted.pixels is found.fitted.image is found.image
    assert found.pixels is not None
    assert np.array_equal(found.pixels.values, np.asarray(found.image))


def test_the_cache_counts_its_bytes_without_reading_all_images_again() -> None:
    """A call of 32 images added up the bytes of all that were cached, 32 times."""

    def image(tokens: int) -> Encoded:
        return Encoded(torch.zeros(tokens, 4))

    cache, most, replaced = EncodedCache(limit=16 * 30), 30, 0
    for key, tokens in zip("abacbdeabb", [10, 15, 5, 5, 20, 1, 40, 10, 10, 5], strict=True):
        replaced += key in cache._images
        cache.put(key, image(tokens))
        kept = list(cache._images.values())
        assert cache._bytes == sum(one.bytes for one in kept)
        assert len(kept) == 1 or cache._bytes <= 16 * most
    assert replaced == 3
    cache.clear()
    assert (cache._bytes, cache.get(1, attention=False)) == (0, None)
