"""Base64 by either codec is the standard library's at its strictest, and a body is the same with its images put in."""

import binascii
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stakes.gateway.proxy import images as base64_text
from stakes.gateway.proxy.request import dump, dump_images, read_call

ALPHABET = "ABCxyz019+/="


@pytest.fixture(params=["pybase64", "standard library"])
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "pybase64":
        monkeypatch.setattr(base64_text, "pybase64", None)


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("size", [*range(70), 100_003])
def test_bytes_come_back(size: int) -> None:
    data = bytes(i * 7 % 256 for i in range(size))
    text = base64_text.encode(data)
    assert text == binascii.b2a_base64(data, newline=False).decode()
    assert base64_text.decode(text) == data


@given(st.text(alphabet=ALPHABET + "-_ \n%é", max_size=12) | st.text(alphabet=ALPHABET, max_size=80))
@example("QUI=QUI=")
@example("QUI")
@example("=")
@example("QUI=\n")
@example("QU I=")
def test_what_is_refused_is_what_the_strictest_reader_refuses(text: str) -> None:
    try:
        expected: bytes | None = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:
        expected = None
    try:
        found: bytes | None = base64_text.decode(text)
    except ValueError:
        found = None
    assert found == expected


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=12), st.text(max_size=20))
def test_a_body_is_the_same_as_if_it_had_been_written_at_once(images: list[bytes], question: str) -> None:
    urls = [f"data:image/png;base64,{base64_text.encode(data)}" for data in images]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    message = {"role": "user", "content": [*parts, {"type": "text", "text": question}]}
    nested = {"content": [{"image_url": urls[-1]}], "image_url": urls[0]}  # the inner one is read second, written first
    record = {"messages": [message, nested], "user": question}
    call = read_call("chat", json.loads(json.dumps(record)))
    assert len(call.images) == len(urls) + 2
    assert dump_images(call.record, call.images) == dump(record)
    assert call.record == record  # and what was there is there again
