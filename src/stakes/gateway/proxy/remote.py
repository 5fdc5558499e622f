"""Fetches remote images, only from hosts on the allowlist and only from public addresses.

Every hop is checked: parse the address strictly, find its host on the list, resolve once, refuse the host if any of its
addresses is not public (private, loopback, link-local, mapped, metadata), connect to the very address that was checked,
never follow a redirect without the same checks. Bytes and seconds are limited over all hops together. The image is
forwarded as a data URL, so that the upstream does not fetch it again. (CVE-2025-6242, CVE-2026-24779: vLLM; a redirect
past the check: LMDeploy #4761.)

    fetcher = Fetcher(("images.example.com",), most_bytes=24 << 20, seconds=10)
    data = await fetcher.fetch("https://images.example.com/page.png")
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from stakes.gateway.proxy.errors import Refused

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

_PLAIN = re.compile(r"[!-\[\]-~]+")  # printable ASCII without space and backslash, which parsers read differently
_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?")
_MOST_HOPS = 3
_PUBLIC = ipaddress.IPv4Address("8.8.8.8")
# Refused in addition to Python's own list, which differs between versions: metadata services (Azure, Alibaba, Oracle in
# 192.0.0.0/24), and every form of IPv6 that wraps an IPv4 address: translated, compatible, 6to4, Teredo.
_CLOSED = tuple(
    ipaddress.ip_network(net)
    for net in (
        "0.0.0.0/8", "100.64.0.0/10", "168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24",
        "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
    )
)  # fmt: skip


def read_url(url: str) -> tuple[str, int, str]:
    """(host, port, scheme) of an http(s) address that all parsers read alike; 422 for any other."""
    bad = Refused(422, "bad_image_url", "an image's address is not a plain http(s) or data address")
    if len(url) > 4096 or not _PLAIN.fullmatch(url):
        raise bad
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise bad from None
    host = (parts.hostname or "").rstrip(".")
    named = "%" not in host and (_HOST.fullmatch(host) or _is_address(host))
    if parts.scheme not in ("http", "https") or parts.username is not None or parts.password is not None or not named:
        raise bad
    return host, port or (443 if parts.scheme == "https" else 80), parts.scheme


def check_remote(url: str) -> None:
    """Refuse an address that the upstream must not be sent to: another scheme, or literally this or a private network.

    Names are not resolved here: the upstream resolves them itself, perhaps to something else.
    """
    host = read_url(url)[0]
    if host == "localhost" or host.endswith(".localhost") or not is_public_address(_literal(host) or _PUBLIC):
        raise Refused(422, "private_image_url", "an image's address is in a private network; send it as a data URL")


def _literal(host: str) -> Address | None:
    """The address that a host spells out, in the short and octal forms that C libraries read too; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def is_public_address(address: Address) -> bool:
    """Whether an address belongs to the public internet; an IPv4 address mapped into IPv6 is checked as IPv4."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return is_public_address(address.ipv4_mapped)
    if any(address.version == net.version and address in net for net in _CLOSED):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


async def _lookup(host: str, port: int) -> list[str]:
    entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in entries]


class Fetcher:
    """Fetches images for one gateway; ``resolve`` and ``is_public`` are replaced by tests only."""

    def __init__(
        self,
        hosts: Sequence[str],
        most_bytes: int,
        seconds: float = 10.0,
        resolve: Resolve = _lookup,
        is_public: Callable[[Address], bool] = is_public_address,
    ) -> None:
        self._hosts = [_entry(host.lower()) for host in hosts]
        self._most, self._seconds = most_bytes, seconds
        self._resolve, self._is_public = resolve, is_public

    def allows(self, url: str) -> bool:
        """Whether the address is well formed and its host is on the list; nothing is resolved."""
        try:
            return self._listed(*read_url(url))
        except Refused:
            return False

    def takes(self, url: str, others: str) -> bool:
        """Whether an image is to be fetched; what is not is refused, or passed if its address is public."""
        read_url(url)  # refuses every other scheme: servers read file: and worse
        if self.allows(url):
            return True
        if others == "refuse":
            raise Refused(422, "remote_image", "remote images are not accepted; send the image as a data URL")
        check_remote(url)
        return False

    async def fetch(self, url: str) -> bytes:
        """The bytes at an allowed address; every failure is the same 422, which reveals nothing of the network."""
        try:
            async with asyncio.timeout(self._seconds):
                for _ in range(_MOST_HOPS + 1):
                    data, location = await self._hop(url)
                    if location is None:
                        return data
                    url = location
        except Refused:
            raise
        except Exception:
            raise _failed() from None
        raise _failed()

    async def _hop(self, url: str) -> tuple[bytes, str | None]:
        import aiohttp  # what only checks addresses does not need it

        host, port, scheme = read_url(url)
        if not self._listed(host, port, scheme):
            raise _failed()
        resolved = await self._resolve(host, port)
        if not resolved or not all(self._is_public(ipaddress.ip_address(one.partition("%")[0])) for one in resolved):
            raise _failed()
        resolver: Any = _Pinned(resolved[0])
        connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True)
        timeout = aiohttp.ClientTimeout(total=self._seconds)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.get(url, allow_redirects=False, headers={"accept": "image/*"}, auto_decompress=False) as reply,
        ):
            if reply.status in (301, 302, 303, 307, 308):
                return b"", urljoin(url, reply.headers.get("location", ""))
            if reply.status != 200:
                raise _failed()
            data = bytearray()
            async for part in reply.content.iter_any():
                data += part
                if len(data) > self._most:
                    raise Refused(413, "image_too_large", f"a remote image has more than {self._most} bytes")
            return bytes(data), None

    def _listed(self, host: str, port: int, scheme: str) -> bool:
        usual = port == (443 if scheme == "https" else 80)
        for name, listed_port in self._hosts:
            matches = host == name or (name.startswith("*.") and host.endswith(name[1:]) and len(host) >= len(name))
            if matches and (str(port) == listed_port if listed_port else usual):
                return True
        return False


class _Pinned:
    """A resolver for aiohttp that returns the one address that was checked."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> "list[ResolveResult]":  # noqa: ARG002
        kind = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        return [
            {
                "hostname": host, "host": self._address, "port": port, "family": kind, "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
        ]  # fmt: skip

    async def close(self) -> None:
        return None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _entry(text: str) -> tuple[str, str]:
    """(host, port or "") of an entry of the list: a.example, a.example:8443, [2001:db8::1], [2001:db8::1]:8443."""
    if text.startswith("["):
        name, _, rest = text[1:].partition("]")
        return name, rest.removeprefix(":")
    name, _, port = text.partition(":") if text.count(":") == 1 else (text, "", "")
    return name, port


def _failed() -> Refused:
    return Refused(422, "remote_image", "a remote image may not be fetched, or could not be; send it as a data URL")
