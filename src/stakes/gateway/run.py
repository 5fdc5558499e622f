"""Runs an ASGI app: in a thread for as long as a block lasts, or in this thread until it is interrupted.

with running(app) as address:                     # 'http://127.0.0.1:43117'
    httpx.get(f"{address}/v1/models")
serve(app, "127.0.0.1", 8000)                     # until Ctrl-C
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn

from stakes.errors import BadInput, StakesError

MOST_PORT = 65535
SWITCH_S = 0.0005
"""How long a busy thread keeps the interpreter while another waits; Python's own 5 ms delay every system call of the
event loop by as much while a worker thread reads a long prompt."""
_MALLOPT = ((-3, 16 << 20), (-1, 32 << 20))  # glibc's M_MMAP_THRESHOLD and M_TRIM_THRESHOLD


@contextmanager
def running(app: Any, host: str = "127.0.0.1", port: int = 0, **options: Any) -> Iterator[str]:
    """The app in a thread; gives its address. ``port`` 0: any that is free. ``options``: as for ``serve``."""
    with bound(host, port) as listening:
        server = _server(app, options)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True, name="stakes-server")
        thread.start()
        while not server.started:
            if not thread.is_alive():
                raise StakesError("the server did not start; see its log")
            time.sleep(0.005)
        try:
            yield address(listening, options)
        finally:
            server.should_exit = True
            thread.join()


def serve(app: Any, host: str, port: int, ready: Callable[[str], None] | None = None, **options: Any) -> None:
    """The app in this thread, until it is interrupted; ``ready`` gets the address once the port is bound.

    ``options``: uvicorn's own; ``drain``: called when the server begins to shut down; ``tls``: the context for https;
    ``started``: called when it serves.
    """
    with bound(host, port) as listening:
        serve_on(listening, app, ready, **options)


def serve_on(listening: socket.socket, app: Any, ready: Callable[[str], None] | None = None, **options: Any) -> None:
    """The app in this thread on a socket that listens already; ``ready`` and ``options`` as for ``serve``."""
    sys.setswitchinterval(SWITCH_S)
    _keep_freed_memory()
    gc.collect()
    gc.freeze()  # a full collection that walks modules and vocabularies, too, stops the event loop for 40 ms
    if ready is not None:
        ready(address(listening, options))
    _server(app, options).run([listening])


def _keep_freed_memory() -> None:
    """Let the next page reuse the memory of the last one, in place of asking the system for it again.

    A page takes and frees some megabytes, which glibc returned at once: 1,100 page faults and 2.5 ms of CPU a page.
    Each thread now keeps up to 32 MB.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library has no such call, Windows no such library
        for parameter, value in _MALLOPT:
            ctypes.CDLL(None).mallopt(parameter, value)


def _server(app: Any, options: dict[str, Any]) -> uvicorn.Server:
    # No access log: it would hold what people ask. Idle connections stay open longer than a client's pool keeps them.
    usual = {
        "log_level": "warning", "access_log": False, "lifespan": "on", "timeout_keep_alive": 75,
        "timeout_graceful_shutdown": 5,
    }  # fmt: skip
    own = {name: options[name] for name in options if name not in ("drain", "tls", "started")}
    config = uvicorn.Config(app, **{**usual, **own})
    config.load()
    config.ssl = options.get("tls")
    return DrainingServer(config, options.get("drain"), options.get("started"))


class DrainingServer(uvicorn.Server):
    """A server that still listens while its requests end, so that health checks see that it is shutting down."""

    def __init__(
        self, config: uvicorn.Config, drain: Callable[[], None] | None, started: Callable[[], None] | None
    ) -> None:
        super().__init__(config)
        self._drain, self._started = drain, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve, and call ``started``."""
        await super().startup(sockets)
        if self._started is not None and self.started:
            self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the requests that have begun, at most as long as uvicorn does, then close."""
        if self._drain is not None:
            self._drain()
            ends = time.monotonic() + (self.config.timeout_graceful_shutdown or 0)
            while self.server_state.tasks and not self.force_exit and time.monotonic() < ends:
                await asyncio.sleep(0.02)
            self.config.timeout_graceful_shutdown = 1
        await super().shutdown(sockets)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there."""
    if not 0 <= port <= MOST_PORT:
        raise BadInput(f"a port is a number from 1 to {MOST_PORT}, or 0 for any that is free, not {port}")
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise BadInput(f"cannot listen on {host}:{port} ({error.strerror}); choose another host or port") from None
    return listening


def address(listening: socket.socket, options: Mapping[str, Any]) -> str:
    """Where a socket listens; ``options``: as for ``serve``."""
    host, port = listening.getsockname()[:2]
    scheme = "http" if options.get("tls") is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
