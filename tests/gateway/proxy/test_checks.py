"""Bodies that would take long to parse are refused before, at once, and the event loop goes on."""

import gzip
import json
import random
import threading
import time

import httpx
import pytest
from tests.gateway.gateways import PAGE, ask, gateway, image_part, text_part
from tests.gateway.upstream import Upstream

from stakes.gateway.proxy.checks import check_json
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.settings import Limits

BEGIN = b'{"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "'
ATTACKS = {
    "nested arrays": (b"", b"[", b"", "too_many_values"),
    "a flat array": (b"[", b"1,", b"1]}", "too_many_values"),
    "quotes": (b"", b'""', b"}", "too_many_values"),
    "escapes": (b'"', b"\\n", b'"}', "too_many_escapes"),
    "a long question": (b'"', b"how much ", b'"}', "text_too_large"),
    "a long word": (b'"', b"a", b'"}', "text_too_large"),
}


def attack(name: str) -> bytes:
    """A request with an image and 60 MB of something else."""
    start, unit, end, _ = ATTACKS[name]
    return BEGIN + b'x"}}]}], "a": ' + start + unit * ((60 << 20) // len(unit)) + end


@pytest.mark.parametrize("name", ATTACKS)
def test_a_body_that_would_take_long_is_refused(name: str) -> None:
    with pytest.raises(Refused) as refused:
        check_json(attack(name), Limits())
    assert refused.value.code == ATTACKS[name][-1]


@pytest.mark.parametrize("escaped", [False, True])
def test_large_images_are_no_text(escaped: bool) -> None:
    url = "data:image/png;base64," + "iVBORw0KGgo/" * 500_000
    body = json.dumps({"messages": [{"content": [{"image_url": {"url": url}}, {"source": {"data": url[22:]}}]}]})
    check_json((body.replace("/", "\\/") if escaped else body).encode(), Limits(json_escapes=2_000_000))


def test_health_checks_are_answered_during_an_attack_and_a_request_after_it(
    upstream: Upstream, http: httpx.Client
) -> None:
    packed = {name: gzip.compress(attack(name), 1) for name in ATTACKS}
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    with gateway(upstream.url) as front:
        waits: list[float] = []
        over = threading.Event()

        def poll() -> None:
            with httpx.Client(trust_env=False) as client:
                while not over.is_set():
                    began = time.perf_counter()
                    client.get(f"{front.address}/livez", timeout=30)
                    waits.append(time.perf_counter() - began)
                    time.sleep(0.005)

        thread = threading.Thread(target=poll)
        thread.start()
        for name, body in packed.items():
            answer = http.post(f"{front.base_url}/chat/completions", content=body, headers=headers, timeout=60)
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, ATTACKS[name][-1])
        over.set()
        thread.join()
        assert max(waits) < 1.0  # 6 to 21 s without the limits; a free machine takes 0.1 s
        assert http.post(f"{front.base_url}/chat/completions", json=ask(), timeout=20).status_code == 200


def test_many_half_sent_bodies_are_refused_and_then_forgotten(upstream: Upstream, http: httpx.Client) -> None:
    content = [image_part(PAGE), text_part("What is the total?" + " " * 200_000)]
    large = {"model": "m", "messages": [{"role": "user", "content": content}]}
    with gateway(upstream.url, limits=Limits(open_bytes=150_000)) as front:
        answer = http.post(f"{front.base_url}/chat/completions", json=large)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "too_many_bytes")
        assert answer.headers["retry-after"] == "1"
        for _ in range(5):
            assert http.post(f"{front.base_url}/chat/completions", json=ask()).status_code == 200


@pytest.mark.parametrize("unread", ["refuse", "pass"])
def test_a_large_form_on_another_path_is_an_unread_image_and_not_too_much_text(
    upstream: Upstream, http: httpx.Client, unread: str
) -> None:
    form = b"--x\r\n\r\n\x89PNG" + random.Random(1).randbytes(8 << 20)
    with gateway(upstream.url, unread=unread) as front:
        answer = http.post(f"{front.base_url}/images/edits", content=form, timeout=30)
        assert answer.status_code == (422 if unread == "refuse" else 200)
        assert len(upstream.posts()) == (unread == "pass")
