"""An upstream that answers as a test scripts it, on real sockets: OpenAI's APIs, and Anthropic's Messages API."""

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
from tests.gateway import messages

from stakes import count_tokens


@dataclass
class Seen:
    """A received request."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


DONE = b"data: [DONE]\n\n"
Script = Callable[[Seen, "Wire"], None]


@dataclass
class Wire:
    """The connection that a script answers on."""

    handler: BaseHTTPRequestHandler

    def send(self, data: bytes) -> None:
        self.handler.wfile.write(data)
        self.handler.wfile.flush()

    def reply(self, body: bytes, status: int = 200, kind: str = "application/json", *headers: str) -> None:
        lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", f"content-length: {len(body)}", *headers, "", ""]
        self.send("\r\n".join(lines).encode() + body)

    def begin_stream(self, kind: str = "text/event-stream") -> None:
        self.send(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode())

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n" % len(data) + data + b"\r\n")

    def end(self) -> None:
        self.send(b"0\r\n\r\n")

    def done(self) -> None:
        """End a stream of chat completions."""
        self.chunk(DONE)
        self.end()

    def drop(self) -> None:
        """Drop the connection."""
        self.handler.close_connection = True
        self.handler.connection.shutdown(2)

    def is_closed(self, seconds: float = 5.0) -> bool:
        """Whether the other side disconnects within that time."""
        self.handler.connection.settimeout(seconds)
        try:
            return not self.handler.connection.recv(1)
        except ConnectionError:
            return True
        except OSError:
            return False


def image_sizes(body: Any) -> list[tuple[int, int]]:
    """Sizes of the images of a chat, responses or messages request, in order."""
    found = []

    def add(data: str) -> None:
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            found.append(image.size)

    def walk(value: Any) -> None:
        if isinstance(value, list):
            for one in value:
                walk(one)
        elif isinstance(value, dict):
            url = value.get("image_url")
            url = url.get("url") if isinstance(url, dict) else url
            if isinstance(url, str) and url.startswith("data:"):
                add(url.partition(",")[2])
            source = value.get("source")
            if value.get("type") == "image" and isinstance(source, dict) and source.get("type") == "base64":
                add(source["data"])
            for key, one in value.items():
                if key != "image_url":
                    walk(one)

    walk(body.get("messages") or body.get("input"))
    return found


def usage(body: Any, family: str = "qwen2.5-vl") -> dict[str, Any]:
    tokens = sum(count_tokens(family, width, height) for width, height in image_sizes(body))
    return {
        "prompt_tokens": 10 + tokens, "completion_tokens": 1, "total_tokens": 11 + tokens,
        "prompt_tokens_details": {"multimodal_tokens": {"image": tokens}},
    }  # fmt: skip


def honest(seen: Seen, wire: Wire) -> None:
    """Answers 42, counts tokens as a real server does, streams on request."""
    if seen.path.startswith("/v1/models"):
        return wire.reply(b'{"object": "list", "data": [{"id": "tiny", "object": "model"}]}')
    if seen.path == "/v1/responses":
        return _respond(seen.json, wire)
    if seen.path in ("/v1/messages", "/v1/messages/count_tokens"):
        return messages.answer(seen, wire, usage(seen.json)["prompt_tokens"])
    if seen.path != "/v1/chat/completions":
        return wire.reply(json.dumps({"path": seen.path, "method": seen.method}).encode())
    try:
        body = seen.json
    except ValueError:
        return wire.reply(b'{"error": {"message": "not JSON", "code": "upstream"}}', 400)
    if not body.get("stream"):
        message = {"role": "assistant", "content": "42"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        about = {"id": "c", "object": "chat.completion", "created": 1, "model": "tiny"}
        return wire.reply(json.dumps({**about, "choices": [choice], "usage": usage(body)}).encode())
    wire.begin_stream()
    for text in ("4", "2"):
        wire.chunk(frame(text))
    wire.chunk(b"data: " + json.dumps({**_chunk(), "choices": [], "usage": usage(body)}).encode() + b"\n\n")
    return wire.done()


def frame(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + json.dumps({**_chunk(), "choices": [choice]}).encode() + b"\n\n"


def _chunk() -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}


def _respond(body: Any, wire: Wire) -> None:
    counted = usage(body)
    text = {"type": "output_text", "text": "42", "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
    response = {
        "id": "r", "object": "response", "created_at": 1, "model": "tiny", "status": "completed", "output": [message],
        "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
        "usage": {
            "input_tokens": counted["prompt_tokens"], "output_tokens": 1, "total_tokens": counted["total_tokens"],
            "input_tokens_details": {"cached_tokens": 0, **counted["prompt_tokens_details"]},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }  # fmt: skip
    if not body.get("stream"):
        return wire.reply(json.dumps(response).encode())
    wire.begin_stream()
    event = {"type": "response.completed", "sequence_number": 0, "response": response}
    wire.chunk(b"event: response.completed\ndata: " + json.dumps(event).encode() + b"\n\n")
    return wire.end()


@dataclass
class Upstream:
    """``url`` is its base URL, ``seen`` the requests, ``script`` how it answers."""

    url: str
    script: Script = honest
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0

    @property
    def last(self) -> Seen:
        return self.seen[-1]

    def posts(self) -> list[Seen]:
        return [one for one in self.seen if one.method == "POST"]


@contextmanager
def serving(script: Script = honest, port: int = 0) -> Iterator[Upstream]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            with lock:
                upstream.connections += 1

        def answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            seen = Seen(self.command, self.path, list(self.headers.items()), self.rfile.read(length))
            with lock:
                upstream.seen.append(seen)
            upstream.script(seen, Wire(self))

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a gateway that disconnects is part of the test

    server = Quiet(("127.0.0.1", port), Handler)
    upstream = Upstream(f"http://127.0.0.1:{server.server_port}/v1", script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield upstream
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Wait until something holds."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if condition():
            return True
        time.sleep(0.005)
    return condition()
