"""A real vLLM that serves the embedded reader, and real pages to ask it about."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
from tests.gateway.gateways import url_of
from tests.gateway.messages import image_block

import stakes
from stakes.models.embedded import shipped_folder

STARTS_S = 400.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}  # a guest on its machine


SOURCES = Path(stakes.__file__).parents[1]


@contextmanager
def vllm(script: str, port: int, log: Path, *options: str, site: Path | None = None) -> Iterator[str]:
    """Its base URL; ``script``: a command that serves a checkpoint on a port, as ``script CHECKPOINT PORT``.

    ``options``: more of ``vllm serve``; a first one without dashes is another checkpoint than the embedded reader.
    ``site``: a folder that vLLM finds packages in, such as one of ``with_plugin``.
    """
    others = bool(options) and not options[0].startswith("-")
    checkpoint = options[0] if others else str(shipped_folder("embedded"))
    command = [script, checkpoint, str(port), *options[others:]]
    paths = {} if site is None else {"PYTHONPATH": f"{site}{os.pathsep}{SOURCES}"}
    with log.open("wb") as out:
        running = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **ONE_THREAD, **paths}, start_new_session=True
        )
    try:
        ends = time.monotonic() + STARTS_S
        while not _is_up(port):
            assert running.poll() is None, log.read_text("utf-8", "replace")[-3000:]
            assert time.monotonic() < ends, (
                f"not up after {STARTS_S:.0f} s: {log.read_text('utf-8', 'replace')[-3000:]}"
            )
            time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(running.pid, signal.SIGTERM)  # the engine is a child process
        try:
            running.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def with_plugin(folder: Path) -> Path:
    """A folder that makes this source tree an installed package, entry points included, in an environment of vLLM.

    Without an installation, so that an engine's environment is not changed by a test.
    """
    project = tomllib.loads((SOURCES.parent / "pyproject.toml").read_text("utf-8"))["project"]
    info = folder / f"stakes-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: stakes\nVersion: {project['version']}\n")
    lines = [
        line
        for group, names in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _is_up(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@dataclass(frozen=True)
class Real:
    """A question about a real page."""

    question: str
    url: str


def real_pages(data: Path, number: int) -> list[Real]:
    """That many different pages of DocVQA, SROIE and ChartQA in turn, with one question each."""
    files: dict[Path, str] = {}
    for name in ("docvqa", "sroie", "chartqa"):
        for line in (data / name / "questions.jsonl").read_text("utf-8").splitlines():
            record = json.loads(line)
            files.setdefault(data / name / record["image"], record["question"])
    kinds = {
        name: [item for item in files.items() if item[0].parts[-3] == name] for name in ("docvqa", "sroie", "chartqa")
    }
    chosen: list[tuple[Path, str]] = []
    while len(chosen) < number and any(kinds.values()):
        chosen += [kind.pop(0) for kind in kinds.values() if kind]
    assert len(chosen) >= number, f"{data} has {len(chosen)} pages only"
    return [
        Real(question, url_of(path.read_bytes(), "image/png" if path.suffix == ".png" else "image/jpeg"))
        for path, question in chosen[:number]
    ]


@dataclass(frozen=True)
class Counted:
    """What the gateway predicted and what the server counted, for one request of the official client."""

    how: str
    predicted: int
    counted: int | None
    text: str


def ask_all(base_url: str, model: str, pages: list[Real]) -> list[Counted]:
    """A third with the plain client, a third streamed, a third with the asynchronous one, four at a time."""
    third = len(pages) // 3
    with openai.OpenAI(base_url=base_url, api_key="k", max_retries=0, timeout=300) as client:
        found = [_plain(client, model, page) for page in pages[:third]]
        found += [_streamed(client, model, page) for page in pages[third : 2 * third]]
    return found + asyncio.run(_at_once(base_url, model, pages[2 * third :]))


def _body(model: str, page: Real) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": page.url}}, {"type": "text", "text": page.question}]
    return {"model": model, "messages": [{"role": "user", "content": parts}], "temperature": 0, "max_tokens": 4}


def _image_tokens(usage: Any) -> int | None:
    details = usage.model_dump()["prompt_tokens_details"] if usage is not None else None
    return details["multimodal_tokens"]["image"] if details else None


def _plain(client: openai.OpenAI, model: str, page: Real) -> Counted:
    raw = client.chat.completions.with_raw_response.create(**_body(model, page))
    answer = raw.parse()
    text = answer.choices[0].message.content or ""
    return Counted("plain", int(raw.headers["x-stakes-predicted-tokens"]), _image_tokens(answer.usage), text)


def _streamed(client: openai.OpenAI, model: str, page: Real) -> Counted:
    body = {**_body(model, page), "stream": True, "stream_options": {"include_usage": True}}
    with client.chat.completions.with_streaming_response.create(**body) as raw:
        chunks = list(raw.parse())
        predicted = int(raw.headers["x-stakes-predicted-tokens"])
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return Counted("streamed", predicted, _image_tokens(chunks[-1].usage), text)


async def _at_once(base_url: str, model: str, pages: list[Real]) -> list[Counted]:
    places = asyncio.Semaphore(4)
    async with openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0, timeout=300) as client:

        async def one(page: Real) -> Counted:
            async with places:
                raw = await client.chat.completions.with_raw_response.create(**_body(model, page))
            answer = raw.parse()
            text = answer.choices[0].message.content or ""
            return Counted("async", int(raw.headers["x-stakes-predicted-tokens"]), _image_tokens(answer.usage), text)

        return list(await asyncio.gather(*(one(page) for page in pages)))


def message_all(address: str, model: str, pages: list[Real]) -> list[Counted]:
    """The same with Anthropic's client: a third plain, a third streamed, a third as the result of a tool.

    The server states the whole prompt; ``counted`` is what the image adds to the same message without it, without the
    markers around it.
    """
    with anthropic.Anthropic(base_url=address, api_key="k", max_retries=0, timeout=300) as client:
        return [_message(client, model, page, ("plain", "streamed", "tool")[i % 3]) for i, page in enumerate(pages)]


def _message(client: anthropic.Anthropic, model: str, page: Real, how: str) -> Counted:
    body = _message_body(model, page, how, with_image=True)
    if how == "streamed":
        with client.messages.stream(**body) as stream:
            message, headers = stream.get_final_message(), stream.response.headers
    else:
        raw = client.messages.with_raw_response.create(**body)
        message, headers = raw.parse(), raw.headers
    without = _message_body(model, page, how, with_image=False)
    text = client.messages.count_tokens(model=model, messages=without["messages"]).input_tokens
    markers = 6 if how == "tool" else 2  # around the image; vLLM makes a turn of its own for the images of a tool
    used = message.usage
    prompt = used.input_tokens + (used.cache_read_input_tokens or 0) + (used.cache_creation_input_tokens or 0)
    answer = "".join(block.text for block in message.content if block.type == "text")
    return Counted(how, int(headers["x-stakes-predicted-tokens"]), prompt - text - markers, answer)


def _message_body(model: str, page: Real, how: str, with_image: bool) -> dict[str, Any]:
    images = [image_block(page.url)] if with_image else []
    text = {"type": "text", "text": page.question}
    turns: list[dict[str, Any]] = [{"role": "user", "content": [*images, text]}]
    if how == "tool":
        called = {"type": "tool_use", "id": "t1", "name": "scan", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "done"}, *images]}
        turns = [
            {"role": "user", "content": [text]},
            {"role": "assistant", "content": [called]},
            {"role": "user", "content": [result]},
        ]
    return {"model": model, "messages": turns, "max_tokens": 4}
