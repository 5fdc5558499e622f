"""The clients of a soak test: they send every kind of request, some damaged on purpose, and check each response.

They speak HTTP by hand, because a library would hide malformed responses.

A request ends in one of: a whole answer that contains its own id; an OpenAI error; a stream with an error frame; a
connection that closes before the stated length (the upstream failed). Anything else is a violation: the answer to
another request, a stream that ends without an error, bytes after the end, a status 500, an error that is not JSON.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

KINDS = {
    "text": 4,
    "streamed text": 2,
    "image": 4,
    "streamed image": 2,
    "responses": 2,
    "images": 1,
    "disconnect": 2,
    "fuzz": 4,
}
QUESTIONS = ("What is the total?", "Who signed it?", "Which date is due?", "What colour is the logo?")
TIMEOUT_S = 40.0


def page(width: int, height: int) -> str:
    """A page of lines as a data URL."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    for row in range(8, height - 8, 24):
        draw.text((8, row), f"Row {row}: {row * 7919}", fill="black")
    out = io.BytesIO()
    image.save(out, "PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


@dataclass
class Ledger:
    """What was sent and how it ended."""

    sent: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    late: int = 0  # requests without an answer in time
    images: int = 0
    tokens: int = 0

    def wrong(self, what: str) -> None:
        """Record a violation; at most fifty are kept."""
        if len(self.violations) < 50:
            self.violations.append(what)


class Clients:
    """Some clients of one gateway; ``rate`` is of all of them together."""

    def __init__(self, port: int, rate: float, at_once: int = 8, seed: int = 0) -> None:
        self.port, self.pause, self.at_once = port, at_once / rate, at_once
        self.rng, self.ledger = random.Random(seed), Ledger()
        self.pages = [page(560, 784), page(420, 420), page(280, 392), page(56, 56)]
        self.stop = False
        self._number = 0

    async def run(self) -> None:
        """Send requests until ``stop`` is set."""
        await asyncio.gather(*(self._client() for _ in range(self.at_once)))

    async def _client(self) -> None:
        link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while not self.stop:
            kind = self.rng.choices(list(KINDS), list(KINDS.values()))[0]
            self.ledger.sent[kind] += 1
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    link = link or await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
                    going_on = await self._one(kind, *link)
            except TimeoutError:
                self.ledger.late += 1
                self.ledger.wrong(f"{kind}: no answer within {TIMEOUT_S:.0f} s")
                going_on = False
            except (OSError, asyncio.IncompleteReadError):
                self.ledger.ends["connection closed"] += 1
                going_on = False
            if not going_on and link is not None:
                link[1].close()
                link = None
            await asyncio.sleep(self.rng.expovariate(1 / self.pause))
        if link is not None:
            link[1].close()

    async def _one(self, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self._number += 1
        name, streamed = f"r{self._number}", kind.startswith("streamed") or self.rng.random() < 0.2
        path, record = self._request(kind, name, streamed)
        message, intact = request(path, json.dumps(record).encode()), True
        if kind == "fuzz":
            message, intact = self._broken(path, json.dumps(record).encode())
        if kind == "disconnect":
            writer.write(message[: self.rng.randrange(1, len(message) + 1)])
            await asyncio.sleep(self.rng.uniform(0, 0.1))
            self.ledger.ends["disconnected by the client"] += 1
            return False
        writer.write(message)
        status, headers, body = await answer(reader)
        self.ledger.statuses[status] += 1
        self._judge(kind, name, streamed, status, headers, body)
        if getattr(reader, "_buffer", b"") and intact:
            self.ledger.wrong(f"{kind}: bytes after the end of an answer with status {status}")
        return intact and headers.get("connection") != "close"

    def _request(self, kind: str, name: str, streamed: bool) -> tuple[str, dict[str, Any]]:
        question = self.rng.choice(QUESTIONS)
        number = 0 if "text" in kind else self.rng.randint(2, 4) if kind == "images" else 1
        urls = [self.rng.choice(self.pages) for _ in range(number)]
        more = {"model": "stub", "user": name, **({"stream": True} if streamed else {})}
        if kind == "responses":
            parts = [
                *({"type": "input_image", "image_url": url} for url in urls),
                {"type": "input_text", "text": question},
            ]
            return "/v1/responses", {**more, "input": [{"role": "user", "content": parts}]}
        content: Any = [
            *({"type": "image_url", "image_url": {"url": url}} for url in urls),
            {"type": "text", "text": question},
        ]
        return "/v1/chat/completions", {**more, "messages": [{"role": "user", "content": content}]}

    def _broken(self, path: str, body: bytes) -> tuple[bytes, bool]:
        """A damaged request, and whether the connection can be used after it."""
        rng, how = self.rng, self.rng.randrange(9)
        if how < 4:  # some bytes changed
            damaged = bytearray(body)
            for _ in range(rng.choice((1, 3, 30))):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            return request(path, bytes(damaged)), True
        if how == 4:
            return request(path, body[: rng.randrange(len(body))]), True
        if how == 5:
            return request(path, gzip.compress(body)[: rng.choice((40, 1 << 30))], "content-encoding: gzip\r\n"), True
        if how == 6:
            return request(path, b'{"messages": ' + b"[" * rng.choice((10, 100_000)) + b'"image_url"'), True
        if how == 7:
            return request(path, body, "content-length: 3\r\n"), False
        return bytes(rng.randrange(256) for _ in range(200)) + b"\r\n\r\n", False

    def _judge(self, kind: str, name: str, streamed: bool, status: int, headers: dict[str, str], body: bytes) -> None:
        ledger = self.ledger
        if headers.get("x-stakes-outcome") == "fitted":
            taken = [int(tokens) for tokens in headers["x-stakes-predicted-tokens"].split(",")]
            ledger.images, ledger.tokens = ledger.images + len(taken), ledger.tokens + sum(taken)
        if status == 500:
            ledger.wrong(f"{kind}: status 500")
        if status != 200:
            ledger.ends["refused" if status < 500 else "upstream failure"] += 1
            try:
                error = json.loads(body)["error"]
                error["message"], error["code"]
            except (ValueError, LookupError, TypeError):
                ledger.wrong(f"{kind}: status {status} with no OpenAI error: {body[:80]!r}")
            if kind != "fuzz" and status not in (502, 503, 504):
                ledger.wrong(f"{kind}: a good request got {status}: {body[:160]!r}")
            return
        whole = b'"usage"' in body and (not headers.get("content-type", "").startswith("text/event") or ends_well(body))
        if whole:
            ledger.ends["answered"] += 1
            if kind != "fuzz" and f"id {name}" not in words(body):
                ledger.wrong(f"{kind}: {name} got the answer to another request: {words(body)[:80]!r}")
        elif streamed and b'"error"' in body:
            ledger.ends["error frame"] += 1
        elif kind != "fuzz" or b'"error"' not in body:
            ledger.wrong(f"{kind}: a response ended without an error: {body[-80:]!r}")


def request(path: str, body: bytes, more: str = "") -> bytes:
    """One POST."""
    head = f"POST {path} HTTP/1.1\r\nhost: soak\r\ncontent-type: application/json\r\n{more}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def ends_well(body: bytes) -> bool:
    """Whether a stream is complete."""
    return body.rstrip().endswith(b"[DONE]") or b"response.completed" in body


def words(body: bytes) -> str:
    """The text of an answer, whole or streamed."""
    if not body.startswith((b"data:", b"event:")):
        return body.decode("utf-8", "replace")
    events = [json.loads(line[5:]) for line in body.split(b"\n") if line.startswith(b"data:") and b"{" in line]
    pieces = [choice["delta"].get("content", "") for event in events for choice in event.get("choices", ())]
    return "".join(pieces) or body.decode("utf-8", "replace")


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of one response, by its own framing."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    if "content-length" in headers:
        return int(lines[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))
    body = bytearray()
    if headers.get("transfer-encoding") == "chunked":
        try:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        except asyncio.IncompleteReadError:  # a broken stream needs an error frame: the caller checks what arrived
            if not headers.get("content-type", "").startswith("text/event"):
                raise
            headers["connection"] = "close"
    return int(lines[0].split()[1]), headers, bytes(body)
