"""What do the clients of a soak send, and what may come back? Every kind of request, some broken on purpose.

A request ends in one of: a whole answer with its own id in it; an OpenAI error; a stream with an error frame; a
connection that closes before the length it promised (the upstream broke off). Anything else is a violation: somebody
else's answer, a stream that ends silently, bytes after the end, a status 500, an error that is no JSON.
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

from benchmarks.soak_wire import answer, ends_well, request, words

KINDS = {
    "text": 4,
    "streamed text": 2,
    "image": 4,
    "streamed image": 2,
    "responses": 2,
    "images": 1,
    "gone": 2,
    "fuzz": 4,
}
QUESTIONS = ("What is the total?", "Who signed it?", "Which date is due?", "What colour is the logo?")
PATIENCE_S = 40.0


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
    """What was sent and what came of it."""

    sent: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    late: int = 0  # requests that nobody answered in time
    images: int = 0
    tokens: int = 0

    def wrong(self, what: str) -> None:
        """Note a violation; the first fifty are enough to find it by."""
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
        """Until told to stop."""
        await asyncio.gather(*(self._client() for _ in range(self.at_once)))

    async def _client(self) -> None:
        link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while not self.stop:
            kind = self.rng.choices(list(KINDS), list(KINDS.values()))[0]
            self.ledger.sent[kind] += 1
            try:
                async with asyncio.timeout(PATIENCE_S):
                    link = link or await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
                    going_on = await self._one(kind, *link)
            except TimeoutError:
                self.ledger.late += 1
                self.ledger.wrong(f"{kind}: no answer within {PATIENCE_S:.0f} s")
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
        message, fair = request(path, json.dumps(record).encode()), True
        if kind == "fuzz":
            message, fair = self._broken(path, json.dumps(record).encode())
        if kind == "gone":
            writer.write(message[: self.rng.randrange(1, len(message) + 1)])
            await asyncio.sleep(self.rng.uniform(0, 0.1))
            self.ledger.ends["left by the client"] += 1
            return False
        writer.write(message)
        status, headers, body = await answer(reader)
        self.ledger.statuses[status] += 1
        self._judge(kind, name, streamed, status, headers, body)
        if getattr(reader, "_buffer", b"") and fair:
            self.ledger.wrong(f"{kind}: bytes after the end of an answer with status {status}")
        return fair and headers.get("connection") != "close"

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
        """A damaged request, and whether the connection is still in step after it."""
        rng, how = self.rng, self.rng.randrange(9)
        if how < 4:  # the same bytes, some of them others
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
            ledger.ends["refused" if status < 500 else "upstream trouble"] += 1
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
                ledger.wrong(f"{kind}: the answer to {name} is another's: {words(body)[:80]!r}")
        elif streamed and b'"error"' in body:
            ledger.ends["error frame"] += 1
        elif kind != "fuzz" or b'"error"' not in body:
            ledger.wrong(f"{kind}: an answer ended silently: {body[-80:]!r}")
