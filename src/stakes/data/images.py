"""Where a sample's image is: a path, or the bytes themselves. Nothing is decoded.

A sample names its image in one of four ways: a path relative to the samples file, a ``file:`` URL, a ``data:`` URL, or
plain base64. Nothing is fetched over a network. Base64 is read strictly: a decoder that skips foreign characters would
turn a damaged line into another image.

    image_source(sample, Path("runs/samples.jsonl").parent)      # Path("runs/images/p.png"), or bytes
"""

import base64
import binascii
import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from stakes.data.sample import Sample
from stakes.errors import BadInput

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # at least two letters: "C:" is a drive
# How base64 of PNG, JPEG, GIF, WebP, BMP and TIFF begins; an absolute path may begin with "/9j/" too.
_SIGNATURES = re.compile(r"iVBORw0KGgo|/9j/|R0lGOD|UklGR|Qk[0-3]|SUkqA|TU0AK")
_SHORTEST = 32  # characters; the smallest GIF takes more


def image_source(sample: Sample, base: Path) -> Path | bytes:
    """The file that holds a sample's image, or its bytes; ``base`` is the folder of the samples file."""
    image = sample.image
    if image is None or not image.strip():
        raise BadInput("the sample has no image; give a path relative to the samples file")
    if image.partition("#")[0].lower().endswith(".pdf"):
        raise BadInput(f"{image!r:.80} is a PDF; stakes data from-csv draws its pages as images")
    scheme = _SCHEME.match(image)
    if scheme is None:
        return _plain_base64(image) if _is_base64(image) else base / _clean(image)
    kind = scheme[1].lower()
    if kind == "data":
        return _data_url(image)
    if kind == "file":
        return _file_url(image)
    if kind in ("http", "https"):
        raise BadInput(f"images are never fetched from the web, and this one is at {image[:80]!r}; save it as a file")
    raise BadInput(f"no image can be read from a {kind}: URL; give a path, a file: URL or base64")


def _is_base64(image: str) -> bool:
    """Whether it is base64, not a path, by the text alone: base64 has no dot, and image paths nearly always have."""
    return len(image) >= _SHORTEST and "." not in image and _SIGNATURES.match(image) is not None


def _plain_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput(f"the base64 of the image, {text[:12]!r}…, is damaged; encode it again") from None


def _data_url(url: str) -> bytes:
    head, comma, body = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise BadInput(f"a data: URL of an image reads data:image/png;base64,…, and this one begins {url[:32]!r}")
    if not body:
        raise BadInput("the data: URL of the image is empty after its comma")
    return _plain_base64(body)


def _file_url(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise BadInput(f"the file: URL of the image names another machine, {parts.netloc!r}; write file:///path")
    path = Path(_clean(url2pathname(parts.path)))
    if not path.is_absolute():
        raise BadInput(f"the file: URL {url[:80]!r} is not absolute; write file:///path, or a plain relative path")
    return path


def _clean(path: str) -> str:
    if "\0" in path:
        raise BadInput(f"the image's path {path[:80]!r} holds a null character, which no file's name has")
    return path
