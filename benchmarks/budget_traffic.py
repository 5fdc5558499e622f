"""Requests that try to break the budget: what ``budget_engine.py`` sends, in which order, and how each one ends."""

from __future__ import annotations

import base64
import io
import json
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from PIL import Image, ImageDraw

HIGH = ("What is the total?", "What is the invoice number?", "When is it due?")
LOW = ("Who signed it?", "Which colour is the logo?", "Describe this page.")
SIZES = ((280, 420), (420, 280), (252, 364), (336, 336), (112, 140), (224, 560))
KINDS = {
    "plain": 28, "stream": 18, "uuid": 10, "detail": 10, "conversation": 14, "images": 6, "responses": 6,
    "leaves at once": 1, "leaves early": 4, "leaves midway": 4,
}  # fmt: skip
PHASES = ("all high", "all low", "alternating", "bursts", "random", "header abuse")
AT_ONCE = 8
# What a client may try with headers, and beside them in the body.
ABUSE: tuple[tuple[dict[str, str], dict[str, Any]], ...] = (
    ({"x-stakes-tier": "high"}, {}),
    ({"x-stakes-tier": "grounding"}, {}),
    ({"x-stakes-tier": "low,high"}, {}),
    ({"x-stakes-cost": "1e9"}, {}),
    ({"x-stakes-bypass": "1"}, {}),
    ({"x-stakes-tier": "high", "x-stakes-bypass": "1"}, {}),
    ({"x-stakes-teir": "high"}, {}),
    ({}, {"metadata": {"stakes_tier": "high"}}),
    ({}, {"mm_processor_kwargs": {"min_pixels": 999_999}}),
    ({"x-stakes-group": "one"}, {"max_pixels": 999_999}),
)


@dataclass
class Asked:
    """One request."""

    kind: str
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    path: str = "/v1/chat/completions"

    @property
    def images(self) -> int:
        """How many images it holds."""
        return json.dumps(self.body).count("data:image/")

    @property
    def chat(self) -> dict[str, Any]:
        """The same as a chat completion with the smallest of images, to count its text by."""
        turns = self.body.get("messages") or self.body["input"]
        messages = json.loads(json.dumps(turns).replace("input_image", "image_url").replace("input_text", "text"))
        for turn in messages:
            for part in turn["content"] if isinstance(turn["content"], list) else ():
                part.pop("uuid", None)
                if part["type"] == "image_url":
                    part["image_url"] = {"url": TINY}
        return {"model": "reader", "messages": messages}

    def last_long(self) -> None:
        """Ask for a long answer."""
        self.body |= {"max_output_tokens" if "input" in self.body else "max_tokens": 300, "ignore_eos": True}


@dataclass
class Ended:
    """How a request ended at its client: a status, or None where the client left or nobody answered."""

    asked: Asked
    status: int | None = None
    predicted: int = 0
    counted: int | None = None


def page(width: int, height: int, mark: int) -> str:
    """A page as a data URL; another mark is another page."""
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    for row in range(8, height - 8, 24):
        draw.text((8, row), f"Row {row}: {row * 7919 + mark}", fill="black")
    out = io.BytesIO()
    image.save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


TINY = page(112, 112, 0)  # 16 tokens of the embedded reader


