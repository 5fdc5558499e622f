"""Remote images are forwarded, refused, or fetched from listed hosts at public addresses only."""

import asyncio
import ipaddress
import time
from collections.abc import Iterator, Sequence

import httpx
import pytest
from tests.gateway.gateways import ask, encoded, gateway, page
from tests.gateway.upstream import Seen, Upstream, Wire, image_sizes, serving

from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.remote import Fetcher, is_public_address, read_url

PAGE = encoded(page())
PRIVATE = [
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "192.0.2.1",
    "198.18.0.1", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "fe80::1",
    "fc00::1", "fd00:ec2::254", "ff02::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1",
    "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:c0a8:101::", "2001:0:7f00:1::", "2001:db8::1", "100::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_detected(address: str) -> None:
    assert not is_public_address(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:8.8.8.8"]
)
def test_a_public_address_is_detected(address: str) -> None:
    assert is_public_address(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example\\@127.0.0.1/x", "http://a.example/\\..", "http://user@a.example/x", "http://u:p@a.example/",
        "http://a.example:99999/", "http://a.example:x/", "http:///x", "http://", "https://a.example\t/x",
        "http://a.example/\n", "http://a.ex ample/", "http://a.example%2f@b/", "http://exämple.com/", "ftp://a.example/x",
        "file:///etc/passwd", "http://[::1%25eth0]/", "http://-a.example/", "HTTP:/a.example", "http://" + "a" * 5000,
        "http://[fe80::1", "//a.example/x", "http://a_b^c/",
    ],
)  # fmt: skip
def test_an_address_that_parsers_read_differently_is_refused(url: str) -> None:
    with pytest.raises(Refused):
        read_url(url)


@pytest.mark.parametrize(
    ("hosts", "url", "allowed"),
    [
        (("a.example",), "https://a.example/x.png", True),
        (("a.example",), "https://A.EXAMPLE./x.png", True),
        (("a.example",), "https://b.a.example/x.png", False),
        (("a.example",), "https://a.example.evil.com/", False),
        (("a.example",), "https://evil-a.example/", False),
        (("a.example",), "https://a.example:8443/", False),
        (("a.example:8443",), "https://a.example:8443/", True),
        (("a.example:8443",), "https://a.example/", False),
        (("*.a.example",), "https://b.a.example/", True),
        (("*.a.example",), "https://c.b.a.example/", True),
        (("*.a.example",), "https://a.example/", False),
        (("*.a.example",), "https://ba.example/", False),
        ((), "https://a.example/", False),
        (("a.example",), "http://a.example/", True),
        (("a.example",), "http://a.example:443/", False),
        (("[2606:2800::1]",), "http://[2606:2800::1]/", True),
        (("[2606:2800::1]:81",), "http://[2606:2800::1]:81/", True),
        (("2606:2800::1",), "http://[2606:2800::1]/", True),
    ],
)
def test_the_allowlist_matches_hosts_and_ports(hosts: Sequence[str], url: str, allowed: bool) -> None:
    assert Fetcher(hosts, 1000).allows(url) is allowed


def fetch(
    url: str, resolved: dict[str, list[str]], *, hosts: Sequence[str] = ("*.example",), **options: float
) -> bytes:
    """Fetch with names that resolve as given; only 127.0.0.1, the test's server, counts as public here."""

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return resolved.get(host, ["127.0.0.1"])

    asked: list[str] = []
    one = Fetcher(
        [f"{host}:{port}" for host in hosts for port in PORTS], int(options.get("most", 10**6)),
        options.get("seconds", 5.0), resolve, lambda address: str(address) == "127.0.0.1",
    )  # fmt: skip
    data = asyncio.run(one.fetch(url))
    assert len(asked) == len(set(asked))  # every name is resolved once
    return data


PORTS: list[int] = []


@pytest.fixture
def web() -> Iterator[Upstream]:
    with serving(lambda seen, wire: wire.reply(PAGE, 200, "image/png")) as one:
        PORTS[:] = [int(one.url.split(":")[2].split("/")[0])]
        yield one


def at(web: Upstream, host: str, path: str = "/p.png") -> str:
    return f"http://{host}:{PORTS[0]}{path}"


def test_a_listed_image_is_fetched_at_the_address_that_was_checked(web: Upstream) -> None:
    assert fetch(at(web, "img.example"), {"img.example": ["127.0.0.1"]}) == PAGE
    assert (
        web.last.header("host") == f"img.example:{PORTS[0]}"
    )  # the host name is sent, the checked address is connected to


@pytest.mark.parametrize(
    "addresses", [["10.0.0.1"], ["127.0.0.1", "10.0.0.1"], ["::1"], [], ["127.0.0.2"]],
    ids=["private", "one of two private", "v6 loopback", "none", "a neighbour"],
)  # fmt: skip
def test_a_name_that_resolves_to_a_private_address_is_refused(web: Upstream, addresses: list[str]) -> None:
    with pytest.raises(Refused) as caught:
        fetch(at(web, "img.example"), {"img.example": addresses})
    assert caught.value.status == 422
    assert not web.seen


