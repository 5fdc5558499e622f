"""A real chat server on 127.0.0.1 with scripted replies, and real questions where a person has them."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

Script = Callable[[dict[str, Any], int], tuple[int, dict[str, str], str]]


def completion(text: str | None) -> tuple[int, dict[str, str], str]:
    """What an OpenAI-compatible server answers when the model says ``text``."""
    return 200, {}, json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]})


class ChatServer:
    """Answers the n-th request (from 0) by its script, and records the requests."""

    def __init__(self) -> None:
        self.script: Script = lambda body, n: completion("high")
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with server._lock:
                    n = len(server.requests)
                    server.requests.append({"path": self.path, **body})
                    server.headers.append(dict(self.headers))
                    server.times.append(time.monotonic())
                    server.at_once += 1
                    server.most_at_once = max(server.most_at_once, server.at_once)
                status, headers, text = server.script(body, n)
                with server._lock:
                    server.at_once -= 1
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(text.encode()))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that gave up waiting is part of the script

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def chat_server() -> Iterator[ChatServer]:
    server = ChatServer()
    yield server
    server.stop()


@pytest.fixture
def reply() -> Callable[[str | None], tuple[int, dict[str, str], str]]:
    return completion


@pytest.fixture
def real_rows(real_data: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Read a JSONL file of the real data by its name in that folder."""

    def read(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (real_data / name).read_text(encoding="utf-8").splitlines()]

    return read
