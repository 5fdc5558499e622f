"""What does the gateway take, and what does it say? Its OpenAPI description, at ``/openapi.json``.

It tells of the paths that the gateway answers or reads itself; every other path is the upstream's and passes as it is.
"""

from importlib.metadata import version
from typing import Any

_IMAGE = {
    "type": "object",
    "required": ["url"],
    "properties": {
        "url": {"type": "string", "description": "A data URL; other addresses only of hosts that are allowed."},
        "detail": {"enum": ["auto", "low", "high"]},
    },
}
_PART = {
    "oneOf": [
        {
            "type": "object",
            "required": ["type", "text"],
            "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
        },
        {
            "type": "object",
            "required": ["type", "image_url"],
            "properties": {"type": {"const": "image_url"}, "image_url": {"$ref": "#/components/schemas/Image"}},
        },
    ]
}
_INPUT_PART = {
    "oneOf": [
        {
            "type": "object",
            "required": ["type", "text"],
            "properties": {"type": {"const": "input_text"}, "text": {"type": "string"}},
        },
        {
            "type": "object",
            "required": ["type", "image_url"],
            "properties": {
                "type": {"const": "input_image"},
                "image_url": {"$ref": "#/components/schemas/Image/properties/url"},
                "detail": {"$ref": "#/components/schemas/Image/properties/detail"},
            },
        },
    ]
}
_METADATA = {
    "type": "object",
    "properties": {
        "stakes_tier": {"type": "string", "description": "The tier; several with commas between mean the dearest."},
        "stakes_task": {"type": "string", "description": "The task, for a policy that reads its tiers from it."},
        "stakes_cost": {"description": "What a mistake costs, for a policy with soft stakes: a number above 0."},
    },
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_SAYS = {
    400: "what cannot be read: JSON, an address, an unknown tier",
    401: "one of the gateway's keys is missing",
    403: "bypassing is forbidden",
    408: "the request did not arrive in time",
    413: "over the size limit",
    415: "an encoding other than gzip",
    422: "an image that is damaged, too large or not to be had, or a budget that cannot be reached",
    431: "the headers are too large",
    502: "the upstream cannot be reached",
    503: "all workers are busy",
    504: "the upstream did not answer in time",
}
_TOLD = ("tier", "why", "budget", "native-tokens", "predicted-tokens", "scale", "policy", "mode", "outcome")


def description() -> dict[str, Any]:
    """The document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stakes gateway",
            "version": version("stakes"),
            "description": "OpenAI in, OpenAI out: every image is fitted to the budget of its question's tier.",
        },
        "components": {"schemas": {"Image": _IMAGE, "Metadata": _METADATA, "Error": _ERROR}},
        "paths": {
            "/v1/chat/completions": {"post": _asked("messages", _message(_PART), "Ask about images, or anything.")},
            "/v1/responses": {"post": _asked("input", _message(_INPUT_PART), "The same by the responses API.")},
            "/v1/models": {"get": _own("The upstream's models.", {"type": "object"}, errors=(401, 502, 504))},
            "/healthz": {"get": _own("Alive; the alarms, where answers are watched.", {"type": "object"})},
            "/readyz": {"get": _own("Whether requests can be served.", {"type": "object"}, also=(503,))},
            "/metrics": {"get": _own("Prometheus.", None, errors=(401,))},
            "/stakes/state": {"get": _own("What the live page shows.", {"type": "object"}, errors=(401, 403))},
            "/openapi.json": {"get": _own("This description.", {"type": "object"})},
        },
    }


def _message(part: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant"]},
            "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": part}]},
        },
    }


def _asked(turns: str, message: dict[str, Any], summary: str) -> dict[str, Any]:
    several = {"type": "array", "items": message}
    body = {
        "type": "object",
        "required": ["model", turns],
        "properties": {
            "model": {"type": "string"},
            turns: several if turns == "messages" else {"anyOf": [{"type": "string"}, several]},
            "stream": {"type": "boolean"},
            "metadata": {"$ref": "#/components/schemas/Metadata"},
        },
    }
    wanted = {
        "x-stakes-tier": "the tier, in place of what the question says; percent-encoded UTF-8 where it is not ASCII",
        "x-stakes-task": "the task, for a policy that reads its tiers from it",
        "x-stakes-cost": "what a mistake costs, for a policy with soft stakes: a number above 0",
        "x-stakes-bypass": "leave this request alone",
    }
    told = {f"x-stakes-{name}": {"schema": {"type": "string"}} for name in _TOLD}
    answer: dict[str, Any] = {"application/json": {"schema": {}}, "text/event-stream": {}}
    return {
        "summary": summary,
        "parameters": [
            {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}
            for name, text in wanted.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {"description": "The upstream's answer.", "headers": told, "content": answer},
            **_errors(tuple(_SAYS)),
            "default": {"description": "Whatever else the upstream says."},
        },
    }


def _own(
    summary: str, schema: dict[str, Any] | None, *, errors: tuple[int, ...] = (), also: tuple[int, ...] = ()
) -> dict[str, Any]:
    """A path to get; ``also``: other statuses with the same body."""
    content = {"text/plain": {}} if schema is None else {"application/json": {"schema": schema}}
    answers = {str(status): {"description": summary, "content": content} for status in (200, *also)}
    return {"summary": summary, "responses": {**answers, **_errors(errors)}}


def _errors(statuses: tuple[int, ...]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {str(status): {"description": _SAYS[status], "content": content} for status in statuses}
