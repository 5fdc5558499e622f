"""How does a request get to the upstream and its answer back? Bytes as they come, one connection pool, no surprises.

* Hop-by-hop headers (and those that ``Connection`` names) go no further in either direction; the length is our own.
* A request is sent again only while no byte of an answer has come, and only where the connection failed.
* Connect, read and total time are limited apart. An upstream that breaks off ends a stream with an error frame, and any
  other answer by closing the connection, so that a short body cannot be taken for a whole one.
* aiohttp's client: measured here at 10 to 20 times the rate of httpx's behind the same server.
"""

import asyncio
import hashlib
import hmac
import re
from collections.abc import Iterable
from functools import lru_cache

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.proxy.errors import Refused, error_frame
from stakes.gateway.proxy.http_limits import Answering
from stakes.gateway.proxy.usage import Tap
from stakes.gateway.settings import Settings

# Who may come in? Whoever has one of the gateway's keys; without keys, everybody, and the upstream judges.
#
# Keys are compared in constant time over their digests, all of them every time, so that neither the time nor the
# length
# tells how near a guess was. With keys of its own the gateway never shows a client's credentials to the upstream.


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


Headers = Iterable[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"trailers", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_OURS = HOP_BY_HOP | {b"host", b"content-length", b"expect"}
_OF_THE_BODY = frozenset({b"content-encoding", b"content-md5", b"digest", b"content-digest", b"accept-encoding"})
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
_QUERY = re.compile(rb"[!-~]*")
_AUTO = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class Dropped(Exception):
    """The upstream broke off after its answer had begun."""


class Upstream:
    """One upstream; opened and closed with the app."""

    def __init__(self, settings: Settings, keeper: Doorkeeper, metrics: Metrics) -> None:
        self._timeouts, self._keeper, self._metrics = settings.timeouts, keeper, metrics
        self.base = settings.upstream.rstrip("/")
        self._root = self.base.removesuffix("/v1")
        self._session: aiohttp.ClientSession | None = None
        self._url = lru_cache(maxsize=256)(self._build)

    def open(self) -> None:
        """Make the pool; to be called on the event loop."""
        times = self._timeouts
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(total=times.total_s, sock_connect=times.connect_s, sock_read=times.read_s),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),  # or one client's cookies would be sent for another
            skip_auto_headers=_AUTO,
            trust_env=False,
            max_line_size=32 << 10,
            max_field_size=32 << 10,
        )

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The pool."""
        assert self._session is not None, "the upstream is not open"
        return self._session

    def address(self, raw_path: bytes, query: bytes) -> URL:
        """Where a path of ours is at the upstream: below its base what is below /v1, beside it all else."""
        if query and not _QUERY.fullmatch(query):
            raise Refused(400, "bad_path", "the query holds characters that no address may")
        url = self._url(raw_path)
        return url.with_query(None) if not query else URL(f"{url}?{query.decode('ascii')}", encoded=True)

    def path(self, raw_path: bytes) -> str:
        """A path of ours as the upstream reads it: below its base, and decoded."""
        return self._url(raw_path).path

    def _build(self, raw_path: bytes) -> URL:
        path = raw_path.decode("latin-1")
        lowered = path.lower()
        segments = lowered.replace("%2e", ".").split("/")
        if (
            not _PATH.fullmatch(path) or "." in segments or ".." in segments or "//" in path
            or "%2f" in lowered or "%5c" in lowered or "%00" in lowered or "%25" in lowered
        ):  # fmt: skip
            raise Refused(400, "bad_path", "the path is not a plain one; servers differ in how they read it")
        below = path.removeprefix("/v1") if path == "/v1" or path.startswith("/v1/") else None
        return URL(f"{self._root}{path}" if below is None else f"{self.base}{below}", encoded=True)

    def headers(self, given: Headers, *, changed: bool) -> CIMultiDict[str]:
        """The client's headers as the upstream may see them; ``changed``: the body is not the client's any more."""
        out: CIMultiDict[str] = CIMultiDict()
        named: set[bytes] = set()
        for name, value in given:
            if name == b"connection":
                named.update(token.strip().lower() for token in value.split(b","))
        replaces = self._keeper.replaces
        for name, value in given:
            if name in _OURS or name in named or name.startswith(b"x-stakes-"):
                continue
            if (changed and name in _OF_THE_BODY) or (replaces and name in CREDENTIALS):
                continue
            out.add(name.decode("latin-1"), value.decode("latin-1"))
        if self._keeper.upstream is not None:
            out["authorization"] = self._keeper.upstream.decode("latin-1")
        return out

    async def ask(self, method: str, url: URL, headers: CIMultiDict[str], body: bytes) -> aiohttp.ClientResponse:
        """The answer's beginning; asked again after a broken connection, refused as 502 or 504."""
        times = self._timeouts
        for attempt in range(times.tries):
            try:
                return await self.session.request(
                    method, url, headers=headers, data=body or None, allow_redirects=False
                )
            except aiohttp.ConnectionTimeoutError:
                kind, status = "connect_timeout", 504
            except TimeoutError:  # it has the request and may be working on it: never ask twice
                self._metrics.upstream_errors.labels("read_timeout").inc()
                raise Refused(504, "upstream_timeout", "the upstream did not answer in time") from None
            except aiohttp.ClientConnectorError:
                kind, status = "connect", 502
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                kind, status = "disconnected", 502
            except aiohttp.ClientError:  # not HTTP, or headers beyond every limit
                self._metrics.upstream_errors.labels("bad_answer").inc()
                raise Refused(502, "upstream_bad_answer", "the upstream's answer is not HTTP") from None
            self._metrics.upstream_errors.labels(kind).inc()
            if attempt + 1 < times.tries:
                self._metrics.retries.inc()
                await asyncio.sleep(times.pause_s * 2**attempt)
        if status == 504:
            raise Refused(504, "upstream_timeout", "the upstream did not take the connection in time")
        raise Refused(502, "upstream_unreachable", "the upstream cannot be reached, or broke off before it answered")

    async def pass_on(
        self,
        answer: aiohttp.ClientResponse,
        send: Answering,
        ours: list[tuple[bytes, bytes]],
        api: str,
        tap: Tap | None,
    ) -> None:
        """Send the answer on as it comes; raises ``Dropped`` where its end is missing."""
        headers, length, streamed = answer_headers(answer.raw_headers, ours)
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        content, left = answer.content, length
        try:
            while True:
                chunk = await content.readany()
                if not chunk:
                    break
                if tap is not None:
                    tap.feed(chunk)
                if left is not None:
                    left -= len(chunk)
                    if left == 0:  # one message fewer for every small answer
                        break
                if streamed and (chunk.endswith(b"[DONE]\n\n") or b"response.completed" in chunk):
                    send.complete = True
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            kind = "read_timeout" if isinstance(error, TimeoutError) else "dropped"
            self._metrics.upstream_errors.labels(kind).inc()
            if streamed and length is None:
                frame = error_frame(api, f"upstream_{kind}", "the upstream broke off in the middle of its answer")
                await send({"type": "http.response.body", "body": frame, "more_body": False})
            raise Dropped(kind) from None
        await send({"type": "http.response.body", "body": chunk, "more_body": False})


def answer_headers(
    given: Headers, ours: list[tuple[bytes, bytes]]
) -> tuple[list[tuple[bytes, bytes]], int | None, bool]:
    """The upstream's headers as the client may see them, the stated length, and whether it is a stream of events."""
    out: list[tuple[bytes, bytes]] = []
    named: set[bytes] = set()
    length, streamed = None, False
    for name, value in given:
        lowered = name.lower()
        if lowered == b"connection":
            named.update(token.strip().lower() for token in value.split(b","))
            continue
        if lowered in HOP_BY_HOP or lowered.startswith(b"x-stakes-"):
            continue
        if lowered == b"content-length":
            length = int(value)
        elif lowered == b"content-type":
            streamed = value.lower().startswith(b"text/event-stream")
        out.append((lowered, value))
    if named:
        out = [(name, value) for name, value in out if name not in named]
    out += ours
    return out, length, streamed
