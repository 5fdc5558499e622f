"""Where in a request are its images, and what does it ask? For chat completions and responses.

Images are looked for everywhere below ``messages`` or ``input``: any object with an ``image_url`` (an address, or an
object with a ``url``), so also in tool results and in the short forms that vLLM takes. The question is the text of the
last user message, part by part.

    call = read_call("chat", parse(body))
    call.images[0].url, call.texts        # 'data:image/png;base64,…', ('What is the total?',)
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Literal
from urllib.parse import quote, unquote_to_bytes

from stakes.gateway.proxy.errors import Refused

Api = Literal["chat", "responses"]
_UNCOUNTED = {"image_embeds", "image_pil", "image"}  # images in forms that carry no address


@dataclass
class ImageRef:
    """One image where it stands: ``holder[key]`` is its address; ``part`` is the object that has ``image_url``."""

    part: dict[str, Any]
    holder: dict[str, Any]
    key: str

    @property
    def url(self) -> str:
        """Its address; a data URL holds the image itself."""
        address: str = self.holder[self.key]
        return address

    @url.setter
    def url(self, address: str) -> None:
        self.holder[self.key] = address

    @property
    def detail(self) -> Any:
        """OpenAI's ``detail``: beside the address in chat completions and in responses."""
        return self.holder.get("detail")

    @detail.setter
    def detail(self, value: str) -> None:
        if self.holder is self.part and self.part.get("type") != "input_image":  # {"image_url": "…"}: make room for it
            self.holder, self.key = {"url": self.url}, "url"
            self.part["image_url"] = self.holder
        self.holder["detail"] = value


@dataclass(frozen=True)
class Call:
    """What one request holds; ``hidden`` counts images without an address (an uploaded file's id, embeddings)."""

    api: Api
    record: dict[str, Any]
    images: tuple[ImageRef, ...]
    hidden: int
    texts: tuple[str, ...]
    tiers: tuple[str, ...]  # metadata.stakes_tier: one, or several with commas between
    task: str | None  # metadata.stakes_task
    cost: object = None  # metadata.stakes_cost, whatever it is


def may_hold_image(body: bytes) -> bool:
    """Cheap and never wrong in saying no: every key that brings an image has "image" in it, plain or escaped."""
    return b"image" in body or b"\\u" in body or b"\x00" in body


def parse(body: bytes) -> dict[str, Any]:
    """The body as JSON that every reader reads alike: UTF-8, an object, no key twice, no NaN, not too deep."""
    try:
        record = json.loads(body.decode("utf-8"), object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
    except _Ambiguous as error:
        raise Refused(400, "ambiguous_json", str(error)) from None
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise Refused(400, "bad_json", "the body is not JSON in UTF-8") from None
    if not isinstance(record, dict):
        raise Refused(400, "bad_json", "the body is JSON, but not an object")
    return record


def dump(record: dict[str, Any]) -> bytes:
    """The changed body."""
    try:
        return json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError):  # 1e999 became infinity
        raise Refused(400, "bad_json", "the body holds a number that JSON cannot carry") from None


def dump_images(record: dict[str, Any], refs: Sequence[ImageRef]) -> bytes:
    """The changed body; ``refs``: images that were measured, whose addresses hold nothing that JSON would escape.

    They are put in afterwards: looking through a megabyte for what is not there takes 4 ms.
    """
    mark, urls = token_hex(16), [ref.url for ref in refs]
    try:
        for place, ref in enumerate(refs):
            ref.url = f"{mark}:{place}."
        body = dump(record)
    finally:
        for ref, url in zip(refs, urls, strict=True):
            ref.url = url
    for place, url in enumerate(urls):
        body = body.replace(f"{mark}:{place}.".encode(), url.encode("ascii"), 1)
    return body


def read_call(api: Api, record: dict[str, Any]) -> Call:
    """Find the images, the question and what ``metadata`` says of the tier."""
    turns = record.get("messages" if api == "chat" else "input")
    images, hidden = [], 0
    for one in _objects(turns):
        if "image_url" in one:
            found = one["image_url"]
            if isinstance(found, str):
                images.append(ImageRef(one, one, "image_url"))
            elif isinstance(found, dict) and isinstance(found.get("url"), str):
                images.append(ImageRef(one, found, "url"))
            elif found is None and one.get("file_id"):
                hidden += 1
            else:
                raise Refused(422, "bad_image_url", "an image_url is neither an address nor an object with a url")
        elif one.get("type") in _UNCOUNTED or (one.get("type") == "input_image" and one.get("file_id")):
            hidden += 1
    metadata = record.get("metadata")
    said = metadata if isinstance(metadata, dict) else {}
    tier, task = said.get("stakes_tier"), said.get("stakes_task")
    return Call(
        api=api,
        record=record,
        images=tuple(images),
        hidden=hidden,
        texts=_question(turns),
        tiers=split_tiers(tier) if isinstance(tier, str) else (),
        task=task if isinstance(task, str) else None,
        cost=said.get("stakes_cost"),
    )


