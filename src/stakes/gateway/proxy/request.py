"""Reads a request: what its headers ask for, its JSON, where its images are and what the question is.

Images are looked for everywhere below ``messages`` or ``input``: any object with an ``image_url`` (an address, or an
object with a ``url``), so also in tool results and in the short forms that vLLM accepts (``scan``). What the request
says is its prompt (``signals/prompt.py``).

    call = read_call("chat", parse(body))
    call.images[0].url, call.prompt.question               # 'data:image/png;base64,…', 'What is the total?'

Text that is not ASCII travels in a header as percent-encoded UTF-8; plain UTF-8 is accepted too. Printable ASCII stays
as it is, except for a "%" before two hexadecimal digits: it becomes %25, so that decoding gives back the same text.

    encode_header("高 10%")                                 # b'%E9%AB%98 10%'
    tier_names("高,low".encode()), tier_names(b"%E9%AB%98,low")        # ('高', 'low'), ('高', 'low')
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import accumulate
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_to_bytes

from stakes.gateway.proxy.clients import CREDENTIALS
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.scan import Api, ImageRef, find_images
from stakes.signals.prompt import Prompt, read_prompt

if TYPE_CHECKING:
    from yarl import URL

    from stakes.gateway.pdf.renderer import PdfPage

NO_PROMPT = Prompt()
MOST_BYTES = 1200  # of one header value: some servers accept 4 KB for all headers of a response
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FALSE = frozenset({b"", b"0", b"false", b"no", b"off"})
_HEADERS = frozenset({b"x-stakes-tier", b"x-stakes-bypass", b"x-stakes-task", b"x-stakes-cost", b"x-stakes-group"})
_METADATA = frozenset({"stakes_tier", "stakes_task", "stakes_cost"})
_ONCE = _HEADERS | {
    b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"authorization", b"content-type",
    b"x-api-key", b"api-key",
}  # fmt: skip
_TO_ENCODE = re.compile(r"[^ -~]|%(?=[0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as the client sent it; ``url`` is its address at the upstream, ``client`` the client's own."""

    url: "URL"
    headers: list[tuple[bytes, bytes]]
    body: bytes
    encoding: bytes
    client: str = ""


@dataclass(frozen=True)
class ClientHints:
    """What the client asks for in ``x-stakes-`` headers or in ``metadata``; ``cost`` is not checked yet.

    ``tiers``: one, or several separated by commas. ``sender``: a digest of the credentials that came with it.
    """

    tiers: tuple[str, ...] = ()
    task: str | None = None
    bypass: bool = False
    cost: object = None
    sender: str = field(default="", repr=False)

    @classmethod
    def from_headers(cls, headers: Mapping[bytes, bytes]) -> "ClientHints":
        """Read the headers; their names are in lower case."""
        credentials = b" ".join(headers[name] for name in CREDENTIALS if name in headers)
        return cls(
            tiers=tier_names(headers.get(b"x-stakes-tier", b"")),
            task=decode_header(headers.get(b"x-stakes-task", b"")) or None,
            bypass=headers.get(b"x-stakes-bypass", b"").strip().lower() not in _FALSE,
            cost=headers.get(b"x-stakes-cost", b"").decode("latin-1").strip(),
            sender=hashlib.sha256(credentials).hexdigest() if credentials else "",
        )

    @classmethod
    def from_metadata(cls, metadata: Any) -> "ClientHints":
        """Read ``stakes_tier``, ``stakes_task`` and ``stakes_cost``; a tier or a task that is not a text is ignored."""
        given = metadata if isinstance(metadata, dict) else {}
        for name in given:
            if name.startswith("stakes_") and name not in _METADATA:
                raise Refused(400, "unknown_metadata", f"metadata has no {name!r:.60}; {_nearest(name, _METADATA)}")
        tier, task = given.get("stakes_tier"), given.get("stakes_task")
        tiers = tuple(name.strip() for name in tier.split(",") if name.strip()) if isinstance(tier, str) else ()
        return cls(tiers, task if isinstance(task, str) else None, cost=given.get("stakes_cost"))


@dataclass(frozen=True)
class Call:
    """The content of one request.

    ``unread``: names of what may be an image and is not read (a video, a file's id, embeddings). ``parameters``: names
    of engine parameters that change how many tokens an image takes. ``pages``: of PDFs, by the ``id`` of an image part.
    ``pdfs``: those of ``unread`` that are PDFs, where they are treated in another way.
    """

    record: dict[str, Any]
    images: tuple[ImageRef, ...] = ()
    unread: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    prompt: Prompt = NO_PROMPT
    hints: ClientHints = ClientHints()
    pages: "Mapping[int, PdfPage]" = field(default_factory=dict)
    pdfs: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Images, read or not."""
        return len(self.images) + len(self.unread)


def check_names(headers: Mapping[bytes, bytes]) -> Refused | None:
    """The refusal of a header that begins as the gateway's do and is none of them."""
    for name in headers:
        if name.startswith(b"x-stakes-") and name not in _HEADERS:
            text = name.decode("latin-1")
            known = [one.decode() for one in _HEADERS]
            return Refused(400, "unknown_header", f"there is no header {text!r:.60}; {_nearest(text, known)}")
    return None


