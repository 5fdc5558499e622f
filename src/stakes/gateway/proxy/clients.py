"""Who asks: the keys of clients, with names and limits, and the key that the upstream gets in their place.

A line of a key file is a key, or a name and a key, and then limits of its own:

    2f7c51d0a9e84b66
    team-b 93e8a4b6c1d24f70 rpm=120 tpm=200000 share=0.25

``rpm`` and ``tpm`` are requests and visual tokens per minute, ``share`` is a part of the burst.
A key without a name is called by the beginning of its digest. Clients send it as ``Authorization: Bearer``,
``x-api-key`` or ``api-key``. With a share, the key has an account of its own: its images follow the traffic mix of its
own requests, and run ahead of their mean by at most that part of the burst, so that it cannot drain the others.
"""

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from stakes.errors import BadInput
from stakes.gateway.proxy.errors import Refused

CREDENTIALS = (b"authorization", b"x-api-key", b"api-key")
_LIMIT = re.compile(r"(rpm|tpm|share)=(.*)")
_NAME = re.compile(r"[\w.@-]{1,64}")


@dataclass(frozen=True)
class ClientKey:
    """One key: the digest of its text, its name and its limits; None for no limit."""

    name: str
    digest: bytes
    rpm: int | None = None
    tpm: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, line: str) -> "ClientKey":
        """The key of one line; errors never repeat the line."""
        words, limits = _split(line)
        key = words[-1]
        if len(key) < 8 or not (key.isascii() and key.isprintable()):
            raise BadInput("a client key is at least 8 printable characters without spaces; one of these is not")
        digest = hashlib.sha256(key.encode()).digest()
        name = words[0] if len(words) == 2 else f"key-{digest.hex()[:6]}"
        if not _NAME.fullmatch(name):
            raise BadInput(f"a key's name is letters, digits, dots, dashes, _ and @, not {name!r:.70}")
        rpm, tpm = (_positive(name, which, limits) for which in ("rpm", "tpm"))
        return cls(name, digest, rpm, tpm, _share(name, limits))


def key_of(line: str) -> str:
    """The key itself, of a line that may also have a name and limits."""
    return _split(line)[0][-1]


def _split(line: str) -> tuple[list[str], dict[str, str]]:
    """The words of a line without its comment, and its limits."""
    words = line.partition(" #")[0].split()
    limits: dict[str, str] = {}
    while words and (limit := _LIMIT.fullmatch(words[-1])):
        limits[limit[1]] = limit[2]
        words.pop()
    if not 1 <= len(words) <= 2:
        raise BadInput("a line of keys is a key, or a name and a key, and then limits such as rpm=60")
    return words, limits


def _positive(name: str, which: str, limits: Mapping[str, str]) -> int | None:
    text = limits.get(which)
    if text is not None and not (text.isdecimal() and int(text) > 0):
        raise BadInput(f"{which} of the key {name!r} is a whole number above 0, not {text!r:.40}")
    return None if text is None else int(text)


def _share(name: str, limits: Mapping[str, str]) -> float | None:
    text = limits.get("share")
    if text is None:
        return None
    if not re.fullmatch(r"0?\.[0-9]{1,6}|1(?:\.0*)?", text) or float(text) == 0:
        raise BadInput(f"share of the key {name!r} is a number above 0 and at most 1, not {text!r:.40}")
    return float(text)


def parse_keys(lines: Iterable[str]) -> tuple[ClientKey, ...]:
    """The keys of all lines; two of one name, or one key twice, are refused."""
    keys = tuple(map(ClientKey.parse, lines))
    for what, values in (("name", [key.name for key in keys]), ("key", [key.digest for key in keys])):
        if len(set(values)) < len(values):
            raise BadInput(f"two lines of keys have the same {what}; give each its own")
    return keys


