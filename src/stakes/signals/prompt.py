"""What a request says, as one value: the question, system text, earlier turns, the fields of its schemas, metadata.

Every signal takes a ``str`` or a ``Prompt``; a ``str`` is the question alone. ``read_prompt`` reads the bodies of chat
completions, responses and messages; samples may carry ``system``, ``schema`` and ``history``.

>>> Prompt("Process this document.", system="Extract the IBAN.").question
'Process this document.'
>>> [field.name for field in read_schema({"properties": {"total": {"type": "number"}, "notes": {"type": "string"}}})]
['total', 'notes']
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from stakes.errors import BadInput

MOST_FIELDS = 500
"""Fields of one schema that are read."""
MOST_NODES, MOST_DEPTH, MOST_DESCRIPTION = 4000, 24, 500
MOST_TURNS = 32
"""Messages that are read, the last ones; system and developer text are read wherever they stand."""
_INSTRUCTING = ("system", "developer")
_FORCED = ("required", "any", "tool", "function")
_NUMERIC = frozenset({"number", "integer"})
_COORDINATES = re.compile(
    r"bounding[\s_-]*box|\bb(?:nd)?_?box|\b(?:box|point)_?2d|\bcoordinates?\b|\bpolygons?\b|</?(?:box|ref|point)\b"
    r"|\b[xy]_?(?:[0-2]|min|max)\b|\bx(?: and |, ?)y\b|\bpoint to the\b"
    r"|\b(?:in|as) pixels\b|\bpixel (?:position|location)",
    re.IGNORECASE,
)
Role = Literal["user", "assistant"]


class SchemaField(NamedTuple):
    """One field of a JSON schema or tool.

    ``type``: of its values, "" if not stated; ``enum`` for a fixed set of values, ``date`` for formatted dates.
    """

    name: str
    description: str = ""
    type: str = ""


class Turn(NamedTuple):
    """One earlier message of a conversation."""

    role: Role
    text: str


@dataclass(frozen=True)
class Prompt:
    """What one request says.

    ``question``: the text of the last user message. ``system``: system and developer text. ``schema``: fields that the
    answer must have (``response_format``, or a tool that must be called). ``optional``: fields of tools that the model
    may call. ``history``: earlier messages, oldest first. ``task``: the workflow, where the client names it.
    """

    question: str = ""
    system: str = ""
    schema: tuple[SchemaField, ...] = ()
    history: tuple[Turn, ...] = ()
    task: str | None = None
    optional: tuple[SchemaField, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def text(self) -> str:
        """The question with the names of the schema's fields; the system text where the request has neither."""
        names = ", ".join(one.name for one in self.schema)
        return "\n".join(filter(str.strip, (self.question, names))) or self.system

    @property
    def asks_for_coordinates(self) -> bool:
        """Whether it asks where something is on the image; it is not trimmed, so that relative positions hold."""
        return any(map(_COORDINATES.search, (self.question, self.system, *(one.name for one in self.schema))))


def as_prompt(prompt: str | Prompt, task: str | None = None) -> Prompt:
    """A question as a prompt; ``task`` replaces the prompt's own where it is given."""
    if isinstance(prompt, str):
        return Prompt(prompt, task=task)
    if not isinstance(prompt, Prompt):
        raise BadInput(f"a question must be text or a Prompt, not {prompt!r:.80}")
    return prompt if task is None else replace(prompt, task=task)


def text_of(prompt: str | Prompt) -> str:
    """What a signal reads that looks at one text only."""
    return prompt if isinstance(prompt, str) else as_prompt(prompt).text


def read_schema(schema: object) -> tuple[SchemaField, ...]:
    """The fields of a JSON schema, nested ones included; a list of names is accepted too.

    A field that holds further fields is not listed itself. Each reference is followed once on a path, and at most
    ``MOST_NODES`` nodes are visited, so that a hostile schema costs little.
    """
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return tuple(SchemaField(name) for name in schema if isinstance(name, str))[:MOST_FIELDS]
    return tuple(_Schema(schema).fields("", schema))[:MOST_FIELDS] if isinstance(schema, Mapping) else ()


