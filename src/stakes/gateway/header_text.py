"""How does text that is not ASCII travel in a header? Percent-encoded UTF-8 going out, that or plain UTF-8 coming in.

    plain("高 10%")                        # b'%E9%AB%98 10%'
    names("高,low".encode()), names(b"%E9%AB%98,low")      # ('高', 'low'), ('高', 'low')

Printable ASCII stands as it is, but for a "%" that two hexadecimal digits follow: it goes as %25, so that decoding
gives back what was meant. Bytes that are no UTF-8 are read as latin-1, which is what old clients send.
"""

import re
from urllib.parse import quote, unquote_to_bytes

MOST_BYTES = 1200  # of one value: some servers take 4 KB for all headers of an answer
_TO_ENCODE = re.compile(r"[^ -~]|%(?=[0-9A-Fa-f]{2})")


def plain(text: str) -> bytes:
    """Text as a header can carry it, cut after a whole letter: a client's words must not become other headers."""
    if not _TO_ENCODE.search(text):
        return text[:MOST_BYTES].encode("ascii")
    out: list[str] = []
    left = MOST_BYTES
    for place, letter in enumerate(text[:MOST_BYTES]):
        piece = quote(letter, safe="", errors="replace") if _TO_ENCODE.match(text, place) else letter
        left -= len(piece)
        if left < 0:
            break
        out.append(piece)
    return "".join(out).encode("ascii")


def text_of(value: bytes | str) -> str:
    """What a header's value says; ``str``: as servers hand values on that take every byte for a letter of latin-1."""
    data = unquote_to_bytes(value if isinstance(value, bytes) else _bytes(value))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def names(value: bytes | str) -> tuple[str, ...]:
    """``high, low`` as two names; a comma of a name's own is sent as %2C."""
    data = value if isinstance(value, bytes) else _bytes(value)
    return tuple(name for part in data.split(b",") if (name := text_of(part).strip()))


def _bytes(value: str) -> bytes:
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace")
