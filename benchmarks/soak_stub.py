"""An upstream with failure modes: slow, half-closed, or closed before it answers.

    python benchmarks/soak_stub.py --port 8000                 # then: curl http://127.0.0.1:8000/mode/half

It answers ``id <user>``, so that a client can check that the answer is its own, counts image tokens as a Qwen2.5-VL
server does, and streams on request.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import random
from typing import Any

MODES = ("good", "slow", "half", "mute")
rng = random.Random(0)
mode = "good"


async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection until either side ends it."""
    try:
        while await one_request(reader, writer):
            pass
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()


async def one_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Read and answer one request; whether the connection continues."""
    global mode
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, path = head.split(" ", 2)[:2]
    length = next((int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:")), 0)
    body = await reader.readexactly(length)
    if path.startswith("/mode/"):
        mode = path.removeprefix("/mode/")
        return await whole(writer, 200, {"mode": mode})
    if method == "GET":
        return await whole(writer, 200, {"object": "list", "data": [{"id": "stub", "object": "model"}]})
    try:
        record = json.loads(body)
        answer = about(record, path)
    except Exception:  # a fuzzer may send anything: an upstream answers 400 and continues
        return await whole(
            writer, 400, {"type": "error", "error": {"message": "not a request", "type": "x", "code": "stub"}}
        )
    if mode == "mute" and rng.random() < 0.5:
        return False
    if mode == "slow":
        await asyncio.sleep(rng.uniform(0.1, 1.0))
    half = mode == "half" and rng.random() < 0.6
    if record.get("stream"):
        return await stream(writer, answer, path, half)
    return await whole(writer, 200, answer, half)


def about(record: dict[str, Any], path: str) -> dict[str, Any]:
    """The whole answer."""
    words, tokens = f"id {record.get('user')}", image_tokens(record.get("messages") or record.get("input"))
    details = {"cached_tokens": 0, "multimodal_tokens": {"image": tokens}}
    if path.startswith("/v1/responses"):
        part = {"type": "output_text", "text": words, "annotations": []}
        message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
        used = {"input_tokens": 10 + tokens, "output_tokens": 1, "input_tokens_details": details}
        return {"id": "r", "object": "response", "model": "stub", "output": [message], "usage": used}
    if path.startswith("/v1/messages"):
        block, used = {"type": "text", "text": words}, {"input_tokens": 10 + tokens, "output_tokens": 1}
        return {"id": "m", "type": "message", "role": "assistant", "model": "stub", "content": [block], "usage": used}
    message = {"role": "assistant", "content": words}
    used = {"prompt_tokens": 10 + tokens, "completion_tokens": 1, "prompt_tokens_details": details}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "model": "stub", "choices": [choice], "usage": used}


def image_tokens(value: Any) -> int:
    """Tokens of every image inside."""
    from PIL import Image

    from stakes import count_tokens

    if isinstance(value, list):
        return sum(image_tokens(one) for one in value)
    if not isinstance(value, dict):
        return 0
    found = value.get("image_url")
    url = found.get("url") if isinstance(found, dict) else found
    inside = sum(image_tokens(one) for key, one in value.items() if key != "image_url")
    if not isinstance(url, str) or not url.startswith("data:"):
        return inside
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
        return inside + count_tokens("qwen2.5-vl", *image.size)


async def whole(writer: asyncio.StreamWriter, status: int, record: Any, half: bool = False) -> bool:
    """Answer with JSON; ``half``: only the first half of the stated length is sent."""
    body = json.dumps(record).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    writer.write(head + (body[: len(body) // 2] if half else body))
    await writer.drain()
    if half:
        writer.write_eof()
        await asyncio.sleep(0.2)
    return not half


async def stream(writer: asyncio.StreamWriter, answer: dict[str, Any], path: str, half: bool) -> bool:
    """The same as events; ``half``: it stops after the first, by an end of file or an abort."""
    writer.write(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for number, event in enumerate(events(answer, path)):
        writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        await writer.drain()
        if half and number == 0:
            await asyncio.sleep(0.02)
            writer.transport.abort() if rng.random() < 0.5 else writer.write_eof()
            return False
        await asyncio.sleep(rng.uniform(0, 0.3) if mode == "slow" else 0.001)
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


def events(answer: dict[str, Any], path: str) -> list[bytes]:
    """An answer as the events of its API."""
    if path.startswith("/v1/responses"):
        made = [
            {"type": "response.created", "response": {"id": "r"}},
            {"type": "response.completed", "response": answer},
        ]
    if path.startswith("/v1/messages"):
        made = [{"type": "message_start", "message": answer}, {"type": "message_stop"}]
    if path.startswith(("/v1/responses", "/v1/messages")):
        return [b"event: %s\ndata: %s\n\n" % (str(one["type"]).encode(), json.dumps(one).encode()) for one in made]
    words = answer["choices"][0]["message"]["content"]
    deltas: list[Any] = [{"index": 0, "delta": {"content": piece}} for piece in (words[:2], words[2:])]
    frames = [{"choices": [delta]} for delta in deltas] + [{"choices": [], "usage": answer["usage"]}]
    return [b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames] + [b"data: [DONE]\n\n"]


async def serve(port: int) -> None:
    """Serve until the process is killed."""
    server = await asyncio.start_server(connection, "127.0.0.1", port, limit=1 << 26)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(serve(parser.parse_args().port))