class Rate:
    """An amount per minute: it flows in evenly, and at most a minute's worth waits to be taken.

    ``processes``: how many share it; each has an equal part.
    """

    def __init__(
        self, per_minute: int, clock: Callable[[], float] = time.monotonic, processes: Callable[[], int] = lambda: 1
    ) -> None:
        self._per_minute, self._clock, self._processes = per_minute, clock, processes
        self._level, self._at = per_minute / processes(), clock()

    def take(self, amount: int) -> float:
        """0 and take it, or the seconds until it can be taken; more than a minute's worth waits for a full minute."""
        now, most = self._clock(), self._per_minute / self._processes()
        self._level = min(most, self._level + (now - self._at) * most / 60)
        self._at = now
        lacking = min(amount, most) - self._level
        if lacking > 1e-9:
            return 60 * lacking / most
        self._level -= amount
        return 0.0

    def give_back(self, amount: int) -> None:
        """Return what was taken and not used."""
        self._level += amount


class Client:
    """One key and what it may still take in this minute; used on the event loop only."""

    def __init__(
        self, key: ClientKey, clock: Callable[[], float] = time.monotonic, processes: Callable[[], int] = lambda: 1
    ) -> None:
        self.key, self.name = key, key.name
        self._requests = None if key.rpm is None else Rate(key.rpm, clock, processes)
        self._tokens = None if key.tpm is None else Rate(key.tpm, clock, processes)

    def admit(self) -> None:
        """Count a request; 429 beyond the limit."""
        wait = 0.0 if self._requests is None else self._requests.take(1)
        if wait:
            raise _limited(f"this key may send {self.key.rpm} requests per minute", "request_limit", wait)

    def take(self, tokens: int) -> None:
        """Count visual tokens before they are sent; 429 beyond the limit."""
        wait = 0.0 if self._tokens is None else self._tokens.take(tokens)
        if wait:
            raise _limited(f"this key may use {self.key.tpm} visual tokens per minute", "token_limit", wait)

    def give_back(self, tokens: int) -> None:
        """Return tokens that were counted and not sent."""
        if self._tokens is not None:
            self._tokens.give_back(tokens)


def _limited(message: str, code: str, wait: float) -> Refused:
    return Refused(429, code, f"{message}; ask again in {ceil(wait)} s", retry_after=max(1, ceil(wait)))


class Authenticator:
    """Knows the gateway's own keys; without any, every client is admitted and the upstream decides.

    ``upstream`` is the authorization that the upstream gets instead of the client's, if any. With keys of its own the
    gateway never shows a client's credentials to the upstream. ``processes``: how many share the limits of a key.
    """

    def __init__(
        self, client_keys: Iterable[str], upstream_key: str | None, processes: Callable[[], int] = lambda: 1
    ) -> None:
        self._clients: list[Client] = []
        self._processes = processes
        self.replace(client_keys, upstream_key)
        self.own = bool(self._clients)
        self.replaces = self.own or self.upstream is not None

    def replace(self, client_keys: Iterable[str], upstream_key: str | None) -> None:
        """Use these keys from now on; a key with the same limits keeps what it has taken in this minute."""
        kept = {client.key: client for client in self._clients}
        self._clients = [kept.get(key) or Client(key, processes=self._processes) for key in parse_keys(client_keys)]
        self.upstream = f"Bearer {upstream_key}".encode() if upstream_key else None

    def check(self, headers: Mapping[bytes, bytes]) -> Client | None:
        """The client whose key a request carries, 401 for one without; None where the gateway has no keys.

        Digests of all keys are compared in constant time, so that timing reveals neither a key nor its length.
        """
        if not self.own:
            return None
        found: list[Client] = []
        for name in CREDENTIALS:
            scheme, _, key = headers.get(name, b"").strip().rpartition(b" ")
            if scheme.strip().lower() == (b"bearer" if name == b"authorization" else b""):
                digest = hashlib.sha256(key).digest()
                found += [one for one in self._clients if hmac.compare_digest(one.key.digest, digest)]
        if not found:
            message = "this gateway needs one of its own keys as `Authorization: Bearer`, `x-api-key` or `api-key`"
            raise Refused(401, "invalid_api_key", message)
        return found[0]


def read_keys(path: Path) -> tuple[str, ...]:
    """Lines of a file that hold keys; a file, because a key on the command line shows in the list of processes."""
    try:
        lines = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError):
        raise BadInput(f"no keys can be read from {path}") from None
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise BadInput(f"{path} holds no key; write one a line")
    return keys


def exposed(path: Path) -> str | None:
    """The warning about a key file that every user of the machine can read; None for any other."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return None
    return f"{path} can be read by every user of this machine; run: chmod 600 {path}" if mode & 0o004 else None
