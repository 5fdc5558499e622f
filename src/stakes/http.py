"""One retrying JSON-over-HTTP client for model endpoints and judges.

Retried, with pauses that double up to ``longest_pause_s`` or last as long as ``Retry-After`` asks: statuses 408, 409,
425, 429 and 5xx except 501, timeouts, broken connections, and replies that their reader calls ``Unusable``. Every other
status is refused at once, because asking again cannot help; redirects are not followed. A ``Retry-After`` holds back
all threads. One that is longer than ``longest_pause_s`` ends the tries, because asking sooner would not honor it.

    client = HttpClient("http://127.0.0.1:8000/v1")
    names, ms = client.request("GET", client.url("models"), None, lambda reply: [one["id"] for one in reply["data"]])
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx

from stakes.errors import BadInput, StakesError

RETRIED = {408, 409, 425, 429}
MOST_BYTES = 16 << 20  # of a reply; a short answer with its usage is a kilobyte
CONNECT_S = 10.0  # a server that does not accept the connection by then is down, however long its answers may take
LONGEST_S = 1e6  # days; a socket takes no timeout of centuries

T = TypeVar("T")


class Unusable(Exception):
    """A reply that is not an answer. Its reader raises this and says what is wrong with it."""


class Stopped(Exception):
    """The request was given up because another one of its batch failed."""


@dataclass(frozen=True)
class Retries:
    """How often one request is tried, how long one try may take, and how long to pause between tries."""

    tries: int = 5
    timeout_s: float = 120.0
    pause_s: float = 1.0
    longest_pause_s: float = 60.0

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise BadInput(f"an endpoint needs at least one try, not {self.tries!r}")
        if not 0 < self.timeout_s <= LONGEST_S:
            raise BadInput(f"timeout_s must be above 0 and at most {LONGEST_S:g} seconds, not {self.timeout_s!r}")

    def pause_before(self, attempt: int) -> float:
        """Seconds before a try; the first one is number 0."""
        return min(self.pause_s * 2.0 ** min(attempt - 1, 30), self.longest_pause_s) if attempt else 0.0


class HttpClient:
    """A client of one server; safe to use from several threads. Nothing is read from the environment."""

    def __init__(
        self, base_url: str, api_key: str | None = None, retries: Retries | None = None, *, connections: int = 8
    ) -> None:
        self.server = server_name(base_url, api_key)
        self._retries = retries = retries or Retries()
        self._base, self._key = base_url.rstrip("/"), api_key
        self._not_before = 0.0  # when the server accepts requests again, by the monotonic clock
        self._client = httpx.Client(
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(retries.timeout_s, connect=min(CONNECT_S, retries.timeout_s)),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=connections),
            trust_env=False,  # a proxy or a .netrc login that nobody named here must not see the questions
        )

    def url(self, path: str, *, root: bool = False) -> str:
        """The address of a path under ``base_url``; ``root``: beside its /v1, where engines keep their own paths."""
        return f"{self._base.removesuffix('/v1') if root else self._base}/{path}"

    def request(
        self, method: str, url: str, body: Any, read: Callable[[Any], T], stop: threading.Event | None = None
    ) -> tuple[T, float]:
        """What ``read`` makes of the JSON reply, and the milliseconds of the try that returned it.

        Setting ``stop`` ends the tries with ``Stopped``; a request in flight is waited for.
        """
        stop = stop or threading.Event()
        content = None if body is None else json.dumps(body).encode()
        failure = ""
        for attempt in range(self._retries.tries):
            self._wait(stop, self._retries.pause_before(attempt))
            started = time.perf_counter()
            try:
                status, after, text = self._once(method, url, content)
                if status == 200:
                    return read(_parse(text)), 1000 * (time.perf_counter() - started)
                failure = f"HTTP {status}"
            except Unusable as error:
                failure = f"{error}: {self._excerpt(text)}"
                continue
            except httpx.HTTPError as error:
                failure = f"{type(error).__name__}: {error}".rstrip(": ")
                continue
            if status not in RETRIED and (status < 500 or status == 501):
                excerpt = self._excerpt(text)  # a server that does not know the model is at the right address
                hint = "; does the address end in /v1?" if status == 404 and "model" not in excerpt.lower() else ""
                raise BadInput(f"{self.server} refused the request ({failure}): {excerpt}{hint}")
            if after is not None and after > (longest := self._retries.longest_pause_s):
                failure += f", asking to wait {after:.0f} s, which is longer than the {longest:g} s allowed"
                break
            self._not_before = max(self._not_before, time.monotonic() + (after or 0.0))
        raise StakesError(
            f"{self.server} gave no answer in {attempt + 1} {'try' if attempt == 0 else 'tries'} (last: {failure}); "
            "check that the server runs and that the address is right"
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _wait(self, stop: threading.Event, pause: float) -> None:
        ready = time.monotonic() + pause
        while (left := max(ready, self._not_before) - time.monotonic()) > 0:
            if stop.wait(left):
                break
        if stop.is_set():
            raise Stopped

    def _once(self, method: str, url: str, content: bytes | None) -> tuple[int, float | None, str]:
        """Status, seconds that ``Retry-After`` asks for, and body; a reply that trickles in is timed out too."""
        timeout = self._retries.timeout_s
        deadline = time.monotonic() + timeout
        headers = {} if content is None else {"content-type": "application/json"}
        parts, size = [], 0
        with self._client.stream(method, url, content=content, headers=headers) as response:
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > MOST_BYTES:
                    raise httpx.ReadError(f"a reply of more than {MOST_BYTES >> 20} MB")
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"the reply was not complete after {timeout:g} s")
            after = retry_after(response.headers.get("retry-after"), time.time())
        return response.status_code, after, b"".join(parts).decode("utf-8", "replace")

    def _excerpt(self, text: str) -> str:
        """The server's error message, short, on one line, and without the key in case it repeats that."""
        try:
            error = json.loads(text)["error"]
            text = str(error["message"] if isinstance(error, dict) else error)
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        words = "".join(c if c.isprintable() else " " for c in (text.replace(self._key, "…") if self._key else text))
        return " ".join(words[:300].split()) or "an empty reply"


def server_name(base_url: str, api_key: str | None = None) -> str:
    """Check an address and a key, and name the server for messages: scheme and host, without any password."""
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError):
        raise BadInput(f"{base_url!r} is not an address; give one such as http://127.0.0.1:8000/v1") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise BadInput(f"{base_url!r} is not an http(s) address; give one such as http://127.0.0.1:8000/v1")
    if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
        raise BadInput("the API key holds characters that no header can carry; was it pasted with a line break?")
    return f"{url.scheme}://{url.netloc.decode('ascii').rpartition('@')[2]}"


def public_address(base_url: str) -> str:
    """The address without anything that may be secret: no user, password, query or fragment."""
    path = httpx.URL(base_url).raw_path.decode("ascii").partition("?")[0]
    return f"{server_name(base_url)}{path}".rstrip("/")


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds from ``now`` that a ``Retry-After`` header (seconds, or a date) asks for; None if it is not readable."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Unusable("its reply is not JSON") from None
