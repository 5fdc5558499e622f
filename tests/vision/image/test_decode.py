"""An image of any format is read upright, as RGB on white, and Pillow's settings do not change."""

import io
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageFile
from tests.vision.image.image_files import chunk, encode, png, same, scene

from stakes.errors import UnreadableImage
from stakes.vision.image import MAX_PIXELS
from stakes.vision.image.decode import FORMATS, open_image, probe

WHITE, RED = (255, 255, 255), (255, 0, 0)


@pytest.mark.parametrize("format_", FORMATS)
def test_each_format_is_read_from_bytes_path_and_pillow(format_: str, tmp_path: Path) -> None:
    data = encode(scene(), format_)
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    for source in (data, path, str(path), Image.open(io.BytesIO(data))):
        image = open_image(source)
        assert (image.mode, image.size) == ("RGB", (60, 40))
        assert probe(source) == (format_, 60, 40)
        assert abs(np.asarray(image).astype(int) - np.asarray(scene())).mean() < 12


def test_the_extension_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    path.write_bytes(encode(scene(), "PNG"))
    assert probe(path) == ("PNG", 60, 40)
    assert same(open_image(path), scene())


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1)])
def test_thin_and_tiny_images_are_images(size: tuple[int, int]) -> None:
    assert open_image(encode(Image.new("RGB", size, RED), "PNG")).size == size
    assert probe(Image.new("RGB", size)) == ("", *size)


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(format_: str, orientation: int) -> None:
    """The stored image is the upright one with the orientation undone, so every case must come out the same."""
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Image.Transpose
    stored = scene(64, 48).transpose(Image.Transpose(undo[orientation])) if orientation > 1 else scene(64, 48)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    options: dict[str, dict[str, Any]] = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}}
    data = encode(stored, format_, exif=exif, **options.get(format_, {}))
    assert probe(data) == (format_, 64, 48)
    image = open_image(data)
    assert abs(np.asarray(image).astype(int) - np.asarray(scene(64, 48))).mean() < 2
    assert same(open_image(image), image), "applied twice"
    assert same(open_image(Image.open(io.BytesIO(data))), image)


def test_orientation_after_the_pixels_of_a_png_is_applied() -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    data = encode(scene(), "PNG")
    late = data[:-12] + chunk(b"eXIf", exif.tobytes()[6:]) + data[-12:]
    assert open_image(late).size == (40, 60)


def test_damaged_exif_leaves_the_image_as_stored() -> None:
    data = encode(scene(), "JPEG", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff" + b"\xff" * 40)
    assert open_image(data).size == (60, 40)


def _ramp16() -> np.ndarray[Any, Any]:
    return np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)


MODES: list[tuple[str, Callable[[], bytes], tuple[int, int, int]]] = [
    ("cmyk", lambda: encode(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=100), (255, 0, 0)),
    ("1-bit", lambda: encode(Image.new("1", (8, 8), 1), "PNG"), WHITE),
    ("grey", lambda: encode(Image.new("L", (8, 8), 77), "PNG"), (77, 77, 77)),
    ("palette", lambda: encode(Image.new("RGB", (8, 8), RED).quantize(4), "PNG"), RED),
    ("palette, clear", lambda: encode(Image.new("P", (8, 8), 0), "PNG", transparency=0), WHITE),
    ("palette, half clear", lambda: encode(Image.new("P", (8, 8), 0), "PNG", transparency=b"\x80"), (127, 127, 127)),
    ("gif, clear", lambda: encode(Image.new("P", (8, 8), 0), "GIF", transparency=0), WHITE),
    ("grey and alpha", lambda: encode(Image.new("LA", (8, 8), (0, 0)), "PNG"), WHITE),
    ("rgba, clear", lambda: encode(Image.new("RGBA", (8, 8), (255, 0, 0, 0)), "PNG"), WHITE),
    ("rgba, half clear", lambda: encode(Image.new("RGBA", (8, 8), (255, 0, 0, 128)), "PNG"), (255, 127, 127)),
    ("rgb, one colour clear", lambda: encode(Image.new("RGB", (8, 8), RED), "PNG", transparency=RED), WHITE),
    ("grey, one value clear", lambda: encode(Image.new("L", (8, 8), 9), "PNG", transparency=9), WHITE),
    ("16-bit, one value clear", lambda: png(2, 1, chunk(b"tRNS", b"\x01\x02"), depth=16, colour=0,
                                            pixels=b"\x00\x01\x02\x01\x02"), WHITE),
    ("16-bit grey", lambda: encode(Image.fromarray(np.full((8, 8), 0x8000, np.uint16)), "PNG"), (128, 128, 128)),
    ("16-bit tiff", lambda: encode(Image.fromarray(np.full((8, 8), 0x8000, np.uint16)), "TIFF"), (128, 128, 128)),
    ("16-bit rgb", lambda: png(1, 1, depth=16, pixels=b"\x00\xff\xff\x80\x00\x00\xff"), (255, 128, 0)),
    ("32-bit, of 16", lambda: encode(Image.fromarray(np.array([[0, 65535]], np.int32)).resize((8, 8), 0, (1, 0, 2, 1)),
                                     "TIFF"), WHITE),
    ("float of 1", lambda: encode(Image.fromarray(np.full((8, 8), 1, np.float32)), "TIFF"), WHITE),
    ("float of 255", lambda: encode(Image.fromarray(np.full((8, 8), 99, np.float32)), "TIFF"), (99, 99, 99)),
]  # fmt: skip


