"""Large and hostile work does not delay ordinary pages: the order of the line, its bounds, what refusals hold."""

import asyncio
import gc
import gzip
import threading
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from PIL import Image
from tests.gateway.gateways import PAGE, ask, encoded, gateway, url_of
from tests.gateway.upstream import Upstream

from stakes.gateway.proxy import actuators, images
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.http_limits import OpenBodies
from stakes.gateway.settings import Limits
from stakes.gateway.workers import Workers

SMALL, LARGE = 10 << 20, 200 << 20


class Line:
    """Workers whose jobs wait until they are let go, and the order in which they began."""

    def __init__(self, **limits: Any) -> None:
        self.workers, self.began, self._go = Workers(Limits(**limits)), list[str](), threading.Event()

    def ask(self, name: str, size: int) -> "asyncio.Task[str]":
        """Put a job into the line."""

        def work() -> str:
            self.began.append(name)
            self._go.wait(10)
            return name

        return asyncio.create_task(self.workers.run_for(size, work))

    def go(self) -> None:
        """Let all jobs end."""
        self._go.set()


async def settle() -> None:
    """Let tasks and threads get as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0.005)


def in_loop(test: Callable[[], Any]) -> None:
    asyncio.run(test())


def test_a_page_overtakes_larger_work_in_the_line() -> None:
    async def scenario() -> None:
        line = Line(workers=1)
        jobs = [line.ask("first", SMALL), line.ask("large", LARGE), line.ask("larger", 2 * LARGE)]
        await settle()
        jobs.append(line.ask("page", SMALL))
        await settle()
        line.go()
        await asyncio.gather(*jobs)
        assert line.began == ["first", "page", "large", "larger"]
        assert (line.workers.inside, line.workers.large_bytes) == (0, 0)

    in_loop(scenario)


def test_large_work_leaves_one_thread_to_pages() -> None:
    async def scenario() -> None:
        line = Line(workers=3)
        jobs = [line.ask("large", LARGE) for _ in range(5)]
        await settle()
        assert line.began == ["large"] * 2
        jobs.append(line.ask("page", SMALL))
        await settle()
        assert line.began == ["large", "large", "page"]
        line.go()
        await asyncio.gather(*jobs)

    in_loop(scenario)


def test_work_that_has_waited_is_not_overtaken_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of 10 MB goes before work without bytes that arrives a second later."""

    async def scenario() -> None:
        line, clock = Line(workers=1), [0.0]
        monkeypatch.setattr("stakes.gateway.workers.time", SimpleNamespace(monotonic=lambda: clock[0]))
        jobs = [line.ask("first", 0), line.ask("page", SMALL)]
        await settle()
        clock[0] = 1.0
        jobs.append(line.ask("late", 0))
        await settle()
        line.go()
        await asyncio.gather(*jobs)
        assert line.began == ["first", "page", "late"]

    in_loop(scenario)


def test_large_work_is_bounded_over_all_requests_and_pages_are_not() -> None:
    async def scenario() -> None:
        line = Line(workers=2, open_decode_bytes=3 * LARGE)
        jobs = [line.ask("large", LARGE) for _ in range(3)]
        await settle()
        with pytest.raises(Refused) as refused:
            await line.ask("one more", LARGE)
        assert (refused.value.status, refused.value.code) == (503, "too_many_open_pixels")
        assert refused.value.retry_after
        assert not refused.value.passable
        jobs.append(line.ask("page", SMALL))
        line.go()
        await asyncio.gather(*jobs)
        assert line.workers.large_bytes == 0

    in_loop(scenario)


@pytest.mark.parametrize(("size", "passable"), [(SMALL, True), (LARGE, False)])
def test_only_small_work_that_takes_too_long_may_fail_open(size: int, passable: bool) -> None:
    async def scenario() -> None:
        line = Line(workers=1, fit_s=0.05)
        with pytest.raises(Refused) as refused:
            await line.ask("slow", size)
        assert (refused.value.code, refused.value.passable) == ("fit_timeout", passable)
        line.go()

    in_loop(scenario)


def test_a_client_that_leaves_gives_its_place_back() -> None:
    async def scenario() -> None:
        line = Line(workers=1, waiting=2)
        first = line.ask("first", 0)
        waits = line.ask("waits", LARGE)
        await settle()
        waits.cancel()
        await settle()
        assert (line.workers.inside, line.workers.large_bytes) == (1, 0)
        second = line.ask("second", 0)
        line.go()
        assert [await first, await second] == ["first", "second"]
        assert line.began == ["first", "second"]

    in_loop(scenario)


