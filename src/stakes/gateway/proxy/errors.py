"""How does the gateway say no? A status, a code for machines and one sentence, in OpenAI's error shape.

``soft`` marks what the gateway could not do, as against what it must not let through: a fail-open gateway passes such a
request on as it came, a fail-closed one refuses it. Limits are never soft.

    raise Refused(413, "body_too_large", "the body has more than 67108864 bytes; send fewer or smaller images")
"""

import json


class Refused(Exception):
    """A request that goes no further; ``code`` is also the reason that the metric counts."""

    def __init__(self, status: int, code: str, message: str, *, soft: bool = False, retry_after: int = 0) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.soft, self.retry_after = status, code, message, soft, retry_after

    def reply(self) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """The headers and the body that tell the client."""
        body = error_body(self.status, self.code, self.message)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if self.retry_after:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        if self.status in (400, 408, 413):  # part of the body may still be on its way: nothing may follow it
            headers.append((b"connection", b"close"))
        return headers, body


def error_body(status: int, code: str, message: str) -> bytes:
    """``{"error": {message, type, code}}``, as OpenAI's clients read it."""
    kind = "invalid_request_error" if status < 500 else "api_error"
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


def error_frame(api: str, code: str, message: str) -> bytes:
    """The last event of a stream whose upstream went away; the blank line first ends whatever was cut in half."""
    if api == "responses":
        event = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 0}
        return b"\n\nevent: error\ndata: " + json.dumps({**event, "error": _short(code, message)}).encode() + b"\n\n"
    return b"\n\ndata: " + json.dumps({"error": _short(code, message)}).encode() + b"\n\n"


def _short(code: str, message: str) -> dict[str, str]:
    return {"message": message, "type": "api_error", "code": code}
