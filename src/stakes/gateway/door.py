"""How is a connection kept from harming the server? Headers bounded in bytes and in time; bad HTTP answered as JSON.

uvicorn's own parser (httptools, llhttp inside) refuses malformed requests, but waits for headers for ever and takes any
number of them.
"""

from asyncio import TimerHandle, Transport
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from stakes.gateway.refusal import error_body
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
