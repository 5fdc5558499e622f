"""A plain PNG or JPEG is decoded and shrunk in one pass, to the pixels that decoding first would give."""

import pickle
import random
import resource
import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from PIL import ExifTags, Image
from tests.vision.image.image_files import chunk, encode, png, same, scene

from stakes.errors import UnreadableImage
from stakes.vision.image import decode, resize
from stakes.vision.image.decode import Picture
from stakes.vision.image.modes import Pixels
from stakes.vision.image.png import write_png
from stakes.vision.image.resample import streamed as by_libvips
from stakes.vision.image.resample import unpacked
from stakes.vision.image.resize import fit, resample

pytest.importorskip("pyvips", reason="libvips has no wheel for this machine", exc_type=ImportError)


def exif(orientation: int) -> bytes:
    made = Image.Exif()
    made[ExifTags.Base.Orientation] = orientation
    return made.tobytes()


FILES: dict[str, Callable[[], bytes]] = {
    "png": lambda: encode(scene(480, 320), "PNG"),
    "png of noise": lambda: encode(Image.effect_noise((480, 320), 90).convert("RGB"), "PNG"),
    "png, many chunks": lambda: encode(scene(480, 320), "PNG", dpi=(300, 300), icc_profile=b"x" * 200),
    "jpeg": lambda: encode(scene(480, 320), "JPEG", quality=88),
    "jpeg 4:4:4": lambda: encode(scene(480, 320), "JPEG", quality=95, subsampling=0),
    "jpeg at a half": lambda: encode(scene(960, 640), "JPEG", quality=88),
    "jpeg at a quarter": lambda: encode(scene(1920, 1280), "JPEG", quality=88),
    "jpeg on its side": lambda: encode(scene(480, 320), "JPEG", exif=exif(6)),
    "png on its side": lambda: encode(scene(480, 320), "PNG", exif=exif(8)),
}


def decoded_first(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> Any:
    """What ``work`` gives where nothing is streamed."""
    with monkeypatch.context() as patch:
        patch.setattr(resize, "streamed", lambda *_: None)
        patch.setattr(resize, "unpacked", lambda *_: None)
        return work()


@pytest.mark.parametrize("name", FILES)
def test_streaming_gives_the_pixels_of_decoding_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, streamed = FILES[name](), Mock(wraps=by_libvips)
    plain = Picture(data).plain_file((450, 300))
    assert plain is not None
    assert by_libvips(plain, (150, 100)) is not None
    monkeypatch.setattr(resize, "streamed", streamed)
    made = resample(Picture(data), 150, 100)
    streamed.assert_called_once()
    assert same(made, decoded_first(monkeypatch, lambda: resample(Picture(data), 150, 100)))


@pytest.mark.parametrize("name", FILES)
def test_a_file_unpacked_by_libvips_has_pillows_pixels(name: str) -> None:
    data = FILES[name]()
    plain = Picture(data).plain_file((450, 300))
    assert plain is not None
    made = unpacked(plain)
    assert made is not None
    assert same(made.image(), Picture(data).pixels((450, 300))[0])


@pytest.mark.parametrize("name", ["png", "png on its side", "progressive jpeg"])
def test_what_is_fitted_is_written_and_copied_the_same_from_either_pixels(name: str) -> None:
    fitted = fit(encode(scene(480, 320), "JPEG", progressive=True) if name not in FILES else FILES[name](), 30)
    assert isinstance(fitted.pixels, Pixels) == (name != "png on its side")
    assert write_png(fitted.pixels) == write_png(fitted.image)
    assert pickle.loads(pickle.dumps(fitted)).image.tobytes() == fitted.image.tobytes()


IHDR = 33  # bytes of a PNG up to the end of its header
PIXELS = scene(60, 40)
NOT_PLAIN: dict[str, Callable[[], bytes]] = {
    "gray": lambda: encode(PIXELS.convert("L"), "PNG"),
    "palette": lambda: encode(PIXELS.convert("P"), "PNG"),
    "alpha": lambda: encode(PIXELS.convert("RGBA"), "PNG"),
    "clear color": lambda: encode(PIXELS, "PNG", transparency=(0, 0, 0)),
    "16 bits": lambda: png(60, 40, depth=16, pixels=bytes(40 * (1 + 6 * 60))),
    "text after the pixels": lambda: encode(PIXELS, "PNG")[:-12] + chunk(b"tEXt", b"a\0b") + chunk(b"IEND", b""),
    "no end": lambda: encode(PIXELS, "PNG")[:-12],
    "very many chunks": lambda: (
        encode(PIXELS, "PNG")[:IHDR] + decode.MAX_CHUNKS * chunk(b"tIME", b"") + encode(PIXELS, "PNG")[IHDR:]
    ),
    "gray jpeg": lambda: encode(PIXELS.convert("L"), "JPEG"),
    "CMYK jpeg": lambda: encode(PIXELS.convert("CMYK"), "JPEG"),
    "progressive jpeg": lambda: encode(PIXELS, "JPEG", progressive=True),
    "webp": lambda: encode(PIXELS, "WEBP"),
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_any_other_file_is_pillows(name: str) -> None:
    assert Picture(NOT_PLAIN[name](), header_only=True).plain_file((20, 20)) is None


def test_a_side_that_a_scale_does_not_divide_is_pillows() -> None:
    odd = encode(scene(801, 600), "JPEG")
    assert Picture(odd).plain_file((100, 100)) is None
    plain = Picture(odd).plain_file((500, 500))
    assert plain is not None
    assert plain.scale == 1


@pytest.mark.parametrize("trim", [False, True])
@pytest.mark.parametrize("name", ["png", "png of noise", "jpeg"])
def test_a_damaged_file_ends_as_it_would_with_pillow(name: str, trim: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data, dice, ends = FILES[name](), random.Random(7), set()

    def outcome(damaged: bytes) -> bytes:
        try:
            return fit(damaged, 30, trim=trim).image.tobytes()
        except UnreadableImage as error:
            return str(error).encode()

    for _ in range(30):
        damaged = bytearray(data)
        if dice.random() < 0.3:
            del damaged[dice.randrange(40, len(data)) :]
        else:
            damaged[dice.randrange(40, len(data))] ^= 1 << dice.randrange(8)
        end = outcome(bytes(damaged))
        assert end == decoded_first(monkeypatch, partial(outcome, bytes(damaged)))
        ends.add(len(end) < 1000)
    assert True in ends  # at least one was refused


def test_what_pillow_reads_all_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow does not check the sum of the last pixels' chunk, and libvips does."""
    data = bytearray(FILES["png"]())
    data[-14] ^= 1
    made = fit(bytes(data), 30).image
    assert same(made, decoded_first(monkeypatch, lambda: fit(FILES["png"](), 30).image))


def test_the_pixel_limit_is_checked_before_anything_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resize, "streamed", lambda *_: pytest.fail("it was decoded"))
    with pytest.raises(UnreadableImage, match="pixels"):
        fit(FILES["png"](), 30, decode_limit=480 * 320 - 1)


def test_streaming_holds_no_full_size_pixels() -> None:
    """A PNG of 30 megapixels takes 120 MB in Pillow; libvips decodes a few lines at a time."""
    row, packer = b"\0" + 5000 * bytes((240, 240, 230)), zlib.compressobj(1)
    rows = b"".join([packer.compress(row) for _ in range(6000)]) + packer.flush()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 5000, 6000, 8, 2, 0, 0, 0))
    data = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    fit(FILES["png"](), 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert fit(data, 304).image.getextrema() == ((240, 240), (240, 240), (230, 230))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000  # kB
