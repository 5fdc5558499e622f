"""Upstreams that take an image's tokens from a parameter with few values, and refuse any other value."""

import json
from typing import Any

from tests.gateway.upstream import Script, Seen, Wire, image_sizes

from stakes import count_tokens
from stakes.vision.geometry.menus import ActuatorName, settings_of


def engine(
    actuator: ActuatorName, family: str, *, ignores: bool = False, states: str = "image", cap: int = 0
) -> Script:
    """It counts by the parameter, or ignores it; ``states``: image tokens, the whole prompt, or nothing.

    ``cap``: of a server that has its largest size from the start, as llama.cpp has.
    """

    def answer(seen: Seen, wire: Wire) -> None:
        if seen.path.startswith("/v1/models"):
            return wire.reply(b'{"object": "list", "data": [{"id": "tiny", "object": "model"}]}')
        body = seen.json
        try:
            tokens = sum(_tokens(actuator, family, body, ignores, cap))
        except ValueError as error:
            return wire.reply(json.dumps({"error": {"message": str(error), "code": "bad_parameter"}}).encode(), 400)
        usage: dict[str, Any] = {"prompt_tokens": 20 + tokens, "completion_tokens": 1}
        if states == "image":
            usage["prompt_tokens_details"] = {"multimodal_tokens": {"image": tokens}}
        choice = {"index": 0, "message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}
        reply = {"id": "c", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice]}
        return wire.reply(json.dumps(reply if states == "nothing" else {**reply, "usage": usage}).encode())

    return answer


def _tokens(actuator: ActuatorName, family: str, body: Any, ignores: bool, cap: int) -> list[int]:
    sizes = image_sizes(body)
    if actuator == "pixels":
        factor = 48 if family.startswith("gemma") else 28
        bounds = {} if ignores or not cap else {"max_pixels": cap * factor**2}
        return [count_tokens(family, *size, **bounds) for size in sizes]
    by_value = {json.dumps(one.value, sort_keys=True): one.formula for one in settings_of(actuator, family, 4096)}
    found = [json.dumps(value, sort_keys=True) for value in _values(actuator, body, len(sizes))]
    if unknown := [value for value in found if value not in by_value]:
        raise ValueError(f"{unknown[0]} is not one of {', '.join(by_value)}")
    if ignores:
        return [count_tokens(family, *size) for size in sizes]
    return [by_value[value].tokens(*size) for value, size in zip(found, sizes, strict=True)]


def _values(actuator: ActuatorName, body: Any, number: int) -> list[Any]:
    parts = [part for part in body["messages"][-1]["content"] if part["type"] == "image_url"]
    if actuator == "detail":
        return [part["image_url"]["detail"] for part in parts]
    if actuator == "gemini":
        return [part["media_resolution"] for part in parts]
    given = body["mm_processor_kwargs"]
    return [given["image"] if actuator == "lmdeploy" else given] * number
