"""Who may come in? Whoever has one of the gateway's keys; without keys, everybody, and the upstream judges.

Keys are compared in constant time over their digests, all of them every time, so that neither the time nor the length
tells how near a guess was. With keys of its own the gateway never shows a client's credentials to the upstream.
"""

import hashlib
import hmac
from collections.abc import Iterable

from stakes.gateway.refusal import Refused

CREDENTIALS = frozenset({b"authorization", b"api-key", b"x-api-key"})


class Doorkeeper:
    """Checks authorizations; ``upstream`` is the one that the upstream is shown instead, if any."""

    def __init__(self, client_keys: Iterable[str], upstream_key: str | None) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in client_keys]
        self.upstream = f"Bearer {upstream_key}".encode() if upstream_key else None
        self.own = bool(self._digests)
        self.replaces = self.own or self.upstream is not None

    def check(self, authorization: bytes | None) -> None:
        """Raise 401 unless the authorization is ``Bearer`` and one of the keys."""
        if not self.own:
            return
        scheme, _, key = (authorization or b"").partition(b" ")
        digest = hashlib.sha256(key.strip()).digest()
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(known, digest)
        if scheme.lower() != b"bearer" or not found:
            raise Refused(401, "invalid_api_key", "this gateway needs one of its own keys as `Authorization: Bearer`")