class _Schema:
    """Walks one schema; ``left``: nodes that may still be visited."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root, self.left = root, MOST_NODES

    def fields(self, name: str, node: object, seen: frozenset[str] = frozenset()) -> list[SchemaField]:
        """The fields below one node; a node without any is a field itself, if it has a name."""
        self.left -= 1
        if self.left < 0 or not isinstance(node, Mapping) or len(seen) > MOST_DEPTH:
            return []
        reference = node.get("$ref")
        if isinstance(reference, str) and reference in seen:
            return [SchemaField(name)] if name else []
        below = [
            one
            for key, inner in self._inner(name, node)
            for one in self.fields(key, inner, seen | {str(reference or id(node))})
        ]
        if any(one.name != name for one in below) or (below and not name):
            return below
        return [_merge(name, node, below)] if name else []

    def _inner(self, name: str, node: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
        """The nodes directly below, each with the name of the field that it describes."""
        if isinstance(node.get("$ref"), str):
            yield name, self._resolve(node["$ref"])
        properties = node.get("properties")
        if isinstance(properties, Mapping):
            yield from ((str(key), value) for key, value in properties.items())
        for key in ("items", "additionalProperties"):
            yield name, node.get(key)
        for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            options = node.get(key)
            yield from ((name, option) for option in options) if isinstance(options, list) else ()

    def _resolve(self, reference: str) -> object:
        node: object = self.root
        for part in reference.removeprefix("#/").split("/"):
            node = node.get(part) if isinstance(node, Mapping) else None
        return node


def _merge(name: str, node: Mapping[str, Any], below: Sequence[SchemaField]) -> SchemaField:
    """One field from its own node and its options (``anyOf``, items of a list), which have the same name."""
    own = node.get("description")
    texts = [own[:MOST_DESCRIPTION] if isinstance(own, str) else "", *(one.description for one in below)]
    types = {one.type for one in below} - {"null"} or {_type(node)}
    return SchemaField(name, " ".join(dict.fromkeys(filter(None, texts))), types.pop() if len(types) == 1 else "")


def _type(node: Mapping[str, Any]) -> str:
    if "enum" in node or "const" in node:
        return "enum"
    if node.get("format") in ("date", "date-time", "time", "duration"):
        return "date"
    kind = node.get("type")
    if isinstance(kind, list):
        kinds = [one for one in kind if one != "null"]
        kind = kinds[0] if len(kinds) == 1 else ""
    return "number" if kind in _NUMERIC else kind if isinstance(kind, str) else ""


def read_prompt(api: str, record: Mapping[str, Any], task: str | None = None) -> Prompt:
    """The prompt of a body: ``api`` is chat, responses or messages."""
    turns = record.get("input" if api == "responses" else "messages")
    messages = [{"role": "user", "content": turns}] if isinstance(turns, str) else turns
    messages = [one for one in messages if isinstance(one, Mapping)] if isinstance(messages, list) else []
    system = [_text(record.get(key)) for key in ("system", "instructions")]
    system += [_text(one.get("content")) for one in messages if one.get("role") in _INSTRUCTING]
    roles: tuple[Role, ...] = ("user", "assistant")
    talk = [(role, one) for one in messages for role in roles if one.get("role") == role and not _is_result(one)]
    talk = talk[-MOST_TURNS:]
    last = max((i for i, (role, _) in enumerate(talk) if role == "user"), default=None)
    forced, optional = _tools(record)
    return Prompt(
        question="" if last is None else _text(talk[last][1].get("content")),
        system="\n\n".join(filter(None, system)),
        schema=(*_format(record), *forced),
        history=tuple(Turn(role, _text(one.get("content"))) for role, one in talk[:last]),
        task=task,
        optional=optional,
        metadata=_metadata(record.get("metadata")),
    )


def _is_result(message: Mapping[str, Any]) -> bool:
    """Whether a message only returns what tools gave, which the Messages API calls a user's."""
    parts = message.get("content")
    kinds = {part.get("type") for part in parts if isinstance(part, Mapping)} if isinstance(parts, list) else set()
    return "tool_result" in kinds and not _text(parts)


def _text(content: Any) -> str:
    """The text of a message: a string, or the text parts of a list; a tool's result is not the user's text."""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str) and text.strip())


def _format(record: Mapping[str, Any]) -> tuple[SchemaField, ...]:
    """The fields of the schema that the answer must have, wherever an API or an engine takes it."""
    found: list[SchemaField] = []
    text = record.get("text")
    output = record.get("output_config")
    places = [record.get("response_format"), record.get("output_format")]
    places += [one.get("format") for one in (text, output) if isinstance(one, Mapping)]
    for place in places:
        if isinstance(place, Mapping):
            inner = place.get("json_schema")
            found += read_schema(inner.get("schema") if isinstance(inner, Mapping) else place.get("schema"))
    found += read_schema(_guided(record))
    return tuple(found)


def _guided(record: Mapping[str, Any]) -> object:
    """The schema of vLLM's guided decoding."""
    outputs = record.get("structured_outputs")
    schema = outputs.get("json") if isinstance(outputs, Mapping) else record.get("guided_json")
    return schema if isinstance(schema, Mapping) else None


def _tools(record: Mapping[str, Any]) -> tuple[tuple[SchemaField, ...], tuple[SchemaField, ...]]:
    """The fields of tools that must be called, and of those that may be."""
    tools, choice = record.get("tools"), record.get("tool_choice")
    if not isinstance(tools, list) or choice == "none":
        return (), ()
    named, forced = "", choice in _FORCED
    if isinstance(choice, Mapping):
        inner = choice.get("function")
        named = str((inner if isinstance(inner, Mapping) else choice).get("name") or "")
        forced = choice.get("type") in _FORCED
    fields = [one for name, schema in _schemas(tools) if not named or name == named for one in read_schema(schema)]
    return (tuple(fields), ()) if forced else ((), tuple(fields))


def _schemas(tools: Sequence[Any]) -> Iterator[tuple[str, object]]:
    """Each tool's name and schema: OpenAI nests them in ``function``, the responses and messages APIs do not."""
    for tool in tools:
        if isinstance(tool, Mapping):
            inner = tool.get("function")
            body = inner if isinstance(inner, Mapping) else tool
            yield str(body.get("name") or ""), body.get("parameters") or body.get("input_schema")


def _metadata(given: Any) -> dict[str, str]:
    return (
        {str(key): value for key, value in given.items() if isinstance(value, str)}
        if isinstance(given, Mapping)
        else {}
    )
