"""libvips and Pillow shrink an image to the same pixels, nearly, and neither keeps them."""

import resource
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.vision.image.test_resize import psnr

from stakes.data import synthetic
from stakes.vision.image import resample
from stakes.vision.image.modes import Pixels
from stakes.vision.image.resample import GAP

pytest.importorskip("pyvips", reason="libvips has no wheel for this machine", exc_type=ImportError)
side = st.integers(1, 90)


def resampled(image: Image.Image, size: tuple[int, int], box: resample.Box) -> Image.Image:
    made = resample.resampled(image, size, box)
    packed = resample.resampled(resample.as_packed(image), size, box)  # as libvips reads it
    made, packed = (one.image() if isinstance(one, Pixels) else one for one in (made, packed))
    assert made.tobytes() == packed.tobytes()
    return made


def by_pillow(image: Image.Image, size: tuple[int, int], box: resample.Box) -> Image.Image:
    return image.resize(size, Image.Resampling.BICUBIC, box=box, reducing_gap=GAP)


@pytest.mark.parametrize("size", [(112, 140), (420, 560), (588, 756)])
@pytest.mark.parametrize("family", ["forms", "charts"])
def test_libvips_makes_pillows_pixels_nearly(family: str, size: tuple[int, int]) -> None:
    page = synthetic.draw(family, 3, "test").image.convert("RGB").resize((1240, 1754))
    made = resampled(page, size, (0, 0, 1240, 1754))
    assert made.size == size
    assert 44 < psnr(made, page.resize(size, Image.Resampling.BICUBIC)) < 90  # the same, but not by the same code


def test_a_box_of_whole_pixels_is_the_crop() -> None:
    page = synthetic.draw("forms", 1, "test").image.convert("RGB")
    box = (40, 60, 640, 860)
    made, cropped = resampled(page, (300, 400), box), resampled(page.crop(box), (300, 400), (0, 0, 600, 800))
    assert made.tobytes() == cropped.tobytes()


@pytest.mark.parametrize(
    ("mode", "size", "box"),
    [("L", (30, 40), (0, 0, 90, 80)), ("RGB", (91, 40), (0, 0, 90, 80)), ("RGB", (30, 40), (0, 0, 89.5, 80))],
    ids=["gray", "enlarged", "within a pixel"],
)
def test_the_rest_is_pillows(mode: str, size: tuple[int, int], box: resample.Box) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (80, 90, 3), np.uint8)
    image = Image.fromarray(noise).convert(mode)
    assert resampled(image, size, box).tobytes() == by_pillow(image, size, box).tobytes()


@settings(deadline=None, max_examples=60)
@given(st.tuples(side, side, side, side))
def test_every_size_is_met(sides: tuple[int, int, int, int]) -> None:
    width, height, most_width, most_height = sides
    image = Image.new("RGB", (max(width, most_width), max(height, most_height)), (200, 30, 90))
    made = resampled(image, (width, height), (0, 0, *image.size))
    assert made.size == (width, height)
    assert made.getextrema() == ((200, 200), (30, 30), (90, 90))


def test_threads_share_it_and_memory_stays() -> None:
    page = synthetic.draw("forms", 2, "test").image.convert("RGB").resize((1500, 2000))
    wanted = resampled(page, (420, 560), (0, 0, 1500, 2000)).tobytes()

    def again(_: int) -> bytes:
        return resampled(page, (420, 560), (0, 0, 1500, 2000)).tobytes()

    with ThreadPoolExecutor(3) as pool:
        assert set(pool.map(again, range(12))) == {wanted}
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert set(pool.map(again, range(40))) == {wanted}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000  # kB; one image is 9 MB


def test_a_large_image_is_pillows_because_libvips_needs_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    page = synthetic.draw("forms", 4, "test").image.convert("RGB")
    box = (0, 0, *page.size)
    monkeypatch.setattr(resample, "MOST_PIXELS", page.width * page.height)
    assert resampled(page, (300, 400), box).tobytes() != by_pillow(page, (300, 400), box).tobytes()
    monkeypatch.setattr(resample, "MOST_PIXELS", page.width * page.height - 1)
    assert resampled(page, (300, 400), box).tobytes() == by_pillow(page, (300, 400), box).tobytes()


def test_a_part_of_a_large_image_is_pillows_and_that_of_packed_pixels_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """libvips would need a copy of the part beside the whole image; packed pixels it reads where they are."""
    page = synthetic.draw("forms", 4, "test").image.convert("RGB")
    packed, box = resample.as_packed(page), (0, 0, page.width // 2, page.height // 2)
    monkeypatch.setattr(resample, "MOST_PIXELS", page.width * page.height - 1)
    pillow = by_pillow(page, (150, 200), box).tobytes()
    assert resampled(page, (150, 200), box).tobytes() == pillow
    assert isinstance(packed, Pixels)
    made = resample.resampled(packed, (150, 200), box)
    assert isinstance(made, Pixels)
    assert made.image().tobytes() != pillow


def test_without_libvips_pillow_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    page = synthetic.draw("forms", 4, "test").image.convert("RGB")
    box = (0, 0, *page.size)
    monkeypatch.setattr(resample, "pyvips", None)
    assert resampled(page, (300, 400), box).tobytes() == by_pillow(page, (300, 400), box).tobytes()


@pytest.mark.parametrize(("size", "target"), [((7197, 24), (1, 12)), ((27, 5773), (4, 8)), ((2600, 40), (10, 20))])
def test_what_libvips_cannot_shrink_so_far_is_left_to_pillow(size: tuple[int, int], target: tuple[int, int]) -> None:
    page, box = Image.effect_noise(size, 60).convert("RGB"), (0, 0, *size)
    assert resampled(page, target, box).tobytes() == by_pillow(page, target, box).tobytes()
