"""Is this a request that is served here, and which API is it? By its method, its path and its headers alone.

The path is the one at the upstream, since that is where images are read: bases end in /v1, /v1beta/openai, a
deployment's name or nothing. What some servers do not tell apart (case, a slash at the end, parameters) is one here.

    api_of("POST", "/v1beta/openai/chat/completions")      # 'chat'
"""

import re
from collections.abc import Mapping
from typing import Any

from stakes.gateway.read_request import Api
from stakes.gateway.refusal import Refused

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
