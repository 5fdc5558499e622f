"""One request with many pages takes no more than its cap, shared where there is content; headers list each page."""

from typing import Any

import httpx
import pytest
from openai import OpenAI
from PIL import Image, ImageDraw
from tests.gateway.gateways import HIGH, LOW, encoded, gateway, image_part, page, policy, url_of
from tests.gateway.pdfs import text_pdf, written
from tests.gateway.test_pdf import asked, file_part
from tests.gateway.upstream import Upstream, image_sizes

import stakes
from stakes.gateway.pages import share_cap
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.images import measure_bytes, measure_size
from stakes.gateway.settings import Limits

FLOOR = 16  # of the policy
PAGES = [page(600, 800), Image.new("RGB", (600, 800), "white")] * 6
URLS = {id(one): url_of(encoded(one)) for one in PAGES[:2]}


def numbers(reply: httpx.Response, name: str) -> list[int]:
    return [int(n) for n in reply.headers[f"x-stakes-{name}"].split(",")]


def parts(images: list[Image.Image]) -> list[dict[str, Any]]:
    return [image_part(URLS[id(one)]) for one in images]


def test_thirty_pages_take_the_cap_and_each_is_listed(upstream: Upstream, http: httpx.Client) -> None:
    cap = 2048
    with gateway(upstream.url, policy(burst=40 * HIGH), pdf="render", max_request_tokens=cap) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=asked(file_part(text_pdf(30))))
        lists = {name: numbers(reply, name) for name in ("budget", "native-tokens", "predicted-tokens")}
        assert {len(one) for one in lists.values()} == {30}
        assert reply.headers["x-stakes-pages"].split(",") == [f"1.{i + 1}" for i in range(30)]
        assert len(reply.headers["x-stakes-scale"].split(",")) == 30
        assert sum(lists["budget"]) == cap  # 30 pages of the tier would take 7,680
        assert 0.9 * cap < sum(lists["predicted-tokens"]) <= cap
        assert [w * h // 784 for w, h in image_sizes(upstream.last.json)] == lists["predicted-tokens"]
        assert "7680 tokens shared down to 2048" in reply.headers["x-stakes-why"]
        assert front.state()["tokens_spent"] == sum(lists["predicted-tokens"])
        assert front.metric("usage_checks_total", result="agreed") == 1


def test_blank_pages_get_the_floor_and_the_others_equal_shares(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(burst=40 * HIGH), max_request_tokens=1000) as front:
        budgets = numbers(http.post(f"{front.base_url}/chat/completions", json=asked(*parts(PAGES))), "budget")
    assert budgets[1::2] == [FLOOR] * 6
    assert set(budgets[::2]) <= {(1000 - 6 * FLOOR) // 6, (1000 - 6 * FLOOR) // 6 + 1}
    assert sum(budgets) == 1000


def test_a_request_within_the_cap_is_as_without_one(upstream: Upstream, http: httpx.Client) -> None:
    body, seen = asked(*parts(PAGES[:3])), []
    for cap in (None, 3 * HIGH):
        with gateway(upstream.url, max_request_tokens=cap) as front:
            reply = http.post(f"{front.base_url}/chat/completions", json=body)
            seen.append((reply.headers["x-stakes-budget"], reply.headers["x-stakes-why"], upstream.last.body))
    assert seen[0] == seen[1]


def test_what_the_floor_alone_exceeds_is_refused(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, max_request_tokens=150) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=asked(*parts(PAGES)))
        assert (reply.status_code, reply.json()["error"]["code"]) == (422, "request_over_cap")
        assert "12 images take 192 tokens at least" in reply.json()["error"]["message"]
        native = {"x-stakes-tier": "grounding"}
        reply = http.post(f"{front.base_url}/chat/completions", json=asked(*parts(PAGES[:1])), headers=native)
        assert (reply.status_code, reply.json()["error"]["code"]) == (422, "request_over_cap")
        assert front.state()["images_outstanding"] == 0
        assert not upstream.posts()


def test_observing_reports_the_shares_and_a_decision_without_images_shares_evenly(
    upstream: Upstream, http: httpx.Client
) -> None:
    body = asked(*parts(PAGES))
    with gateway(upstream.url, mode="observe", max_request_tokens=1000) as front:
        budgets = numbers(http.post(f"{front.base_url}/chat/completions", json=body), "budget")
        assert (sum(budgets), budgets[1]) == (1000, FLOOR)
        assert upstream.last.json == body
    with gateway(upstream.url, max_request_tokens=1000) as front:
        question = {"question": "What is the total?", "images": [[850, 1100]] * 10}
        images = http.post(f"{front.address}/stakes/decide", json=question).json()["images"]
        assert [one["budget"] for one in images] == [100] * 10


def test_a_wrapped_client_and_engine_parameters_keep_the_cap(upstream: Upstream, http: httpx.Client) -> None:
    body = asked(*parts(PAGES))
    with gateway(upstream.url, max_request_tokens=1000) as front:
        budgets = numbers(http.post(f"{front.base_url}/chat/completions", json=body), "budget")
    client = stakes.wrap(OpenAI(base_url=upstream.url, api_key="k", max_retries=0), policy(), max_request_tokens=1000)
    raw = client.chat.completions.with_raw_response.create(model="tiny", messages=body["messages"])
    assert [int(n) for n in raw.headers["x-stakes-budget"].split(",")] == budgets
    with gateway(upstream.url, policy(family="gemma4"), actuator="vllm", max_request_tokens=1000) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
        assert upstream.last.json["mm_processor_kwargs"] == {"max_soft_tokens": 70}  # the next entry takes 12 * 130
        assert sum(numbers(reply, "predicted-tokens")) <= 1000


def test_shares_never_exceed_the_budget_of_the_tier() -> None:
    images = [measure_size(850, 1100, "qwen2.5-vl", Limits()) for _ in range(4)]
    assert list(share_cap(images, [LOW, HIGH, LOW, HIGH], 400, FLOOR)) == [LOW, 136, LOW, 136]
    with pytest.raises(Refused):
        share_cap(images, [LOW] * 4, 4 * FLOOR - 1, FLOOR)


def test_a_damaged_page_beyond_the_cap_is_refused_as_any_other(upstream: Upstream, http: httpx.Client) -> None:
    whole = encoded(PAGES[0])
    broken = [image_part(url_of(whole[: len(whole) // 2]))] * 5
    with gateway(upstream.url, max_request_tokens=200, pdf="render") as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=asked(*broken))
        assert reply.json()["error"]["code"] == "unreadable_image"
        empty = written([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 0 >>"])
        reply = http.post(f"{front.base_url}/chat/completions", json=asked(file_part(empty)))
        assert reply.json()["error"]["code"] == "unreadable_pdf"
        assert front.state()["images_outstanding"] == 0


def test_a_page_number_alone_is_content() -> None:
    numbered = PAGES[1].copy()
    ImageDraw.Draw(numbered).text((290, 770), "7", fill="black")
    images = [measure_bytes(encoded(one), "qwen2.5-vl", Limits()) for one in (PAGES[1], numbered)]
    assert list(share_cap(images, [HIGH, HIGH], 200, FLOOR)) == [FLOOR, 200 - FLOOR]
