"""The tags of a TIFF are used: how many bits, whether 0 is white, how many pages."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.vision.image.image_files import encode, scene, tiff

from stakes.vision.image.decode import Picture, open_image

RAMP = np.tile(np.linspace(0, 1, 16), (4, 1))


def page_count(source: bytes | Path) -> int:
    return Picture(source, header_only=True).pages()


@pytest.mark.parametrize("photometric", [1, 0])
@pytest.mark.parametrize("bits", [1, 2, 4, 8, 12, 16])
def test_black_is_black_at_every_depth_and_mirrored_where_0_is_white(bits: int, photometric: int) -> None:
    if (bits, photometric) == (12, 0):
        pytest.skip("Pillow does not read it")
    values = np.round(RAMP * (2**bits - 1)).astype(np.uint32)
    grey = np.asarray(open_image(tiff(values, bits, photometric)))[..., 0].astype(int)
    grey = grey if photometric else 255 - grey
    step = 255 / (2**bits - 1)  # the brightest of 2 or 4 bits is short of white in Pillow by less than a step
    assert np.abs(grey - RAMP * 255).max() <= max(1.0, step)
    assert grey[0, 0] == 0
    assert (np.diff(grey[0]) >= 0).all()


@pytest.mark.parametrize(
    ("values", "bits", "photometric", "kind", "expected"),
    [
        ([0, 2**31, 2**32 - 1], 32, 1, 1, [0, 128, 255]),  # without a sign: they wrapped to 0, -2^31, -1
        ([0, 32768, 65535], 32, 1, 1, [0, 128, 255]),
        ([0, 2**30, 2**31 - 1], 32, 1, 2, [0, 128, 255]),
        ([-(2**31), 0, 2**31 - 1], 32, 1, 2, [0, 128, 255]),
        ([0.0, 0.5, 1.0], 32, 1, 3, [0, 128, 255]),
        ([0.0, 0.5, 1.0], 32, 0, 3, [255, 127, 0]),
    ],
)
def test_deep_values_keep_their_sign_and_their_white(
    values: list[float], bits: int, photometric: int, kind: int, expected: list[int]
) -> None:
    image = open_image(tiff(np.array([values]), bits, photometric, kind))
    assert np.asarray(image)[0, :, 0].tolist() == expected


def test_a_deep_tiff_opened_by_pillow_reads_the_same() -> None:
    data = tiff(np.round(RAMP * 4095).astype(np.uint16), 12)
    assert open_image(Image.open(io.BytesIO(data))).tobytes() == open_image(data).tobytes()


def test_pages_of_a_tiff_are_counted_and_the_first_is_read(tmp_path: Path) -> None:
    pages = [Image.new("L", (30, 20), grey) for grey in (10, 100, 200)]
    data = encode(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    (tmp_path / "scan.tiff").write_bytes(data)
    assert page_count(data) == page_count(tmp_path / "scan.tiff") == 3
    picture = Picture(data)
    assert picture.pages() == 3
    assert picture.pixels()[0].getpixel((0, 0)) == 10, "counting must leave the first page open"


def test_a_preview_is_not_a_page() -> None:
    small = scene(15, 10)
    small.encoderinfo = {"tiffinfo": {254: 1}}  # NewSubfileType: a smaller copy of another image
    data = encode(scene(), "TIFF", save_all=True, append_images=[small])
    assert getattr(Image.open(io.BytesIO(data)), "n_frames", 1) == 2
    assert page_count(data) == 1


@pytest.mark.parametrize("format_", ["GIF", "WEBP", "PNG"])
def test_frames_of_an_animation_are_not_pages(format_: str) -> None:
    frames = [Image.new("RGB", (30, 20), colour) for colour in ("red", "blue")]
    assert page_count(encode(frames[0], format_, save_all=True, append_images=frames[1:])) == 1


def test_a_damaged_second_page_leaves_the_first_readable() -> None:
    data = encode(scene(), "TIFF", save_all=True, append_images=[scene()])
    torn = data[: len(data) // 2 + 20]  # in the middle of the second page's tags
    assert open_image(torn).size == (60, 40)
    assert page_count(torn) == 1
