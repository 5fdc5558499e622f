"""Reads a request: which API it calls, what its headers ask for, where its images are and what the question is.

Images are looked for everywhere below ``messages`` or ``input``: any object with an ``image_url`` (an address, or an
object with a ``url``), so also in tool results and in the short forms that vLLM accepts. What the request says is its
prompt (``signals/prompt.py``).

    api_of("POST", "/v1beta/openai/chat/completions")      # 'chat'
    call = read_call("chat", parse(body))
    call.images[0].url, call.prompt.question               # 'data:image/png;base64,…', 'What is the total?'

Text that is not ASCII travels in a header as percent-encoded UTF-8; plain UTF-8 is accepted too. Printable ASCII stays
as it is, except for a "%" before two hexadecimal digits: it becomes %25, so that decoding gives back the same text.

    encode_header("高 10%")                                 # b'%E9%AB%98 10%'
    tier_names("高,low".encode()), tier_names(b"%E9%AB%98,low")        # ('高', 'low'), ('高', 'low')
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from secrets import token_hex
from typing import Any, Literal
from urllib.parse import quote, unquote_to_bytes

from yarl import URL

from stakes.gateway.proxy.errors import Refused
from stakes.signals.prompt import Prompt, read_prompt

Api = Literal["chat", "responses"]
NO_PROMPT = Prompt()
MOST_BYTES = 1200  # of one header value: some servers accept 4 KB for all headers of a response
_UNCOUNTED = {"image_embeds", "image_pil", "image", "image_url"}  # no address, such as vLLM's cached image by uuid
_READ = re.compile(r"/(?:chat(?:;[^/]*)?/(?P<chat>completions)|responses)(?:;[^/]*)?/?\Z", re.IGNORECASE)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FALSE = frozenset({b"", b"0", b"false", b"no", b"off"})
_ONCE = frozenset(
    {
        b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"authorization", b"content-type",
        b"x-stakes-tier", b"x-stakes-bypass", b"x-stakes-task", b"x-stakes-cost",
        b"x-stakes-group",
    }
)  # fmt: skip
_TO_ENCODE = re.compile(r"[^ -~]|%(?=[0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as the client sent it; ``url`` is its address at the upstream, ``client`` the client's own."""

    url: URL
    headers: list[tuple[bytes, bytes]]
    body: bytes
    encoding: bytes
    client: str = ""


@dataclass(frozen=True)
class ClientHints:
    """What the client asks for in ``x-stakes-`` headers or in ``metadata``; ``cost`` is not checked yet.

    ``tiers``: one, or several separated by commas.
    """

    tiers: tuple[str, ...] = ()
    task: str | None = None
    bypass: bool = False
    cost: object = None

    @classmethod
    def from_headers(cls, headers: Mapping[bytes, bytes]) -> "ClientHints":
        """Read the headers; their names are in lower case."""
        return cls(
            tiers=tier_names(headers.get(b"x-stakes-tier", b"")),
            task=decode_header(headers.get(b"x-stakes-task", b"")) or None,
            bypass=headers.get(b"x-stakes-bypass", b"").strip().lower() not in _FALSE,
            cost=headers.get(b"x-stakes-cost", b"").decode("latin-1").strip(),
        )

    @classmethod
    def from_metadata(cls, metadata: Any) -> "ClientHints":
        """Read ``stakes_tier``, ``stakes_task`` and ``stakes_cost``; a tier or a task that is not a text is ignored."""
        given = metadata if isinstance(metadata, dict) else {}
        tier, task = given.get("stakes_tier"), given.get("stakes_task")
        tiers = tuple(name.strip() for name in tier.split(",") if name.strip()) if isinstance(tier, str) else ()
        return cls(tiers, task if isinstance(task, str) else None, cost=given.get("stakes_cost"))


@dataclass
class ImageRef:
    """One image in the request: ``holder[key]`` is its address; ``part`` is the object that has ``image_url``."""

    part: dict[str, Any]
    holder: dict[str, Any]
    key: str

    @property
    def url(self) -> str:
        """Its address; a data URL contains the image itself."""
        return str(self.holder[self.key])

    @url.setter
    def url(self, address: str) -> None:
        self.holder[self.key] = address

    @property
    def detail(self) -> Any:
        """OpenAI's ``detail``: next to the address in chat completions and in responses."""
        return self.holder.get("detail")

    @detail.setter
    def detail(self, value: str) -> None:
        if self.holder is self.part and self.part.get("type") != "input_image":  # {"image_url": "…"} needs an object
            self.holder, self.key = {"url": self.url}, "url"
            self.part["image_url"] = self.holder
        self.holder["detail"] = value


@dataclass(frozen=True)
class Call:
    """The content of one request; ``hidden`` counts images without an address (an uploaded file's id, embeddings)."""

    record: dict[str, Any]
    images: tuple[ImageRef, ...] = ()
    hidden: int = 0
    prompt: Prompt = NO_PROMPT
    hints: ClientHints = ClientHints()


def api_of(method: str, path: str) -> Api | None:
    """The API of a request whose body is read; None for a request that is forwarded unchanged.

    ``path`` is the path at the upstream, where base URLs end in /v1, /v1beta/openai, the name of a deployment or
    nothing. Some servers ignore case, a final slash and path parameters, so they are ignored here as well.
    """
    match = _READ.search(path) if method == "POST" else None
    return None if match is None else "chat" if match["chat"] else "responses"


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


def may_hold_image(body: bytes) -> bool:
    """A cheap check without false negatives: every key of an image contains "image", plain or escaped."""
    return b"image" in body or b"\\u" in body or b"\x00" in body


def parse(body: bytes) -> dict[str, Any]:
    """The body as JSON that all parsers read alike: UTF-8, an object, no repeated key, no NaN, not too deep."""
    try:
        record = json.loads(body.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise Refused(400, "bad_json", "the body is not JSON in UTF-8") from None
    if not isinstance(record, dict):
        raise Refused(400, "bad_json", "the body is JSON, but not an object")
    return record


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
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
    nonce, urls = token_hex(16), [ref.url for ref in refs]
    marks = [f"{nonce}:{i}." for i in range(len(refs))]
    try:
        for ref, mark in zip(refs, marks, strict=True):
            ref.url = mark
        body = dump(record)
    finally:
        for ref, url in zip(refs, urls, strict=True):
            ref.url = url
    for mark, url in zip(marks, urls, strict=True):
        body = body.replace(mark.encode(), url.encode("ascii"), 1)
    return body


def read_call(api: Api, record: dict[str, Any]) -> Call:
    """Find the images, the question and what ``metadata`` asks for."""
    turns = record.get("messages" if api == "chat" else "input")
    images, hidden = [], 0
    for item in _objects(turns):
        if "image_url" in item:
            address = item["image_url"]
            if isinstance(address, str):
                images.append(ImageRef(item, item, "image_url"))
            elif isinstance(address, dict) and isinstance(address.get("url"), str):
                images.append(ImageRef(item, address, "url"))
            elif address is None and (item.get("file_id") or item.get("uuid")):
                hidden += 1
            else:
                raise Refused(422, "bad_image_url", "an image_url is neither an address nor an object with a url")
        elif item.get("type") in _UNCOUNTED or (item.get("type") == "input_image" and item.get("file_id")):
            hidden += 1
    hints = ClientHints.from_metadata(record.get("metadata"))
    return Call(record, tuple(images), hidden, read_prompt(api, record), hints)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside, in reading order; the address object of an image is not visited."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack.extend(reversed([inner for key, inner in item.items() if key != "image_url"]))
        elif isinstance(item, list):
            stack.extend(reversed(item))


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
