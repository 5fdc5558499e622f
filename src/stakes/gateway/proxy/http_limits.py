"""How is a connection kept from harming the server? Headers bounded in bytes and in time; bad HTTP answered as JSON.

uvicorn's own parser (httptools, llhttp inside) refuses malformed requests, but waits for headers for ever and takes any
number of them.
"""

import asyncio
import zlib
from asyncio import TimerHandle, Transport
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from stakes.gateway.proxy.errors import Refused, error_body
from stakes.gateway.settings import Limits


def door(limits: Limits) -> type[HttpToolsProtocol]:
    """The protocol class for these limits."""

    class Door(HttpToolsProtocol):
        """One connection."""

        _patience: TimerHandle | None = None
        _in_head = _in_body = False
        _begun = 0  # messages
        _head_bytes = 0
        _refused = False

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._refused:
                return
            idle, begun = not (self._in_head or self._in_body), self._begun
            if self._in_head:
                self._head_bytes += len(data)
            super().data_received(data)
            if idle and self._in_head and self._begun == begun + 1:  # all of it is of one head, not yet complete
                self._head_bytes = len(data)
            if self._in_head and self._head_bytes > limits.header_bytes:
                self._refuse(431, "headers_too_large", "the headers are too large")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._in_head, self._head_bytes = True, 0
            self._begun += 1
            if self._patience is None:
                self._wait()

        def on_header(self, name: bytes, value: bytes) -> None:
            if not self._in_head:  # a trailer: uvicorn would add it to the headers, where it could forge any of them
                return
            self._head_bytes += len(name) + len(value)
            if self._head_bytes <= 2 * limits.header_bytes:  # what follows is not kept
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._in_head, self._in_body = False, True
            self._stop_waiting()
            if self._head_bytes + len(self.url) > limits.header_bytes:
                self._refuse(431, "headers_too_large", "the headers are too large")
                return
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if not self._refused:
                super().on_body(body)

        def on_message_complete(self) -> None:
            self._in_body = False
            if not self._refused:
                super().on_message_complete()

        def send_400_response(self, msg: str) -> None:
            if not self._refused:
                self._refuse(400, "bad_http", msg)

        def _wait(self) -> None:
            self._patience = self.loop.call_later(limits.header_s, self._too_slow)

        def _stop_waiting(self) -> None:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None

        def _too_slow(self) -> None:
            self._patience = None
            if self.cycle is None or self.cycle.response_complete:
                self._refuse(408, "headers_timeout", "the headers did not arrive in time")

        def _refuse(self, status: int, code: str, message: str) -> None:
            self._refused = True
            self._stop_waiting()
            if self.transport.is_closing():
                return
            # An answer under way on this connection would be mixed up with ours: then it is only closed.
            waiting = self.cycle is not None and not self.cycle.response_started
            if waiting:  # its body went wrong: whoever waits for the rest is told that the client has gone
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            if waiting or self.cycle is None or self.cycle.response_complete:
                body = error_body(status, code, message)
                self.transport.write(
                    STATUS_LINE[status] + b"content-type: application/json\r\nconnection: close\r\n"
                    b"content-length: " + str(len(body)).encode() + b"\r\n\r\n" + body
                )
            self.transport.close()

    return Door


def server_options(limits: Limits, drain_s: float = 30.0) -> dict[str, Any]:
    """How uvicorn runs a gateway: this door, no headers of its own, and streams that may end before it does."""
    return {
        "http": door(limits), "ws": "none", "loop": "auto", "server_header": False, "date_header": False,
        "log_config": None, "timeout_graceful_shutdown": int(drain_s) or 1, "backlog": 2048,
    }  # fmt: skip


# How is a request's body read without trusting it? Bounded in bytes and time, gzip unpacked within the same bound.
#
# The body is always read whole and sent on with a length of our own making, so no framing of the client's ever reaches
# the upstream: nothing can be smuggled past by an odd length or encoding.


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


# Is the client still there, and how far is its answer? Two small things that every request carries along.


class Answering:
    """Sends, and knows whether an answer has begun and ended."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = self.over = False
        self.complete = False  # the last event of a stream is out: some clients hang up then, before its end
        self.status: int | None = None

    async def __call__(self, message: Any) -> None:
        """Send one message of the answer."""
        self.begun = True
        self.status = message.get("status", self.status)
        if not message.get("more_body", True):
            self.over = True
        await self._send(message)


class Presence:
    """Cancels the request's task when its client goes away; there is nobody left to answer."""

    def __init__(self, receive: Receive, answering: Answering) -> None:
        self._receive, self._answering = receive, answering
        self._task = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self.fired = False

    def start(self) -> None:
        """To be called once the body has been read."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._task is not None and not self._answering.over:  # over: the server says so by the same word
            self.fired = True
            self._task.cancel()

    def stop(self) -> None:
        """The answer is out: a client that leaves now is none of our business."""
        if self._watching is not None:
            self._watching.cancel()

    def forgive(self) -> None:
        """The cancellation was ours."""
        if self._task is not None:
            self._task.uncancel()
