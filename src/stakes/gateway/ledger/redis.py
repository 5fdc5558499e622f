"""A ledger in Redis or Valkey: one hard total over gateways on many hosts.

    store = RedisStore("redis://:password@10.0.0.7:6379/0?ledger=invoices")
    ledger = SharedLedger(store, burst=9728).common

``redis+sentinel://a:26379,b:26379/mymaster?ledger=invoices`` asks sentinels for the server that takes writes.
``ledger`` names the total, so that one Redis can keep several. ``exchange.lua`` does ``protocol.exchange`` in one
atomic call. Each exchange uses one connection and is tried once: what failed is not known to be done, and the next
report says it again.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from stakes.errors import BadInput
from stakes.gateway.ledger.protocol import LedgerUnreachable

if TYPE_CHECKING:
    from redis import Redis

TIMEOUT_S = 1.0
SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
SENTINEL_PORT = 26379


@dataclass(frozen=True)
class RedisAddress:
    """Where a ledger is. ``url``: for the client; ``shown``: without password; ``sentinels``: who know the server."""

    url: str
    shown: str
    name: str
    sentinels: tuple[tuple[str, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "RedisAddress":
        """An address as users type it."""
        parts = urlsplit(text)
        query = dict(parse_qsl(parts.query))
        name = query.pop("ledger", "ledger")
        host = parts.netloc.rpartition("@")[2]
        if parts.scheme not in SCHEMES or not (host or parts.scheme == "unix"):
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise BadInput(f"a ledger is a file, or an address such as redis://host:6379/0; schemes are {known}")
        if not name.replace("-", "").replace("_", "").isalnum():
            raise BadInput(f"the name of a ledger is letters, digits, - and _, not {name!r:.60}")
        shown = f"{parts.scheme}://{host}{parts.path}?ledger={name}"
        sentinels: tuple[tuple[str, int], ...] = ()
        if parts.scheme.endswith("+sentinel"):
            sentinels = tuple(_host_port(one) for one in host.split(","))
            if not parts.path.strip("/"):
                raise BadInput("give the name of the master after the sentinels, as redis+sentinel://a,b/mymaster")
        return cls(urlunsplit(parts._replace(query=urlencode(query))), shown, name, sentinels)

    @property
    def keys(self) -> tuple[str, str]:
        """The two keys of the ledger; the braces keep them on one node."""
        return f"stakes:{{{self.name}}}", f"stakes:{{{self.name}}}:seen"

    def client(self, timeout_s: float = TIMEOUT_S) -> "Redis":
        """A client that tries every command once."""
        try:
            from redis import Redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
            from redis.sentinel import Sentinel
        except ImportError:
            raise BadInput("a ledger in Redis needs redis; run: pip install 'stakes[redis]'") from None
        options: dict[str, Any] = {
            "socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, "retry": Retry(NoBackoff(), 0),
            "decode_responses": True, "protocol": 2,
        }  # fmt: skip
        if not self.sentinels:
            return Redis.from_url(self.url, **options)
        parts = urlsplit(self.url)
        service, _, database = parts.path.strip("/").partition("/")
        own = {"username": parts.username, "password": parts.password, "db": int(database or 0)}
        own["ssl"] = parts.scheme.startswith("rediss")
        sentinel = Sentinel(self.sentinels, sentinel_kwargs=options, **options, **own)
        master: Redis = sentinel.master_for(service)
        return master


def _host_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if ":" in text else (text, "", str(SENTINEL_PORT))
    if not port.isdecimal():
        raise BadInput(f"a sentinel is host:port, not {text!r:.60}")
    return host, int(port)


class RedisStore:
    """The ledger of gateways on many hosts. ``loss_s``: how much of its last writes a restart or failover may lose."""

    interval_s = 0.25

    def __init__(self, address: str, loss_s: float = 2.0) -> None:
        from stakes.gateway.ledger.checks import refuse_cluster

        self.address, self.loss_s = RedisAddress.parse(address), loss_s
        self._client = self.address.client()
        self._script = self._client.register_script(Path(__file__).with_name("exchange.lua").read_text("utf-8"))
        refuse_cluster(self._client)

    def exchange(self, report: dict[str, Any]) -> dict[str, Any]:
        """One call of the script."""
        from redis.exceptions import RedisError

        try:
            text = self._script(keys=self.address.keys, args=[json.dumps(report)])
            reply: dict[str, Any] = json.loads(text)
        except (RedisError, OSError, ValueError) as error:
            self.close()  # a reply that comes late must not be taken for the next one
            raise LedgerUnreachable(f"{self.address.shown}: {type(error).__name__}: {error}") from None
        return {**reply, "accounts": list(reply["accounts"] or ())}  # Lua writes an empty list as an object

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
        self._client.connection_pool.disconnect()