@pytest.mark.parametrize(("make", "colour"), [mode[1:] for mode in MODES], ids=[mode[0] for mode in MODES])
def test_every_pixel_format_becomes_rgb_on_white(make: Callable[[], bytes], colour: tuple[int, int, int]) -> None:
    image = open_image(make())
    assert image.mode == "RGB"
    assert image.getpixel((0, 0)) == colour


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    for format_ in ("PNG", "TIFF"):
        image = open_image(encode(Image.fromarray(_ramp16()), format_))
        assert np.array_equal(np.asarray(image)[..., 0], _ramp16() >> 8)


def test_values_without_a_known_white_are_spread() -> None:
    values = np.array([[-1000.0, 0.0, np.nan, 1000.0]], np.float32)
    image = open_image(encode(Image.fromarray(values), "TIFF"))
    assert [int(v) for v in np.asarray(image)[0, :, 0]] == [0, 128, 128, 255]


@pytest.mark.parametrize("format_", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_of_an_animation_is_used(format_: str) -> None:
    frames = [Image.new("RGB", (30, 20), colour) for colour in (RED, (0, 0, 255), (0, 255, 0))]
    options = {"lossless": True} if format_ == "WEBP" else {}
    data = encode(frames[0], format_, save_all=True, append_images=frames[1:], **options)
    assert open_image(data).getpixel((3, 3)) == RED


def test_a_photograph_with_several_jpegs_is_a_jpeg() -> None:
    data = encode(scene(), "MPO", save_all=True, append_images=[scene().rotate(180)])
    assert probe(data) == ("JPEG", 60, 40)
    assert open_image(data).getpixel((5, 5)) == Image.open(io.BytesIO(data)).getpixel((5, 5))


def test_a_given_pillow_image_is_not_changed() -> None:
    for mode in ("RGB", "L", "P", "RGBA"):
        given = scene().convert(mode)
        given.info["note"] = "kept"
        before = given.tobytes()
        opened = open_image(given)
        opened.putpixel((0, 0), (1, 2, 3))
        assert opened is not given
        assert (given.tobytes(), given.mode, given.info["note"]) == (before, mode, "kept")


@pytest.mark.parametrize("format_", ["PNG", "JPEG", "GIF", "BMP"])
def test_probing_decodes_nothing(format_: str) -> None:
    """Shown on images cut off right after the header, which cannot be decoded."""
    data = encode(scene(300, 200), format_)
    cut = data[: {"PNG": 41, "JPEG": 640, "GIF": 900, "BMP": 60}[format_]]
    assert probe(cut) == (format_, 300, 200)
    with pytest.raises(UnreadableImage):
        open_image(cut)


def test_pillow_warnings_do_not_leak_and_filters_survive_threads() -> None:
    """Between Pillow's warning line and its error line a header warns; sixteen threads of that leave nothing behind."""
    large = png(10_000, 10_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Image.DecompressionBombWarning):
            Image.open(io.BytesIO(large))
        before = list(warnings.filters)
        with ThreadPoolExecutor(16) as pool:
            found = set(pool.map(lambda _: probe(large, max_pixels=150_000_000), range(400)))
        assert found == {("PNG", 10_000, 10_000)}
        assert list(warnings.filters) == before


def test_settings_of_pillow_are_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Image.MAX_IMAGE_PIXELS == MAX_PIXELS, "the default limit is Pillow's own warning line"
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with pytest.raises(UnreadableImage, match="more than the"):
        open_image(png(30_000, 30_000))
    assert Image.MAX_IMAGE_PIXELS is None
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False
