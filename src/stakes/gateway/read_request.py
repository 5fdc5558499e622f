"""Where in a request are its images, and what does it ask? For chat completions and responses.

Images are looked for everywhere below ``messages`` or ``input``: any object with an ``image_url`` (an address, or an
object with a ``url``), so also in tool results and in the short forms that vLLM takes. The question is the text of the
last user message, part by part.

    call = read_call("chat", parse(body))
    call.images[0].url, call.texts        # 'data:image/png;base64,…', ('What is the total?',)
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Literal

from stakes.gateway.refusal import Refused

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
