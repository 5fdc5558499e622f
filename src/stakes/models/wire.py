"""How is a JSON request put to a server that may be busy, broken or silent? With bounded retries and a named failure.

Retried, after pauses that double up to ``longest_pause_s``, or as long as ``Retry-After`` asks: 408, 409, 425, 429, any
5xx but 501, timeouts, broken connections, and replies that the reader of them calls ``Unusable``. Every other status is
refused at once, since asking again cannot help. A ``Retry-After`` holds back all threads, not only the one that was
told; one that is longer than ``longest_pause_s`` ends the tries, because asking sooner would not honour it.

    wire = Wire("http://127.0.0.1:8000/v1")
    wire.ask("GET", wire.at("models"), None, lambda reply: [one["id"] for one in reply["data"]])
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from stakes.errors import BadInput, StakesError
from stakes.signals.endpoint import retry_after, server_name

RETRIED = {408, 409, 425, 429}
MOST_BYTES = 16 << 20  # of a reply; a short answer with its usage is a kilobyte
CONNECT_S = 10.0  # a server that does not take the connection by then is down, however long its answers may take
LONGEST_S = 1e6  # days; a socket takes no timeout of centuries

T = TypeVar("T")


class Unusable(Exception):
    """A reply that is no answer; raised by whoever reads it, with what was wrong."""


class Stopped(Exception):
    """The request was given up because another one of its batch failed."""


class Wire:
    """One server; safe to use from several threads. Nothing is read from the environment."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        tries: int = 5,
        timeout_s: float = 120.0,
        pause_s: float = 1.0,
        longest_pause_s: float = 60.0,
        connections: int = 8,
    ) -> None:
        self.where = server_name(base_url, api_key)
        if tries < 1:
            raise BadInput(f"an endpoint needs at least one try, not {tries!r}")
        if not 0 < timeout_s <= LONGEST_S:
            raise BadInput(f"a request takes some seconds until it times out, at most {LONGEST_S:g}, not {timeout_s!r}")
        self.base_url = base_url.rstrip("/")
        self._key, self._tries, self._timeout = api_key, tries, timeout_s
        self._pause, self._longest_pause = pause_s, longest_pause_s
        self._not_before = 0.0  # when the server takes requests again, by the monotonic clock
        self._client = httpx.Client(
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=connections),
            trust_env=False,  # a proxy or a .netrc login that nobody named here must not see the questions
        )

    def at(self, path: str, *, root: bool = False) -> str:
        """The address of a path below ``base_url``; ``root``: beside its /v1, where engines keep their own paths."""
        return f"{self.base_url.removesuffix('/v1') if root else self.base_url}/{path}"

    def ask(
        self, method: str, url: str, body: Any, read: Callable[[Any], T], stop: threading.Event | None = None
    ) -> tuple[T, float]:
        """What ``read`` makes of the JSON reply, and the milliseconds of the try that gave it.

        ``stop``: set, it ends the tries with ``Stopped``; a request that is on its way is waited for.
        """
        stop = stop or threading.Event()
        content = None if body is None else json.dumps(body).encode()
        failure = ""
        for attempt in range(self._tries):
            self._wait(stop, self._between(attempt))
            started = time.perf_counter()
            try:
                status, after, text = self._once(method, url, content)
                if status == 200:
                    return read(_parsed(text)), 1000 * (time.perf_counter() - started)
                failure = f"HTTP {status}"
            except Unusable as error:
                failure = f"{error}: {self._said(text)}"
                continue
            except httpx.HTTPError as error:
                failure = f"{type(error).__name__}: {error}".rstrip(": ")
                continue
            if status not in RETRIED and (status < 500 or status == 501):
                said = self._said(text)  # a server that knows no such model was found, at the right address
                hint = "; does the address end in /v1?" if status == 404 and "model" not in said.lower() else ""
                raise BadInput(f"{self.where} refused the request ({failure}): {said}{hint}")
            if after is not None and after > self._longest_pause:
                failure += f", asking to wait {after:.0f} s, which is longer than the {self._longest_pause:g} s allowed"
                break
            self._not_before = max(self._not_before, time.monotonic() + (after or 0.0))
        raise StakesError(
            f"{self.where} gave no answer in {attempt + 1} {'try' if attempt == 0 else 'tries'} (last: {failure}); "
            "check that the server runs and that the address is right"
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _between(self, attempt: int) -> float:
        return min(self._pause * 2.0 ** min(attempt - 1, 30), self._longest_pause) if attempt else 0.0

    def _wait(self, stop: threading.Event, pause: float) -> None:
        ready = time.monotonic() + pause
        while (left := max(ready, self._not_before) - time.monotonic()) > 0:
            if stop.wait(left):
                break
        if stop.is_set():
            raise Stopped

    def _once(self, method: str, url: str, content: bytes | None) -> tuple[int, float | None, str]:
        """Status, seconds that ``Retry-After`` asks for, and body; a reply that trickles in is timed out too."""
        deadline = time.monotonic() + self._timeout
        headers = {} if content is None else {"content-type": "application/json"}
        parts, size = [], 0
        with self._client.stream(method, url, content=content, headers=headers) as response:
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > MOST_BYTES:
                    raise httpx.ReadError(f"a reply of more than {MOST_BYTES >> 20} MB")
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"the reply was not complete after {self._timeout:g} s")
            after = retry_after(response.headers.get("retry-after"), time.time())
        return response.status_code, after, b"".join(parts).decode("utf-8", "replace")

    def _said(self, text: str) -> str:
        """The server's own words, short, on one line, and without the key if it repeats that."""
        try:
            found = json.loads(text)["error"]
            text = str(found["message"] if isinstance(found, dict) else found)
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        words = "".join(c if c.isprintable() else " " for c in (text.replace(self._key, "…") if self._key else text))
        return " ".join(words[:300].split()) or "an empty reply"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Unusable("its reply is not JSON") from None