class Traffic:
    """Draws requests; those of one seed are always the same."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self._mark, self._open = 0, list[list[dict[str, Any]]]()
        self._named = [(f"page-{n}", page(280, 420, -1 - n)) for n in range(5)]

    def draw(self, tier: str, leaves: bool = True) -> Asked:
        """One request whose question is of this tier; ``leaves``: its client may leave before the end."""
        kinds = [kind for kind in KINDS if leaves or not kind.startswith("leaves")]
        kind = self.dice.choices(kinds, [KINDS[kind] for kind in kinds])[0]
        question = self.dice.choice(HIGH if tier == "high" else LOW)
        if kind == "conversation":
            return Asked(kind, {**_BASE, "messages": self._turn(question)})
        parts = [_image(self._page()) for _ in range(self.dice.randint(2, 3) if kind == "images" else 1)]
        if kind == "uuid":
            name, url = self.dice.choice(self._named)
            parts = [{**_image(url), "uuid": name}]
        if kind == "detail":
            parts[0]["image_url"]["detail"] = self.dice.choice(("low", "high", "auto"))
        messages = [{"role": "user", "content": [*parts, {"type": "text", "text": question}]}]
        if kind == "responses":
            return Asked(
                kind, {"model": "reader", "max_output_tokens": 1, "input": _as_input(messages)}, path="/v1/responses"
            )
        more: dict[str, Any] = {}
        if kind in ("stream", "leaves midway"):
            more = {"stream": True, "stream_options": {"include_usage": True}}
        if kind.startswith("leaves"):
            more |= {"max_tokens": 300, "ignore_eos": True}
        return Asked(kind, {**_BASE, "messages": messages, **more})

    def abuse(self, asked: Asked) -> Asked:
        """The same request with headers and parameters that should not help it."""
        headers, more = self.dice.choice(ABUSE)
        asked.headers, asked.body = headers, {**asked.body, **more}
        return asked

    def _page(self) -> str:
        self._mark += 1
        return page(*self.dice.choice(SIZES), self._mark)

    def _turn(self, question: str) -> list[dict[str, Any]]:
        """The next turn of an open conversation, or the first of a new one; six turns at most."""
        if self._open and self.dice.random() < 0.8:
            turns = self.dice.choice(self._open)
            turns += [{"role": "assistant", "content": "42"}, {"role": "user", "content": question}]
            if len(turns) > 10:
                self._open.remove(turns)
        else:
            content = [_image(self._page()), {"type": "text", "text": question}]
            turns = [{"role": "user", "content": content}]
            self._open.append(turns)
        return json.loads(json.dumps(turns))  # type: ignore[no-any-return]


_BASE = {"model": "reader", "temperature": 0, "max_tokens": 1}


def _image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _as_input(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of a chat as the input of a response."""
    parts = {"image_url": lambda p: {"type": "input_image", "image_url": p["image_url"]["url"]},
             "text": lambda p: {"type": "input_text", "text": p["text"]}}  # fmt: skip
    return [{**one, "content": [parts[part["type"]](part) for part in one["content"]]} for one in messages]


def send(address: str, asked: Asked, has_begun: Callable[[], bool]) -> Ended:
    """Send one request and wait for its end; ``has_begun``: whether the engine has read the one request in flight."""
    if asked.kind in ("leaves at once", "leaves early"):
        return _leave_early(address, asked, has_begun)
    ended = Ended(asked)
    try:
        with (
            httpx.Client(trust_env=False, timeout=120) as http,
            http.stream("POST", address + asked.path, json=asked.body, headers=asked.headers) as reply,
        ):
            ended.status = reply.status_code
            ended.predicted = sum(int(n) for n in reply.headers.get("x-stakes-predicted-tokens", "0").split(","))
            if asked.kind == "leaves midway" and reply.status_code == 200:
                next(reply.iter_bytes())
                return ended
            ended.counted = _counted(reply.read().decode())
    except httpx.TransportError:  # the gateway was killed
        pass
    return ended


def _leave_early(address: str, asked: Asked, has_begun: Callable[[], bool]) -> Ended:
    """Leave at once, or after the engine has read the images and before the first byte of its answer."""
    host, port = address.removeprefix("http://").split(":")
    body = json.dumps(asked.body).encode()
    head = f"POST {asked.path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in asked.headers.items())
    try:
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            connection.settimeout(0.03)
            while asked.kind != "leaves at once" and not has_begun():
                try:
                    if answer := connection.recv(1 << 16):
                        return Ended(asked, int(answer.split()[1]))  # refused
                    return Ended(asked)
                except TimeoutError:
                    pass
    except OSError:  # the gateway was killed
        pass
    return Ended(asked)


def _counted(text: str) -> int | None:
    """Image tokens by the usage of a response, whole or streamed."""
    lines = [line[5:] for line in text.splitlines() if line.startswith("data:") and '"usage"' in line] or [text]
    for line in reversed(lines):
        try:
            details = (json.loads(line).get("usage") or {}).get("prompt_tokens_details") or {}
            return int(details["multimodal_tokens"]["image"])
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return None
