"""Finds what is, or may be, an image: one table says what is done with a path, one walk looks through a body.

| path at the upstream ends in | what is done with a body |
|---|---|
| chat/completions, responses, messages | its images are read and budgeted |
| files, uploads, audio/…, detokenize | forwarded: nothing of it is read by a model as an image |
| messages/count_tokens | forwarded: counted only; addresses of private networks are refused |
| batches | refused: its requests are in a file that is not seen here |
| anything else | forwarded if nothing in it may be an image, else refused |

"Refused" is the default of ``--unread``; with ``pass`` such requests are forwarded and counted as uncompressed. Known
images are those that ``image_url`` holds below ``messages`` or ``input``, and in the Messages API a ``source``.
Everything else that names or looks like an image, a video or a file is unread: other parts (``video_url``, ``file``),
embeddings, ids of uploaded files, data URLs and base64 outside of text.

    route_of("POST", "/v1beta/openai/Chat/completions/")       # 'chat'
    find_images(record, "chat").images[0].url                  # 'data:image/png;base64,…'
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard

from stakes.gateway.proxy.errors import Refused

ReadApi = Literal["chat", "responses", "messages"]
Api = ReadApi | Literal["other"]
Action = ReadApi | Literal["pass", "count", "refuse", "scan"]
TURNS: dict[str, str] = {"chat": "messages", "responses": "input", "messages": "messages"}  # the key of what is read

ROUTES: tuple[tuple[str, Action], ...] = (
    (r"chat/completions", "chat"),
    (r"responses", "responses"),
    (r"threads/[^/]+/messages", "scan"),  # of assistants
    (r"messages", "messages"),
    (r"messages/count_tokens", "count"),
    (r"files|uploads(?:/[^/]+/(?:parts|complete))?|audio/(?:transcriptions|translations|speech)|detokenize", "pass"),
    (r"(?<!messages/)batches", "refuse"),
)
_ROUTES = [(re.compile(rf"(?:.*/)?(?:{ends})"), action) for ends, action in ROUTES]
_PARAMETERS = re.compile(r";[^/]*")  # of a path segment

# Schemas and tools name images without holding any.
_NOT_READ = frozenset(
    {
        "tools", "tool_choice", "functions", "function_call", "response_format", "output_format", "output_config",
        "text", "structured_outputs", "guided_json", "metadata",
    }
)  # fmt: skip
_KIND = re.compile(r"(?:\w+_)?(?:image|img|video|picture|photo|screenshot)\w*", re.IGNORECASE)
_KINDS = frozenset({"file", "input_file", "document", "media", "inline_data", "prompt_embeds"})
_KEY = re.compile(
    r"(?:input_?)?(?:image|img|video|picture|photo|screenshot)s?"
    r"(?:_?(?:url|uri|data|b64|base64|embeds?|pil|file|bytes|content|input))?s?",
    re.IGNORECASE,
)
_KEYS = frozenset(
    {
        "inline_data", "inlineData", "file_data", "fileData", "multi_modal_data", "multimodal_data", "mm_data",
        "mm_metadata", "kwargs_data", "pixel_values", "prompt_embeds",
    }
)  # fmt: skip
_BESIDE = frozenset(  # of an object with a type such as "screenshot"; alone they hold no image
    {"type", "id", "call_id", "status", "role", "name", "text", "title", "content", "context", "detail", "filename"}
)
_TEXT = frozenset(  # keys whose strings a model reads as text
    {
        "text", "content", "prompt", "arguments", "output", "query", "instructions", "system", "refusal", "thinking",
        "reasoning", "reasoning_content", "signature", "encrypted_content",
    }
)  # fmt: skip
_BASE64 = r"iVBORw0KGgo|/9j/|R0lGOD|UklGR|SUkqA|TU0AK|Qk[0-3]|JVBERi0|AAAA..Z0eX|AAAADGpQ"  # how each format begins
_DATA = re.compile(
    rf"\s{{0,4}}(?:(?i:data:(?:image|video|application/(?:pdf|octet-stream)))|(?:{_BASE64})[A-Za-z0-9+/_=-]{{40}})"
)
_MARKDOWN = re.compile(r"!\[[^\]]*\]\((?:data:|https?:)", re.IGNORECASE)  # how TGI takes images, in ``inputs``
# They set how many tokens an image takes: for a request, for a part, or beside an address.
ENGINE_PARAMETERS = frozenset(
    {
        "mm_processor_kwargs", "media_io_kwargs", "processor_kwargs", "images_kwargs", "vl_high_resolution_images",
        "media_resolution", "mediaResolution", "min_pixels", "max_pixels", "resized_height", "resized_width",
        "max_dynamic_patch", "min_dynamic_patch", "num_crops", "max_soft_tokens",
    }
)  # fmt: skip
# A cheap check for one of the above: a string begins so. Searching for quotes takes a tenth of the time of many words.
_MAY = re.compile(
    rb'"(?:(?:\w+_)?(?:image|img|video|picture|photo|screenshot|file["_D]|document"|media"|inline|prompt_embeds|mm_'
    rb'|multi_?modal_data|kwargs_data|pixel_values|inputs")|\s{0,4}(?:data:|'
    + _BASE64.replace("/9j/", r"\\?/9j").encode()
    + rb"))"
)
SEARCHED = 1 << 20  # bytes; a longer body is parsed without being searched


@dataclass
class ImageRef:
    """One image in the request: ``holder[key]`` is its address, or its base64 in a ``source`` of the Messages API.

    ``part``: the object that has ``image_url`` or ``source``.
    """

    part: dict[str, Any]
    holder: dict[str, Any]
    key: str

    @property
    def url(self) -> str:
        """Its address; a data URL contains the image itself."""
        text = str(self.holder[self.key])
        return text if self.key != "data" else f"data:{self.holder.get('media_type', 'image/jpeg')};base64,{text}"

    @url.setter
    def url(self, address: str) -> None:
        if self.holder is not self.part.get("source"):
            self.holder[self.key] = address
            return
        head, _, text = address.partition(",")
        kind = head.removeprefix("data:").removesuffix(";base64")
        self.holder.clear()
        self.holder.update(type="base64", media_type=kind, data=text)
        self.key = "data"

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

    def set_detail(self, defined: bool) -> None:
        """Leave no ``detail`` that takes other tokens than were counted; ``defined``: the family has low and high.

        Elsewhere it becomes "auto", because some servers act on it. Where it is defined, "auto" may choose either.
        """
        if self.holder is self.part.get("source"):  # the Messages API has none
            return
        if defined and self.detail != "low":
            self.detail = "high"
        elif not defined and self.detail is not None:
            self.detail = "auto"


@dataclass
class FoundImages:
    """What a body holds: images that are read, names of what is unread, and names of engine parameters."""

    images: list[ImageRef] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)


def route_of(method: str, path: str) -> Action:
    """What is done with a body, by the path at the upstream.

    There base URLs end in /v1, /v1beta/openai, the name of a deployment or nothing. Some servers ignore case, a final
    slash and path parameters, so they are ignored here as well.
    """
    plain = _PARAMETERS.sub("", path).lower().rstrip("/")
    for ends, action in _ROUTES if method == "POST" else ():
        if ends.fullmatch(plain):
            return action
    return "scan"


def is_read(action: Action) -> TypeGuard[ReadApi]:
    """Whether the images of such a request are read and budgeted."""
    return action in TURNS


def stream_api(action: Action, path: str) -> Api:
    """Whose events a stream has; those of /v1/completions end as those of chat completions do."""
    if is_read(action):
        return action
    return "chat" if path.lower().rstrip("/").endswith("/completions") else "other"


def may_hold_image(body: bytes) -> bool:
    """A cheap check of a JSON body without false negatives: a key or a value begins so, or is escaped."""
    return len(body) > SEARCHED or _MAY.search(body) is not None or b"\\u" in body or b"\x00" in body


def find_images(record: Any, api: Api) -> FoundImages:
    """Everything in a parsed body that is or may be an image; those of the API ``other`` are all unread."""
    found, turns = FoundImages(), TURNS.get(api)
    whole = record if isinstance(record, dict) else {"": record}
    body = {key: value for key, value in whole.items() if key not in _NOT_READ}
    for key, value in _look(body, "other", found):
        read: Api = api if key == turns else "other"
        stack = [value]
        while stack:  # objects in reading order
            item = stack.pop()
            if isinstance(item, dict):
                stack.extend(reversed([inner for _, inner in _look(item, read, found)]))
            elif isinstance(item, list):
                stack.extend(reversed(item))
    return found


def _look(item: dict[str, Any], api: Api, found: FoundImages) -> list[tuple[str, Any]]:
    """Add what one object holds itself; returns what is to be looked at inside it. ``api``: whose images are read."""
    ref, kind, key_of_image = None, item.get("type"), "source" if api == "messages" else "image_url"
    if api != "other" and key_of_image in item:
        ref = _source(item) if api == "messages" else _image_url(item)
    if ref is not None:
        found.images.append(ref)
        found.parameters += [key for key, value in ref.holder.items() if key in ENGINE_PARAMETERS and value]
    elif isinstance(kind, str) and _holds_more(kind, item):
        found.unread.append(kind)
        return []
    inside: list[tuple[str, Any]] = []
    for key, value in item.items():
        if ref is not None and key == key_of_image:
            continue
        if key == "image_url" and api in ("chat", "responses"):
            found.unread.append("an image_url without an address")
        elif key in ENGINE_PARAMETERS and value:
            found.parameters.append(key)
        elif _names_image(key, value):
            found.unread += [key] * (len(value) if isinstance(value, list) else 1)
        elif any(_is_data(key, text) for text in _strings(value)):
            found.unread.append(key)
        elif not (kind == "tool_use" and key == "input"):  # what a tool was called with
            inside.append((key, value))
    return inside


def _image_url(item: dict[str, Any]) -> ImageRef | None:
    """The image of an object with ``image_url``; None where an id stands for it."""
    address = item["image_url"]
    if isinstance(address, str):
        return ImageRef(item, item, "image_url")
    if isinstance(address, dict) and isinstance(address.get("url"), str):
        return ImageRef(item, address, "url")
    if address is None and (item.get("file_id") or item.get("uuid")):
        return None
    raise Refused(422, "bad_image_url", "an image_url is neither an address nor an object with a url")


def _source(item: dict[str, Any]) -> ImageRef | None:
    """The image of a block of the Messages API; None for an uploaded file and for any other kind of source."""
    source = item["source"]
    if item.get("type") != "image" or not isinstance(source, dict):
        return None
    kind = source.get("type", "base64")  # vLLM takes a source without a type for base64
    if kind not in ("base64", "url"):
        return None
    key, other = ("url", "data") if kind == "url" else ("data", "url")
    if not isinstance(source.get(key), str) or source.get(other):
        raise Refused(422, "bad_image_url", "an image's source has either data or a url, as its type says")
    if not isinstance(source.get("media_type", ""), str):
        raise Refused(422, "bad_data_url", "an image's media_type is not a text such as image/png")
    return ImageRef(item, source, key)


def _holds_more(kind: str, item: dict[str, Any]) -> bool:
    """Whether an object's type names an image or a file, and something beside texts and ids comes with it."""
    if kind not in _KINDS and not _KIND.fullmatch(kind):
        return False
    source = item.get("source")
    if kind == "document" and isinstance(source, dict) and source.get("type") in ("text", "content"):
        return False
    return any(value and not isinstance(value, bool) for key, value in item.items() if key not in _BESIDE)


def _names_image(key: str, value: Any) -> bool:
    return isinstance(value, str | list | dict) and bool(value) and (key in _KEYS or _KEY.fullmatch(key) is not None)


def _is_data(key: str, text: str) -> bool:
    """Whether a string that is not text is an image itself, or names one in Markdown."""
    if key in _TEXT:
        return False
    return _DATA.match(text) is not None or (key == "inputs" and _MARKDOWN.search(text) is not None)


def _strings(value: Any) -> Iterator[str]:
    """A string, or the strings of a list; those of objects are looked at with their keys."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            stack.extend(item)
