"""How is a request's body read without trusting it? Bounded in bytes and time, gzip unpacked within the same bound.

The body is always read whole and sent on with a length of our own making, so no framing of the client's ever reaches
the upstream: nothing can be smuggled past by an odd length or encoding.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from stakes.gateway.refusal import Refused

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Gone(Exception):
    """The client left before its request was complete."""


async def read_body(receive: Receive, stated: bytes | None, most: int, seconds: float) -> bytes:
    """All bytes of the body; ``stated`` is its Content-Length, which is believed only to refuse early."""
    if stated is not None and stated.isdigit() and int(stated[:20]) > most:
        raise too_large(most)
    message: Message = await _next(receive, seconds) if stated != b"0" else {"type": "http.request"}
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > most:
            raise too_large(most)
        return body
    parts, total = [body], len(body)
    ends = asyncio.get_running_loop().time() + seconds
    while message.get("more_body", False):
        message = await _next(receive, ends - asyncio.get_running_loop().time())
        part: bytes = message.get("body", b"")
        total += len(part)
        if total > most:
            raise too_large(most)
        parts.append(part)
    return b"".join(parts)


async def _next(receive: Receive, seconds: float) -> Message:
    try:
        async with asyncio.timeout(seconds):
            message = await receive()
    except TimeoutError:
        raise Refused(408, "body_timeout", "the body did not arrive in time; send it faster or smaller") from None
    if message["type"] == "http.disconnect":
        raise Gone
    return message


def unpack(body: bytes, encoding: bytes, most: int) -> bytes:
    """The body as JSON text: itself, or what a gzip body holds, up to ``most`` bytes and with nothing behind it."""
    if encoding in (b"", b"identity"):
        return body
    if encoding not in (b"gzip", b"x-gzip"):
        raise Refused(415, "unsupported_encoding", "only gzip bodies can be looked into; send it plain or as gzip")
    unzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        out = unzip.decompress(body, most + 1)
    except zlib.error:
        raise Refused(400, "bad_gzip", "the body says gzip and is not") from None
    if len(out) > most:
        raise too_large(most)
    if not unzip.eof or unzip.unused_data:
        raise Refused(400, "bad_gzip", "the gzip body is cut off, or something follows it")
    return out


def too_large(most: int) -> Refused:
    """413, with the limit."""
    return Refused(413, "body_too_large", f"the body has more than {most} bytes; send fewer or smaller images")
