"""Limits of the HTTP connection: headers, body and time are bounded, malformed HTTP is answered as JSON.

uvicorn's parser (httptools, with llhttp inside) refuses malformed requests, but it waits for headers without a limit
and accepts any number of them. The body is always read whole and forwarded with a length that the gateway computes. The
client's framing never reaches the upstream, so requests cannot be smuggled by an odd length or encoding.
"""

import asyncio
import re
import zlib
from asyncio import TimerHandle, Transport
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from os import urandom
from typing import Any

from starlette.types import Message, Receive, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from stakes.gateway.proxy.errors import Refused, error_body
from stakes.gateway.settings import Limits

Headers = Iterable[tuple[bytes, bytes]]
_ID = re.compile(rb"[!-~]{1,128}")


def server_options(limits: Limits, drain_s: float = 30.0) -> dict[str, Any]:
    """uvicorn's options for a gateway: limited connections, no headers of its own, ``drain_s`` for open streams."""
    return {
        "http": partial(LimitedProtocol, limits), "ws": "none", "loop": "auto", "server_header": False,
        "date_header": False, "log_config": None, "timeout_graceful_shutdown": int(drain_s) or 1, "backlog": 2048,
    }  # fmt: skip


class LimitedProtocol(HttpToolsProtocol):
    """One connection whose headers are limited in bytes and in time."""

    def __init__(self, limits: Limits, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._timer: TimerHandle | None = None  # runs while headers are awaited
        self._in_head = self._in_body = self._refused = False
        self._messages = self._head_bytes = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first headers."""
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer with the connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data and count the bytes of an incomplete head, which the parser does not report."""
        if self._refused:
            return
        idle, messages = not (self._in_head or self._in_body), self._messages
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if idle and self._in_head and self._messages == messages + 1:  # all of it belongs to one incomplete head
            self._head_bytes = len(data)
        if self._in_head and self._head_bytes > self._limits.header_bytes:
            self._refuse_headers()

    def on_message_begin(self) -> None:
        """Count from here on as a head."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self._messages += 1
        if self._timer is None:
            self._start_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header within the limit; drop a trailer, which uvicorn would add to the headers."""
        if not self._in_head:  # a trailer could forge any header
            return
        self._head_bytes += len(name) + len(value)
        if self._head_bytes <= 2 * self._limits.header_bytes:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the size of the whole head."""
        self._in_head, self._in_body = False, True
        self._stop_timer()
        if self._head_bytes + len(self.url) > self._limits.header_bytes:
            self._refuse_headers()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass the body on unless the request was refused."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request unless it was refused."""
        self._in_body = False
        if not self._refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP as JSON."""
        if not self._refused:
            self._refuse(400, "bad_http", msg)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._limits.header_s, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            self._refuse(408, "headers_timeout", "the headers did not arrive in time")

    def _refuse_headers(self) -> None:
        self._refuse(431, "headers_too_large", "the headers are too large")

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._refused = True
        self._stop_timer()
        if self.transport.is_closing():
            return
        waiting = self.cycle is not None and not self.cycle.response_started
        if waiting:  # its body was malformed: whoever waits for the rest sees a disconnect
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        # If another response is under way on this connection, ours would corrupt it: the connection is only closed.
        if waiting or self.cycle is None or self.cycle.response_complete:
            body = error_body(status, code, message)
            self.transport.write(
                STATUS_LINE[status] + b"content-type: application/json\r\nconnection: close\r\n"
                b"content-length: " + str(len(body)).encode() + b"\r\n\r\n" + body
            )
        self.transport.close()


class ClientGone(Exception):
    """The client disconnected before its request was complete."""


class OpenBodies:
    """Counts the bytes of all bodies in memory, complete or not, and refuses more than ``most`` of them.

    A quarter is kept for requests of up to ``small`` bytes: a few large ones cannot shut out ordinary pages.
    """

    def __init__(self, most: int, small: int = 8 << 20) -> None:
        self.most, self.small, self.bytes = most, small, 0

    def add(self, count: int, held: int) -> int:
        """Count these bytes of a request that holds ``held`` already; subtract them when the request is over."""
        if self.bytes + count > (self.most if held + count <= self.small else self.most * 3 // 4):
            message = "too many bytes of requests are in memory; try again in a moment"
            raise Refused(503, "too_many_bytes", message, retry_after=1)
        self.bytes += count
        return count


async def read_body(
    receive: Receive, stated: bytes | None, most: int, seconds: float, count: Callable[[int], object]
) -> bytes:
    """All bytes of the body; ``stated``: its Content-Length, used only to refuse early; ``count`` gets each part's."""
    if stated == b"0":
        return b""
    if stated is not None and stated.isdigit() and int(stated[:20]) > most:
        raise too_large(most)
    parts, size, more = list[bytes](), 0, True
    try:
        async with asyncio.timeout(seconds):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part = message.get("body", b"")
                count(len(part))
                parts.append(part)
                size += len(part)
                if size > most:
                    raise too_large(most)
                more = message.get("more_body", False)
    except TimeoutError:
        raise Refused(408, "body_timeout", "the body did not arrive in time; send it faster or smaller") from None
    return b"".join(parts)


def unpacked_size(body: bytes, encoding: bytes, most: int) -> int:
    """The most bytes that a body takes once it is unpacked; gzip states its size in its last four bytes."""
    if encoding in (b"", b"identity"):
        return len(body)
    if encoding not in (b"gzip", b"x-gzip"):
        raise Refused(415, "unsupported_encoding", "the gateway reads plain and gzip bodies only; send one of these")
    return min(most, int.from_bytes(body[-4:], "little"))


def unpack(body: bytes, encoding: bytes, most: int) -> bytes:
    """The body as JSON text, decompressed if it is gzip: as many bytes as it states, and nothing after them."""
    size = unpacked_size(body, encoding, most)
    if encoding in (b"", b"identity"):
        return body
    unzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        out = unzip.decompress(body, size + 1)
    except zlib.error:
        raise Refused(400, "bad_gzip", "the body is declared as gzip and is not") from None
    if len(out) > most:
        raise too_large(most)
    if len(out) != size or not unzip.eof or unzip.unused_data:
        raise Refused(400, "bad_gzip", "the gzip body is cut off, misstates its size, or other data follows it")
    return out


def too_large(most: int) -> Refused:
    """413, with the limit."""
    return Refused(413, "body_too_large", f"the body has more than {most} bytes; send fewer or smaller images")


@dataclass
class Drain:
    """Whether the gateway is shutting down: it still ends its requests, and takes no new ones."""

    begun: bool = False

    def begin(self) -> None:
        """Take no new requests."""
        self.begun = True


def request_id(headers: Headers) -> bytes:
    """The id of a request: the client's ``x-request-id`` where it is plain and short, else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _ID.fullmatch(value):
            return value
    return urandom(16).hex().encode()


class ResponseSender:
    """Sends the response with the request's id and records how far it is.

    An id of the upstream's own is kept as ``x-upstream-request-id``.
    """

    def __init__(self, send: Send, request_id: bytes = b"") -> None:
        self._send, self.request_id = send, request_id
        self.over = False
        self.complete = False  # the last event of a stream was sent: some clients disconnect then, before the end
        self.status: int | None = None  # set once the response has begun

    async def __call__(self, message: Message) -> None:
        """Send one ASGI message of the response."""
        if message["type"] == "http.response.start":
            message["headers"] = self._with_id(message["headers"])
        self.status = message.get("status", self.status)
        self.over = not message.get("more_body", True)
        await self._send(message)

    def _with_id(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        own = (b"x-request-id", self.request_id)
        theirs = next((value for name, value in headers if name == own[0]), None)
        if theirs is None:
            return [*headers, own]
        others = [one for one in headers if one[0] != own[0]]
        return [*others, own] if theirs == own[1] else [*others, own, (b"x-upstream-request-id", theirs)]


class DisconnectWatcher:
    """Cancels the task of a request when its client disconnects."""

    def __init__(self, receive: Receive, response: ResponseSender) -> None:
        self._receive, self._response = receive, response
        self._task: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment] # it is made inside one
        self._watching: asyncio.Task[None] | None = None
        self.fired = False

    def start(self) -> None:
        """Begin to watch; call it once the body has been read."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._response.over:  # uvicorn also reports the end of a response like this
            self.fired = True
            self._task.cancel()

    def stop(self) -> None:
        """Watch no longer, because the response is over."""
        if self._watching is not None:
            self._watching.cancel()

    def uncancel(self) -> None:
        """Undo the cancellation that this watcher caused."""
        self._task.uncancel()
