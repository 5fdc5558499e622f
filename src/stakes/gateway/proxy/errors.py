"""Refusals of the gateway: a status, a code for machines and one sentence, in the error format of the API.

raise Refused(413, "body_too_large", "the body has more than 67108864 bytes; send fewer or smaller images")
"""

import json

_MESSAGES_TYPES = {  # the Messages API names an error by its status
    401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip


class Refused(Exception):
    """A request that is not forwarded; ``code`` is also the label of the metric.

    ``passable``: the gateway was unable to fit the request, as against forbidding it. A fail-open gateway forwards such
    a request unchanged, a fail-closed one refuses it. Limits are never passable.
    """

    def __init__(self, status: int, code: str, message: str, *, passable: bool = False, retry_after: int = 0) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.passable, self.retry_after = passable, retry_after

    def reply(self, api: str = "") -> tuple[list[tuple[bytes, bytes]], bytes]:
        """The headers and the body of the response; ``api``: what was asked for, as in ``scan``."""
        body = error_body(self.status, self.code, self.message, api)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if self.retry_after:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        if self.status in (400, 408, 413):  # part of the body may still be on its way: nothing may follow it
            headers.append((b"connection", b"close"))
        return headers, body


def error_body(status: int, code: str, message: str, api: str = "") -> bytes:
    """``{"error": {message, type, param, code}}``, as OpenAI's clients read it; Anthropic's with ``api`` "messages"."""
    if api in ("messages", "count"):
        kind = _MESSAGES_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        return json.dumps({"type": "error", "error": {"type": kind, "message": message, "code": code}}).encode()
    kind = "invalid_request_error" if status < 500 else "api_error"
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


def error_frame(api: str, code: str, message: str) -> bytes:
    """The last event of a stream whose upstream failed; the leading blank line ends an event that was cut off."""
    error = {"message": message, "type": "api_error", "code": code}
    if api == "messages":
        return b"\n\nevent: error\ndata: " + json.dumps({"type": "error", "error": error}).encode() + b"\n\n"
    if api == "responses":
        event = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 0, "error": error}
        return b"\n\nevent: error\ndata: " + json.dumps(event).encode() + b"\n\n"
    return b"\n\ndata: " + json.dumps({"error": error}).encode() + b"\n\n"
