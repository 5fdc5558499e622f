"""A sample names its image in one of four ways; nothing else is guessed."""

import base64
import io
from pathlib import Path

import pytest
from PIL import Image

from stakes.data.images import image_source
from stakes.data.sample import Sample
from stakes.errors import BadInput

BASE = Path("some") / "folder"


def _source(image: str | None) -> Path | bytes:
    return image_source(Sample("q", "?", ("a",), image), BASE)


def _encoded(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (3, 2)).save(file, kind)
    return file.getvalue()


def test_a_path_is_relative_to_the_samples_file(tmp_path: Path) -> None:
    assert _source("images/p 1.png") == BASE / "images" / "p 1.png"
    assert _source("../p.png") == BASE / ".." / "p.png"
    assert _source(str(tmp_path / "p.png")) == tmp_path / "p.png"


def test_a_file_url_is_absolute_and_unquoted(tmp_path: Path) -> None:
    path = tmp_path / "a page.png"
    assert _source(path.as_uri()) == path
    assert _source(path.as_uri().replace("file://", "file://localhost")) == path
    with pytest.raises(BadInput, match="names another machine, 'server'"):
        _source("file://server/p.png")
    with pytest.raises(BadInput, match="is not absolute"):
        _source("file:images/p.png")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
def test_base64_is_read_with_or_without_a_data_url(kind: str) -> None:
    data = _encoded(kind)
    text = base64.b64encode(data).decode()
    assert _source(text) == data
    assert _source(f"data:image/{kind.lower()};base64,{text}") == data
    assert _source(f"DATA:;BASE64,{text}") == data


def test_a_path_that_begins_like_base64_stays_a_path() -> None:
    for name in ("/9j/scans/of/the/archive/in/boston/page.jpg", "Qk1/p", "iVBORw0KGgo", "UklGR/" + "a" * 40 + ".webp"):
        assert isinstance(_source(name), Path)


@pytest.mark.parametrize(
    "change", [lambda t: t[:-1], lambda t: t[:20] + "\n" + t[20:], lambda t: t[:20] + "-" + t[21:]]
)
def test_damaged_base64_is_refused_rather_than_mended(change: "object") -> None:
    assert callable(change)
    text = base64.b64encode(_encoded("PNG")).decode()
    for whole in (change(text), f"data:image/png;base64,{change(text)}"):
        with pytest.raises(BadInput, match="the base64 of the image, .* is damaged"):
            _source(whole)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (None, "the sample has no image"),
        ("  ", "the sample has no image"),
        ("http://example.org/p.png", "never fetched from the web, .*http://example.org/p.png"),
        ("HTTPS://example.org/p.png", "never fetched from the web"),
        ("s3://bucket/p.png", "no image can be read from a s3: URL"),
        ("data:image/png,abc", "reads data:image/png;base64"),
        ("data:image/png;base64,", "is empty after its comma"),
        ("p\0.png", "holds a null character"),
    ],
)
def test_what_is_no_image_is_named(image: str | None, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        _source(image)