def test_closing_cancels_what_waits() -> None:
    async def scenario() -> None:
        line = Line(workers=1)
        first, waits = line.ask("first", 0), line.ask("waits", 0)
        await settle()
        line.workers.close()
        line.go()
        assert await first == "first"
        with pytest.raises(asyncio.CancelledError):
            await waits

    in_loop(scenario)


def test_an_error_frees_its_arguments_without_garbage_collection() -> None:
    class Body:
        pass

    def fail(body: Body) -> None:
        raise Refused(413, "too_large", f"{body} is too large")

    async def scenario() -> None:
        workers, body = Workers(Limits()), Body()
        seen = weakref.ref(body)
        try:
            await workers.run(fail, body)
        except Refused as refusal:
            refusal.__traceback__ = None  # as the handler does
        del body
        await settle()
        assert seen() is None
        workers.close()

    gc.disable()
    try:
        in_loop(scenario)
    finally:
        gc.enable()


@pytest.mark.parametrize("fail", ["open", "closed"])
def test_an_image_that_takes_much_memory_to_decode_is_refused(
    upstream: Upstream, http: httpx.Client, fail: Any
) -> None:
    webp = url_of(encoded(Image.new("L", (2500, 2500)), "WEBP", lossless=True), "image/webp")
    png = url_of(encoded(Image.new("L", (2500, 2500))))
    with gateway(upstream.url, limits=Limits(decode_bytes=60 << 20), fail=fail) as front:
        refused = http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", webp))
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "too_many_pixels")
        assert "a WEBP of 2500x2500 takes 95 MB" in refused.json()["error"]["message"]
        assert http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", png)).status_code == 200


def test_a_gzip_body_counts_what_it_states_before_it_is_unpacked(upstream: Upstream, http: httpx.Client) -> None:
    body = gzip.compress(b'{"image_url": "' + b"0" * (8 << 20) + b'"}')
    with gateway(upstream.url, limits=Limits(open_bytes=4 << 20)) as front:
        address = f"{front.base_url}/chat/completions"
        reply = http.post(address, content=body, headers={"content-encoding": "gzip"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "too_many_bytes")
        assert http.post(address, json=ask()).status_code == 200


def test_a_few_large_bodies_leave_a_quarter_to_small_ones() -> None:
    bodies = OpenBodies(most=100, small=10)
    assert bodies.add(75, 0) == 75
    with pytest.raises(Refused):
        bodies.add(11, 0)
    assert bodies.add(8, 0) == 8
    with pytest.raises(Refused):
        bodies.add(8, 8)
    assert bodies.add(10, 0) == 10
    with pytest.raises(Refused):
        bodies.add(10, 0)


def test_saturated_workers_return_503_and_recover(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, limits=Limits(workers=1, waiting=1)) as front:
        hold, held = threading.Event(), threading.Event()

        def work() -> None:
            held.set()
            hold.wait(10)

        workers: Any = front.app.state.workers
        workers.inside += 1
        workers._pool.submit(work)
        assert held.wait(5)
        reply = http.post(f"{front.base_url}/chat/completions", json=ask())
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "busy")
        assert reply.headers["retry-after"] == "1"
        assert http.post(f"{front.base_url}/chat/completions", json={"messages": []}).status_code == 200
        hold.set()
        workers.inside -= 1
        assert http.post(f"{front.base_url}/chat/completions", json=ask()).status_code == 200


def test_image_work_beyond_its_time_limit_is_503(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, limits=Limits(fit_s=0.001, pixels=30_000_000)) as front:
        large = url_of(encoded(Image.new("L", (5000, 5000))))
        reply = http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", large))
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "fit_timeout")


def test_abandoned_work_ends_with_its_current_image(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time limit frees the client at once, and the thread after one image instead of all of them."""
    fitted = []

    def slow(*given: Any) -> Any:
        fitted.append(given)
        time.sleep(0.3)
        return images.fit_image(*given)

    monkeypatch.setattr(actuators, "fit_image", slow)
    with gateway(upstream.url, limits=Limits(fit_s=0.2)) as front, httpx.Client(timeout=20, trust_env=False) as client:
        answer = client.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", *[PAGE] * 8))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "fit_timeout")
        time.sleep(1.0)
        assert len(fitted) == 1
