"""PDFs in the parts of a request: found, and replaced by one image part for each page.

| API | part |
|---|---|
| chat completions | ``{"type": "file", "file": {"file_data": "data:application/pdf;base64,…"}}`` |
| responses | ``{"type": "input_file", "file_data": "data:application/pdf;base64,…"}`` |
| messages | ``{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "…"}}`` |

Files by id or address, other formats, and documents whose citations are asked for stay as they are, and so are unread.
"""

import re
import time
from collections.abc import Iterator
from typing import Any

from stakes.gateway.pdf.renderer import PdfPage, PdfRenderer
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.images import read_base64
from stakes.gateway.proxy.scan import TURNS, Api
from stakes.gateway.settings import Limits, Settings

_MAY = (b'"file"', b'"input_file"', b'"document"', b"\\u")
_SEARCHED = 8 << 20  # bytes of a body that are searched before it waits in line
_HEAD = re.compile(r"data:application/pdf(?:;[a-z0-9.=+_-]{1,64}){0,4};base64,", re.IGNORECASE)
_START = "JVBERi0"  # %PDF- in base64


class PdfParts:
    """The PDFs of one gateway's requests, as ``--pdf`` says: drawn, or found and left."""

    def __init__(self, settings: Settings) -> None:
        self._limits = settings.limits
        self._renderer = PdfRenderer(settings.limits) if settings.pdf == "render" else None

    def work_size(self, body: bytes) -> int:
        """How large the work of reading a body is: opening a PDF may take seconds, whatever its bytes."""
        if self._renderer is None or (len(body) <= _SEARCHED and not _may_hold_pdf(body)):
            return len(body)
        return self._limits.small_decode_bytes + 1

    def read(self, api: Api, body: bytes, record: dict[str, Any]) -> tuple[dict[int, PdfPage], tuple[str, ...]]:
        """The pages that were put in place of PDFs, by the ``id`` of each new part; the types of PDFs that are left."""
        if not _may_hold_pdf(body):
            return {}, ()
        if self._renderer is None:
            return {}, tuple(part["type"] for _, part, _ in _find(api, record))
        return expand_pdfs(api, record, self._renderer, self._limits), ()

    def close(self) -> None:
        """End the processes that draw."""
        if self._renderer is not None:
            self._renderer.close()


def _may_hold_pdf(body: bytes) -> bool:
    """A check without false negatives, at the speed of memory: an expression would hold the interpreter for seconds."""
    return any(name in body for name in _MAY)


def expand_pdfs(api: Api, record: dict[str, Any], renderer: PdfRenderer, limits: Limits) -> dict[int, PdfPage]:
    """Put pages in place of the PDFs of a request; by the ``id`` of each new part, its page."""
    pages: dict[int, PdfPage] = {}
    ends = time.monotonic() + limits.pdf_s
    for number, (parts, part, text) in enumerate(list(_find(api, record)), 1):
        if time.monotonic() > ends:
            raise Refused(
                422, "pdf_over_limit", "the PDFs of a request take too long to open; send their pages as images"
            )
        drawn = renderer.pages(_decode(text, limits), str(number), limits.images)
        if len(pages) + len(drawn) > limits.images:
            raise Refused(422, "too_many_images", f"a request may hold {limits.images} images at most")
        made = [_image_part(api, f"{page.key}.{page.index}") for page in drawn]
        if "cache_control" in part:
            made[-1]["cache_control"] = part["cache_control"]
        at = next(i for i, one in enumerate(parts) if one is part)
        parts[at : at + 1] = made
        pages |= {id(one): page for one, page in zip(made, drawn, strict=True)}
    return pages


def _find(api: Api, record: dict[str, Any]) -> Iterator[tuple[list[Any], dict[str, Any], str]]:
    """(list, part, base64) of each PDF below the turns, in reading order."""
    stack: list[tuple[list[Any], Any]] = [([], record.get(TURNS[api]))]  # (the list that it is in, if any; the value)
    while stack:
        parts, item = stack.pop()
        if isinstance(item, list):
            stack.extend((item, one) for one in reversed(item))
        elif isinstance(item, dict):
            if parts and (text := _base64_of(item)) is not None:
                yield parts, item, text
            elif item.get("type") != "tool_use":  # what a tool was called with
                stack.extend(([], one) for one in reversed(item.values()))


def _base64_of(part: dict[str, Any]) -> str | None:
    """The base64 of a part that is a PDF."""
    kind = part.get("type")
    if kind == "document":
        source, citations = part.get("source"), part.get("citations")
        wanted = isinstance(citations, dict) and citations.get("enabled")
        if not isinstance(source, dict) or source.get("type") != "base64" or wanted:
            return None
        text = source.get("data") if source.get("media_type") == "application/pdf" else None
        return text if isinstance(text, str) else None
    holder = part.get("file") if kind == "file" else part if kind == "input_file" else None
    text = holder.get("file_data") if isinstance(holder, dict) and not holder.get("file_id") else None
    if not isinstance(text, str):
        return None
    head = _HEAD.match(text[:200])
    return text[head.end() :] if head else text if text.startswith(_START) else None


def _decode(text: str, limits: Limits) -> bytes:
    if len(text) * 3 // 4 > limits.image_bytes + 2:
        raise Refused(413, "image_too_large", f"a PDF has more than {limits.image_bytes} bytes; send a smaller one")
    return read_base64(text, "a PDF")


def _image_part(api: Api, name: str) -> dict[str, Any]:
    """An image part without its image; ``name`` stands for it until it is drawn."""
    if api == "messages":
        return {"type": "image", "source": {"type": "base64", "media_type": "application/pdf", "data": name}}
    url = f"data:application/pdf;page={name},"
    if api == "responses":
        return {"type": "input_image", "image_url": url}
    return {"type": "image_url", "image_url": {"url": url}}
