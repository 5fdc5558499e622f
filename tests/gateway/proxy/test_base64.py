"""Both base64 codecs are as strict as the standard library, and inserting images gives the same body."""

import base64
import binascii
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from tests.gateway.gateways import encoded

from stakes.gateway.proxy import images
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.images import data_url, measure
from stakes.gateway.proxy.request import dump, dump_images, read_call
from stakes.gateway.settings import Limits

ALPHABET = "ABCxyz019+/="
PNG = encoded(Image.new("L", (56, 56)))


@pytest.fixture(params=["pybase64", "standard library"])
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "pybase64":
        monkeypatch.setattr(images, "b64decode", base64.b64decode)
        monkeypatch.setattr(images, "b64encode", base64.b64encode)


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("size", [*range(70), 100_003])
def test_base64_round_trip(size: int) -> None:
    data = PNG + bytes(i * 7 % 256 for i in range(size))  # what follows the image is not read
    url = data_url(data, "png")
    assert url == f"data:image/png;base64,{binascii.b2a_base64(data, newline=False).decode()}"
    assert measure(url, "qwen2.5-vl", Limits()).data == data


@given(st.text(alphabet=ALPHABET + "-_ \n%é", max_size=12) | st.text(alphabet=ALPHABET, max_size=80))
@example("QUI=QUI=")
@example("QUI")
@example("=")
@example("QUI=\n")
@example("QU I=")
def test_bad_base64_is_refused_as_by_the_strict_standard_library(text: str) -> None:
    try:
        expected: bytes | None = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:
        expected = None
    if len(text) % 4:  # some versions of Python accept padding after a whole group, such as 0000=
        expected = None
    with pytest.raises(Refused) as caught:
        measure(f"data:image/png;base64,{text}", "qwen2.5-vl", Limits())
    assert caught.value.code == ("bad_base64" if expected is None else "unreadable_image")


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=12), st.text(max_size=20))
def test_dump_images_equals_dump(pages: list[bytes], question: str) -> None:
    urls = [f"data:image/png;base64,{base64.b64encode(data).decode()}" for data in pages]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    message = {"role": "user", "content": [*parts, {"type": "text", "text": question}]}
    nested = {"content": [{"image_url": urls[-1]}], "image_url": urls[0]}  # the inner one is read second, written first
    record = {"messages": [message, nested], "user": question}
    call = read_call("chat", json.loads(json.dumps(record)))
    assert len(call.images) == len(urls) + 2
    assert dump_images(call.record, call.images) == dump(record)
    assert call.record == record  # unchanged