@pytest.mark.parametrize(
    "location",
    [
        "http://other.test:{port}/x",
        "http://169.254.169.254/latest/meta-data", "http://other.test/x", "file:///etc/passwd", "//evil.test/x",
        "http://in.example:{port}/x", "\\\\evil",
    ],
)  # fmt: skip
def test_every_redirect_is_checked_again(web: Upstream, location: str) -> None:
    where = location.replace("{port}", str(PORTS[0]))
    web.script = lambda seen, wire: wire.reply(b"", 302, "text/plain", f"location: {where}")
    with pytest.raises(Refused):
        fetch(at(web, "img.example"), {"img.example": ["127.0.0.1"], "in.example": ["10.0.0.7"]})
    assert len(web.seen) == 1


def test_a_redirect_to_another_listed_host_is_followed_and_a_loop_is_not(web: Upstream) -> None:
    def script(seen: Seen, wire: Wire) -> None:
        if "img" in (seen.header("host") or ""):
            wire.reply(b"", 302, "text/plain", f"location: {at(web, 'cdn.example')}")
        else:
            wire.reply(PAGE, 200, "image/png")

    web.script = script
    assert fetch(at(web, "img.example"), {"img.example": ["127.0.0.1"], "cdn.example": ["127.0.0.1"]}) == PAGE
    web.script = lambda seen, wire: wire.reply(b"", 302, "text/plain", f"location: {seen.path}x")
    with pytest.raises(Refused):
        asyncio.run(_loop(at(web, "img.example")))
    assert len(web.seen) == 2 + 4


async def _loop(url: str) -> bytes:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    return await Fetcher([f"img.example:{PORTS[0]}"], 10**6, 5, resolve, lambda _: True).fetch(url)


def test_bytes_and_seconds_are_limited(web: Upstream) -> None:
    def endless(seen: Seen, wire: Wire) -> None:
        wire.begin_stream("image/png")
        for _ in range(1000):
            wire.chunk(b"0" * 1000)

    def slow(seen: Seen, wire: Wire) -> None:
        wire.begin_stream("image/png")
        for _ in range(100):
            wire.chunk(b"0")
            time.sleep(0.05)

    web.script = endless
    with pytest.raises(Refused) as caught:
        fetch(at(web, "img.example"), {"img.example": ["127.0.0.1"]}, most=5000)
    assert caught.value.status == 413
    web.script = slow
    began = time.monotonic()
    with pytest.raises(Refused):
        fetch(at(web, "img.example"), {"img.example": ["127.0.0.1"]}, seconds=0.3)
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("status", [404, 500, 206])
def test_every_failure_is_the_same_refusal(web: Upstream, status: int) -> None:
    web.script = lambda seen, wire: wire.reply(b"secret of the inner net", status)
    with pytest.raises(Refused) as caught:
        fetch(at(web, "img.example"), {"img.example": ["127.0.0.1"]})
    assert "secret" not in caught.value.message


def test_an_unlisted_address_is_forwarded_and_counted_or_refused(upstream: Upstream, http: httpx.Client) -> None:
    body = ask("What is the total?", "https://images.example/p.png")
    with gateway(upstream.url) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
        assert reply.headers["x-stakes-outcome"] == "uncompressed"
        assert upstream.last.json == body
        assert front.metric("apart_images_total", why="uncompressed") == 1
        assert front.state()["images"] == 0
    with gateway(upstream.url, remote="refuse") as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (422, "remote_image")


def test_a_listed_host_with_a_private_address_is_refused_in_every_spelling(
    upstream: Upstream, http: httpx.Client
) -> None:
    """The allowlist names hosts, not addresses: all of these are this machine or the metadata service."""
    hosts = ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "169.254.169.254", "[::1]")
    with gateway(upstream.url, remote_hosts=hosts) as front:
        for host in hosts:
            reply = http.post(
                f"{front.base_url}/chat/completions", json=ask("What is the total?", f"http://{host}/p.png")
            )
            assert (host, reply.status_code, reply.json()["error"]["code"]) == (host, 422, "remote_image")
    assert not upstream.seen


def test_a_fetched_image_is_fitted_and_not_fetched_again(upstream: Upstream, web: Upstream, http: httpx.Client) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    with gateway(upstream.url) as front:
        front.app.state.preparer.fetcher = Fetcher([f"img.example:{PORTS[0]}"], 10**6, 5, resolve, lambda _: True)
        reply = http.post(f"{front.base_url}/chat/completions", json=ask("Who?", at(web, "img.example")))
        assert reply.headers["x-stakes-outcome"] == "fitted"
        assert len(image_sizes(upstream.last.json)) == 1
        native = http.post(
            f"{front.base_url}/chat/completions", json=ask("Who?", at(web, "img.example")),
            headers={"x-stakes-tier": "grounding"},
        )  # fmt: skip
        assert native.headers["x-stakes-native-tokens"] == "1260"
        assert image_sizes(upstream.last.json) == [(840, 1176)]
