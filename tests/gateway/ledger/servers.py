"""Real Redis servers on free ports, for one test; they skip it visibly where redis-server is not installed."""

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis

BINARY = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(BINARY is None, reason="redis-server is not installed: apt-get install redis-server")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """One redis-server with its data in ``folder``; it can be stopped, killed and started again."""

    def __init__(self, folder: Path, port: int, options: tuple[str, ...], file: Path | None) -> None:
        self.folder, self.port, self.options, self.file = folder, port, options, file
        self.process: subprocess.Popen[bytes] | None = None
        self.env: dict[str, str] = {}  # added to its environment
        self.client = redis.Redis(port=port, decode_responses=True, socket_timeout=5)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        assert BINARY is not None
        self.folder.mkdir(exist_ok=True)
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--loglevel", "warning"]
        own = [] if self.file is None else [str(self.file)]
        env = {**os.environ, **self.env}
        self.process = subprocess.Popen([BINARY, *own, *place, *self.options], stdout=subprocess.DEVNULL, env=env)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.client.ping()
                return
            except redis.exceptions.RedisError:
                time.sleep(0.02)
        raise TimeoutError(f"redis-server did not start; exit status {self.process.poll()}")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.client.connection_pool.disconnect()


@contextmanager
def redis_server(folder: Path, *options: str, file: Path | None = None) -> Iterator[Server]:
    """``options``: as redis-server takes them; by default it keeps nothing on disk. ``file``: its configuration."""
    server = Server(folder, free_port(), options or ("--save", "", "--appendonly", "no"), file)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        server.client.close()


class Relay:
    """Forwards connections to ``port``; None refuses them. ``drop`` closes those that are open."""

    def __init__(self, listening: socket.socket) -> None:
        self.port: int | None = None
        self._listening, self._open = listening, list[socket.socket]()

    def run(self) -> None:
        with suppress(OSError):  # closed at the end
            while True:
                client, _ = self._listening.accept()
                if self.port is None:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self.port))
                self._open += [client, server]
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    @staticmethod
    def _copy(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def drop(self) -> None:
        opened, self._open = self._open, []
        for one in opened:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextmanager
def relay(port: int) -> Iterator[Relay]:
    """A relay that listens on this port."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        one = Relay(listening)
        threading.Thread(target=one.run, daemon=True).start()
        try:
            yield one
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            one.drop()
