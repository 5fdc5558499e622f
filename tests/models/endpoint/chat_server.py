"""A real OpenAI-compatible server on 127.0.0.1 that follows a test's script and records the requests."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image


@dataclass(frozen=True)
class ScriptedReply:
    """One reply; ``drop`` closes the connection in its place, ``trickle`` sends it a byte at a time."""

    text: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    trickle: float = 0.0


def completion(content: Any, usage: Any = None, finish: Any = "stop") -> ScriptedReply:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
    return ScriptedReply(json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}))


def image_usage(tokens: int) -> dict[str, Any]:
    """As vLLM gives it with --enable-prompt-tokens-details."""
    details = {"cached_tokens": None, "multimodal_tokens": {"image": tokens}}
    return {"prompt_tokens": tokens + 30, "completion_tokens": 2, "prompt_tokens_details": details}


def parts(body: dict[str, Any]) -> tuple[str | None, str]:
    """The data URL, if there is an image, and the text of a request with one message."""
    (message,) = body["messages"]
    *images, text = message["content"]
    assert (message["role"], text["type"], len(images) < 2) == ("user", "text", True)
    return images[0]["image_url"]["url"] if images else None, text["text"]


def received(body: dict[str, Any]) -> Image.Image:
    url, _ = parts(body)
    assert url is not None
    kind, _, data = url.partition(",")
    assert kind == "data:image/png;base64"
    image = Image.open(io.BytesIO(base64.b64decode(data, validate=True)), formats=["PNG"])
    image.load()
    return image


def seen_tokens(body: dict[str, Any], factor: int = 28) -> int:
    """What a Qwen server whose own resizing is the identity counts."""
    width, height = received(body).size
    assert width % factor == height % factor == 0
    return width * height // factor**2


def honest(body: dict[str, Any], n: int) -> ScriptedReply:
    return completion(f"re: {parts(body)[1]}", image_usage(seen_tokens(body)))


class Server:
    """``script(body, n)`` answers the n-th chat request, ``tokenize(body)`` and ``models`` the other two paths."""

    def __init__(self, script: Callable[[dict[str, Any], int], ScriptedReply]) -> None:
        self.script = script
        self.tokenize: Callable[[dict[str, Any]], ScriptedReply] | None = None
        self.models = json.dumps({"object": "list", "data": [{"id": "reader"}]})
        self.bodies: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.paths: list[str] = []
        self.authorization: list[str | None] = []
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # it waits 40 ms between headers and body

            def do_GET(self) -> None:
                self.send(server.get(self.path, self.headers["authorization"]))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.send(server.post(self.path, body, self.headers["authorization"]))

            def send(self, reply: ScriptedReply) -> None:
                if reply.drop:
                    self.close_connection = True
                    return
                data = reply.text.encode()
                self.send_response(reply.status)
                for name, value in {**reply.headers, "content-length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                for at in range(len(data)) if reply.trickle else ():
                    self.wfile.write(data[at : at + 1])
                    time.sleep(reply.trickle)
                if not reply.trickle:
                    self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that gave up waiting is part of the script

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def get(self, path: str, authorization: str | None) -> ScriptedReply:
        self.paths.append(path)
        self.authorization.append(authorization)
        return ScriptedReply(self.models) if path == "/v1/models" else ScriptedReply("not here", 404)

    def post(self, path: str, body: dict[str, Any], authorization: str | None) -> ScriptedReply:
        with self._lock:
            self.paths.append(path)
            self.authorization.append(authorization)
        if path == "/tokenize":
            return ScriptedReply('{"detail": "Not Found"}', 404) if self.tokenize is None else self.tokenize(body)
        if path != "/v1/chat/completions":
            return ScriptedReply("not here", 404)
        with self._lock:
            n = len(self.bodies)
            self.bodies.append(body)
            self.times.append(time.monotonic())
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return self.script(body, n)
        finally:
            with self._lock:
                self.at_once -= 1

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def serving(script: Callable[[dict[str, Any], int], ScriptedReply] = honest) -> Iterator[Server]:
    server = Server(script)
    try:
        yield server
    finally:
        server.stop()
