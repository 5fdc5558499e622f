"""Bounds the JSON of a request before it is parsed, so that parsing is short whatever a client sends.

``json.loads`` holds the interpreter from its first byte to its last: 64 MB of nested arrays stop every other request
for 20 seconds. Its time grows with values and escapes, and hardly with the bytes of plain strings (about 1 GB a
second). So these are counted first, at the speed of memory, and so is all text that is no image:

    values     the most frequent of commas, brackets, braces and quotes: a value has at least one of them
    escapes    backslashes; some clients write the "/" of base64 as "\\/"
    text       bytes outside of data URLs and of base64 under a key such as ``data``

    parse_within(body, Limits())                      # Refused: 413 text_too_large
"""

import re
from collections.abc import Iterator
from typing import Any

from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.request import count_unread, parse
from stakes.gateway.settings import Limits

_MARKS = (b",", b"[", b"{", b'"')
_LONG = 4096  # bytes from which on a string may be an image
_KEY = re.compile(rb'"(?:data|file_data|b64_json)"\s{0,9}:\s{0,9}"\Z')


def parse_within(body: bytes, limits: Limits) -> dict[str, Any]:
    """The body as JSON, if it is within the limits."""
    check_json(body, limits)
    return parse(body)


def count_within(body: bytes, limits: Limits) -> int:
    """How many images a body holds that is not read; one beyond the limits is not looked at and counts as one image."""
    try:
        check_json(body, limits)
    except Refused:
        return 1
    return count_unread(body)


def check_json(body: bytes, limits: Limits) -> None:
    """Refuse a body whose JSON would take long to parse, or whose text is longer than any prompt."""
    values = max(body.count(mark) for mark in _MARKS)
    if values > limits.json_values:
        message = f"the body holds {values} commas, brackets or quotes, and {limits.json_values} are accepted"
        raise Refused(413, "too_many_values", message)
    escapes = body.count(b"\\")
    if escapes > limits.json_escapes:
        message = f"the body holds {escapes} backslashes, and {limits.json_escapes} are accepted; do not escape slashes"
        raise Refused(413, "too_many_escapes", message)
    if len(body) > limits.text_bytes:
        text = len(body) - sum(_image_lengths(body))
        if text > limits.text_bytes:
            message = f"the body holds {text} bytes beside its images, and {limits.text_bytes} are accepted"
            raise Refused(413, "text_too_large", message)


def _image_lengths(body: bytes) -> Iterator[int]:
    """The lengths of the long strings that are data URLs, or stand under a key of base64."""
    start = 0
    while (end := body.find(b'"', start)) >= 0:
        if end - start >= _LONG and (body.startswith(b"data:", start) or _KEY.search(body[max(0, start - 40) : start])):
            yield end - start
        start = end + 1
