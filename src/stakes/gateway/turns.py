"""What does a conversation ask about which image? The text of its last user turn, about the last image that was sent.

    find_question(messages)        # ('data:image/png;base64,…', 'And who signed it?', 0)

For a model that answers one question about one page and keeps no conversation: what was said before (by the system, the
assistant, the user) is not put to it. Only the image stays: where the last turn brings none, it is the one of the
latest turn that did; how many came before it is said, since a count of tokens does not hold them. Parts are those of
chat completions (text, image_url) and of responses (input_text, input_image).
"""

from __future__ import annotations

from typing import Any

from stakes.gateway.replies import Refused

ROLES = ("user", "assistant", "system", "developer")


def find_question(turns: Any) -> tuple[str, str, int]:
    """The image's address, the question, and how many images of earlier turns are not looked at.

    ``Refused`` where there is not one of each.
    """
    if isinstance(turns, str):
        turns = [{"role": "user", "content": turns}]
    if not isinstance(turns, list):
        raise Refused(f"the turns are {type(turns).__name__}; give a list of messages", code="invalid_value")
    asked = [_parts(turn.get("content")) for turn in map(_checked, turns) if turn["role"] == "user"]
    if not asked:
        raise Refused("no message is the user's; give one with an image and a text as its parts", code="invalid_value")
    text = "\n".join(part for part in asked[-1] if isinstance(part, str))
    images = next((found for parts in reversed(asked) if (found := [p for p in parts if not isinstance(p, str)])), [])
    if not images:
        raise Refused(
            "this server's reader answers questions about a page, and no image was sent; give one as a data: URL "
            "beside the text",
            code="image_missing",
        )
    if len(images) > 1:
        raise Refused(
            f"this model answers one text about one image, not about {len(images)}; ask about each in a request of its "
            "own",
            code="too_many_images",
        )
    if not text.strip():
        raise Refused("the last message of the user's has no text; ask something about the image", code="invalid_value")
    sent = sum(not isinstance(part, str) for parts in asked for part in parts)
    return _address(images[0]), text, sent - 1


def _checked(turn: Any) -> dict[str, Any]:
    if not isinstance(turn, dict) or turn.get("type", "message") != "message":
        kind = turn.get("type") if isinstance(turn, dict) else turn
        raise Refused(f"a turn is {kind!r:.80}; give messages with a role and content alone", code="invalid_value")
    if turn.get("role") not in ROLES:
        raise Refused(f"a message's role is {turn.get('role')!r:.80}; give {', '.join(ROLES)}", code="invalid_value")
    return turn


def _parts(content: Any) -> list[str | dict[str, Any]]:
    """Texts, and for each image the object that holds its address and its detail."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise Refused("a message's content is neither a text nor a list of parts", code="invalid_value")
    found: list[str | dict[str, Any]] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "input_text") and isinstance(part.get("text"), str):
            found.append(part["text"])
        elif kind == "image_url" and isinstance(part.get("image_url"), dict):
            found.append(part["image_url"])
        elif kind == "input_image":
            found.append({"url": part.get("image_url"), "detail": part.get("detail")})
        else:
            raise Refused(
                f"a part of the message is {kind!r:.80}; give text and image_url, or input_text and input_image",
                code="invalid_value",
            )
    return found


def _address(image: dict[str, Any]) -> str:
    if image.get("detail") == "low":
        raise Refused("images are taken as sent; make it smaller and leave detail out", code="unsupported_value")
    url = image.get("url")
    if not isinstance(url, str):
        raise Refused("the image has no address; give it as a data: URL, no file is kept here", code="invalid_value")
    return url