def split_tiers(text: str) -> tuple[str, ...]:
    """``high, low`` as two names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside, in reading order; the address object of an image is not one of its own."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            yield one
            stack.extend(reversed([inner for key, inner in one.items() if key != "image_url"]))
        elif isinstance(one, list):
            stack.extend(reversed(one))


def _question(turns: Any) -> tuple[str, ...]:
    """The last user message's text, one piece for each part that has any."""
    if isinstance(turns, str):
        return (turns,)
    for turn in reversed(turns) if isinstance(turns, list) else ():
        if isinstance(turn, dict) and turn.get("role") == "user":
            content = turn.get("content")
            parts = content if isinstance(content, list) else [content]
            texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
            return tuple(text for text in texts if isinstance(text, str) and text.strip())
    return ()


class _Ambiguous(Exception):
    pass


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise _Ambiguous("the body names a key twice in one object; servers differ in which one they read")
    return record


def _no_constant(name: str) -> None:
    raise _Ambiguous(f"the body holds {name}, which is not JSON")


# Is this a request that is served here, and which API is it? By its method, its path and its headers alone.
#
# The path is the one at the upstream, since that is where images are read: bases end in /v1, /v1beta/openai, a
# deployment's name or nothing. What some servers do not tell apart (case, a slash at the end, parameters) is one here.
#
#     api_of("POST", "/v1beta/openai/chat/completions")      # 'chat'


_READ = re.compile(r"/(?:chat(?:;[^/]*)?/(?P<chat>completions)|responses)(?:;[^/]*)?/?\Z", re.IGNORECASE)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO = frozenset({b"", b"0", b"false", b"no", b"off"})
_ONCE = frozenset(
    {
        b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"authorization", b"content-type",
        b"x-stakes-tier", b"x-stakes-bypass", b"x-stakes-task", b"x-stakes-cost",
    }
)  # fmt: skip


def is_yes(value: bytes) -> bool:
    """Whether a header that is set means it: anything but nothing, 0, false, no and off."""
    return value.strip().lower() not in _NO


def api_of(method: str, path: str) -> Api | None:
    """The API of a request whose body is read; None for whatever passes as it is; ``path``: the upstream's."""
    found = _READ.search(path) if method == "POST" else None
    return None if found is None else "chat" if found["chat"] else "responses"


def headers_of(scope: Mapping[str, Any]) -> dict[bytes, bytes]:
    """The headers by name; those that must stand once and do not, or that change what a connection is, are 400."""
    if scope["method"] not in _METHODS:
        raise Refused(405, "bad_method", "this method is not served here")
    seen: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in seen and name in _ONCE:
            raise Refused(400, "bad_headers", f"{name.decode('ascii')} stands twice in the headers")
        seen[name] = value
    if b"upgrade" in seen:
        raise Refused(400, "bad_headers", "connections are not upgraded here; leave the upgrade header out")
    if b"host" not in seen and scope["http_version"] == "1.1":
        raise Refused(400, "bad_headers", "the host header is missing")
    if b"transfer-encoding" in seen and b"content-length" in seen:
        raise Refused(400, "bad_headers", "a body has a length or a transfer encoding, not both")
    return seen


# How does text that is not ASCII travel in a header? Percent-encoded UTF-8 going out, that or plain UTF-8 coming in.
#
#     plain("高 10%")                        # b'%E9%AB%98 10%'
#     names("高,low".encode()), names(b"%E9%AB%98,low")      # ('高', 'low'), ('高', 'low')
#
# Printable ASCII stands as it is, but for a "%" that two hexadecimal digits follow: it goes as %25, so that decoding
# gives back what was meant. Bytes that are no UTF-8 are read as latin-1, which is what old clients send.


MOST_BYTES = 1200  # of one value: some servers take 4 KB for all headers of an answer
_TO_ENCODE = re.compile(r"[^ -~]|%(?=[0-9A-Fa-f]{2})")


def plain(text: str) -> bytes:
    """Text as a header can carry it, cut after a whole letter: a client's words must not become other headers."""
    if not _TO_ENCODE.search(text):
        return text[:MOST_BYTES].encode("ascii")
    out: list[str] = []
    left = MOST_BYTES
    for place, letter in enumerate(text[:MOST_BYTES]):
        piece = quote(letter, safe="", errors="replace") if _TO_ENCODE.match(text, place) else letter
        left -= len(piece)
        if left < 0:
            break
        out.append(piece)
    return "".join(out).encode("ascii")


def text_of(value: bytes | str) -> str:
    """What a header's value says; ``str``: as servers hand values on that take every byte for a letter of latin-1."""
    data = unquote_to_bytes(value if isinstance(value, bytes) else _bytes(value))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def names(value: bytes | str) -> tuple[str, ...]:
    """``high, low`` as two names; a comma of a name's own is sent as %2C."""
    data = value if isinstance(value, bytes) else _bytes(value)
    return tuple(name for part in data.split(b",") if (name := text_of(part).strip()))


def _bytes(value: str) -> bytes:
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace")