def _nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the name that was meant; all begin alike, so only their ends are compared."""
    ends = {re.split("[-_]", one)[-1]: one for one in known}
    near = get_close_matches(re.split("[-_]", name, maxsplit=name.count("x-") + 1)[-1], ends, n=1)
    return f"did you mean {ends[near[0]]}?" if near else f"there are {', '.join(sorted(known))}"


def headers_of(scope: Mapping[str, Any]) -> dict[bytes, bytes]:
    """The headers by name; 400 for one that is repeated and must not be, and for ambiguous framing."""
    if scope["method"] not in _METHODS:
        raise Refused(405, "bad_method", "this method is not supported")
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in headers and name in _ONCE:
            raise Refused(400, "bad_headers", f"the header {name.decode('ascii')} occurs twice")
        headers[name] = value
    if b"upgrade" in headers:
        raise Refused(400, "bad_headers", "connections cannot be upgraded; leave the upgrade header out")
    if b"host" not in headers and scope["http_version"] == "1.1":
        raise Refused(400, "bad_headers", "the host header is missing")
    if b"transfer-encoding" in headers and b"content-length" in headers:
        raise Refused(400, "bad_headers", "a body has a length or a transfer encoding, not both")
    return headers


def parse(body: bytes) -> dict[str, Any]:
    """The body as JSON that all parsers read alike: UTF-8, an object, no repeated key, no NaN, not too deep."""
    try:
        record = json.loads(body.decode("utf-8"), object_pairs_hook=unique_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise Refused(400, "bad_json", "the body is not JSON in UTF-8") from None
    if not isinstance(record, dict):
        raise Refused(400, "bad_json", "the body is JSON, but not an object")
    return record


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; 400 for one that repeats a key."""
    record = dict(pairs)
    if len(record) != len(pairs):
        message = "the body repeats a key in one object; servers differ in which one they read"
        raise Refused(400, "ambiguous_json", message)
    return record


def _refuse_constant(name: str) -> None:
    raise Refused(400, "ambiguous_json", f"the body holds {name}, which is not JSON")


def dump(record: dict[str, Any]) -> bytes:
    """The changed body."""
    try:
        return json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError):  # 1e999 was parsed as infinity
        raise Refused(400, "bad_json", "the body holds a number that JSON cannot represent") from None


def dump_images(record: dict[str, Any], refs: Sequence[ImageRef]) -> bytes:
    """The changed body; ``refs``: measured images, whose addresses hold no character that JSON escapes.

    Their addresses are inserted after the rest was written: searching a megabyte for characters to escape takes 4 ms.
    """
    nonce, texts = token_hex(16), [ref.holder[ref.key] for ref in refs]
    marks = [f"{nonce}:{i}." for i in range(len(refs))]
    try:
        for ref, mark in zip(refs, marks, strict=True):
            ref.holder[ref.key] = mark
        body = dump(record)
    finally:
        for ref, text in zip(refs, texts, strict=True):
            ref.holder[ref.key] = text
    for mark, text in zip(marks, texts, strict=True):
        body = body.replace(mark.encode(), text.encode("ascii"), 1)
    return body


def read_call(api: Api, record: dict[str, Any]) -> Call:
    """Find the images, the question and what ``metadata`` asks for."""
    found = find_images(record, api)
    hints = ClientHints.from_metadata(record.get("metadata"))
    parts = tuple(found.images), tuple(found.unread), tuple(found.parameters)
    return Call(record, *parts, read_prompt(api, record), hints)


def encode_header(text: str) -> bytes:
    """Text as a header value, cut after a whole character; line breaks cannot start another header."""
    if not _TO_ENCODE.search(text):
        return text[:MOST_BYTES].encode("ascii")
    letters = enumerate(text[:MOST_BYTES])
    pieces = [quote(one, safe="", errors="replace") if _TO_ENCODE.match(text, i) else one for i, one in letters]
    ends = accumulate(map(len, pieces))
    return "".join(piece for piece, end in zip(pieces, ends, strict=True) if end <= MOST_BYTES).encode("ascii")


def decode_header(value: bytes) -> str:
    """The text of a header value; bytes that are not UTF-8 are read as latin-1, which old clients send."""
    data = unquote_to_bytes(value)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def header_bytes(headers: Mapping[str, object]) -> dict[bytes, bytes]:
    """Headers that a server decoded as latin-1, or that hold any text, as bytes again; names in lower case."""
    texts = {name.lower().encode(): value for name, value in headers.items() if isinstance(value, str)}
    return {
        name: text.encode("latin-1" if max(map(ord, text), default=0) < 256 else "utf-8", "replace")
        for name, text in texts.items()
    }


def tier_names(value: bytes) -> tuple[str, ...]:
    """``high, low`` as two names; a comma inside a name is sent as %2C."""
    return tuple(name for part in value.split(b",") if (name := decode_header(part).strip()))
