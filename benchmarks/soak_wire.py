"""How does a soak's client speak HTTP? By hand, so that nothing a library would mend goes unseen."""

from __future__ import annotations

import asyncio
import json


def request(path: str, body: bytes, more: str = "") -> bytes:
    """One POST."""
    head = f"POST {path} HTTP/1.1\r\nhost: soak\r\ncontent-type: application/json\r\n{more}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def ends_well(body: bytes) -> bool:
    """Whether a stream came to its own end."""
    return body.rstrip().endswith(b"[DONE]") or b"response.completed" in body


def words(body: bytes) -> str:
    """All text of an answer, whole or streamed."""
    if not body.startswith((b"data:", b"event:")):
        return body.decode("utf-8", "replace")
    events = [json.loads(line[5:]) for line in body.split(b"\n") if line.startswith(b"data:") and b"{" in line]
    pieces = [choice["delta"].get("content", "") for event in events for choice in event.get("choices", ())]
    return "".join(pieces) or body.decode("utf-8", "replace")


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of one answer, whole by its own framing."""
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
        except asyncio.IncompleteReadError:  # a stream must be told that it is broken: then this judges it as it is
            if not headers.get("content-type", "").startswith("text/event"):
                raise
            headers["connection"] = "close"
    return int(lines[0].split()[1]), headers, bytes(body)
