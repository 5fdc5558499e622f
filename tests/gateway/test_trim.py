"""Margins are cut off where the policy was calibrated so or --trim is set, and the response says what is left."""

from typing import Any

import httpx
import openai
import pytest
from PIL import Image
from tests.gateway.gateways import HIGH, ask, encoded, gateway, page, policy, url_of
from tests.gateway.upstream import Upstream, image_sizes

import stakes
from stakes.errors import BadInput
from stakes.gateway.proxy.actuators import check_servable, trim_warnings
from stakes.gateway.settings import Settings
from stakes.vision.geometry import count_tokens
from stakes.vision.image.trim import margins


def framed() -> Image.Image:
    """A page with lines in its middle: 1120 x 1568 pixels, ink from (290, 410) to (520, 1096) or so."""
    image = Image.new("RGB", (1120, 1568), "white")
    image.paste(page(280, 700), (280, 400))
    return image


FRAMED = url_of(encoded(framed()))


def post(http: httpx.Client, base: str, body: Any, **headers: str) -> httpx.Response:
    reply = http.post(f"{base}/chat/completions", json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply


@pytest.mark.parametrize(("rules", "knobs"), [({"trim": True}, {}), ({}, {"trim": True})])
def test_a_trimmed_page_is_sent_larger_within_the_same_budget_and_its_box_is_stated(
    upstream: Upstream, http: httpx.Client, rules: dict[str, Any], knobs: dict[str, Any]
) -> None:
    with gateway(upstream.url, policy()) as front:
        plain = post(http, front.base_url, ask("What is the total?", FRAMED))
    with gateway(upstream.url, policy(**rules), **knobs) as front:
        reply = post(http, front.base_url, ask("What is the total?", FRAMED))
    assert "x-stakes-box" not in plain.headers
    x0, y0, x1, y1 = map(int, reply.headers["x-stakes-box"].split(":"))
    assert 150 < x0 < 290 < 400 < x1 < 620
    assert 300 < y0 < 411 < 1080 < y1 < 1200
    ((width, height),) = image_sizes(upstream.last.json)
    assert reply.headers["x-stakes-scale"] == f"{width / (x1 - x0):.4f}x{height / (y1 - y0):.4f}"
    assert int(reply.headers["x-stakes-predicted-tokens"]) == width * height // 784 <= HIGH
    across = [float(one.headers["x-stakes-scale"].partition("x")[0]) for one in (plain, reply)]
    assert across[1] > 1.5 * across[0]


def test_a_page_without_margins_within_its_budget_is_sent_in_its_own_bytes(
    upstream: Upstream, http: httpx.Client
) -> None:
    small = url_of(encoded(Image.effect_noise((280, 280), 90).convert("RGB")))
    with gateway(upstream.url, policy(trim=True)) as front:
        reply = post(http, front.base_url, ask("What is the total?", small, FRAMED))
    sent = upstream.last.json["messages"][0]["content"]
    assert sent[0]["image_url"]["url"] == small
    assert sent[1]["image_url"]["url"] != FRAMED
    assert reply.headers["x-stakes-box"].startswith("0:0:280:280,")


@pytest.mark.parametrize(
    ("question", "headers"),
    [
        ("Give the bounding box of the total.", {}),
        ("Return bbox_2d of the signature", {}),
        ("What are the coordinates of the total?", {}),
        ("What is the total?", {"x-stakes-tier": "grounding"}),
    ],
)
def test_a_request_for_places_on_the_image_is_not_trimmed(
    upstream: Upstream, http: httpx.Client, question: str, headers: dict[str, str]
) -> None:
    with gateway(upstream.url, policy(trim=True, mean_budget=4000)) as front:
        reply = post(http, front.base_url, ask(question, FRAMED), **headers)
    assert "x-stakes-box" not in reply.headers
    ((width, height),) = image_sizes(upstream.last.json)
    assert abs(width / height - 1120 / 1568) < 0.1


def test_a_page_keeps_its_margins_where_too_few_tokens_would_be_left(upstream: Upstream, http: httpx.Client) -> None:
    """As in calibration, where every page must take the largest budget."""
    x0, y0, x1, y1 = margins(framed())
    left = count_tokens("qwen2.5-vl", x1 - x0, y1 - y0)
    for largest, box in ((left, f"{x0}:{y0}:{x1}:{y1}"), (left + 1, "0:0:1120:1568")):
        rules = policy(trim=True, tiers={"high": {"cost": 5, "budget": largest}, "low": {"cost": 1, "budget": 64}})
        with gateway(upstream.url, rules) as front:
            reply = post(http, front.base_url, ask("Who signed it?", FRAMED))
        assert (reply.headers["x-stakes-tier"], reply.headers["x-stakes-box"]) == ("low", box)


def test_observing_changes_nothing_and_states_the_whole_image(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(trim=True), mode="observe") as front:
        reply = post(http, front.base_url, ask("What is the total?", FRAMED))
    assert reply.headers["x-stakes-box"] == "0:0:1120:1568"
    assert upstream.last.json["messages"][0]["content"][0]["image_url"]["url"] == FRAMED


def test_a_wrapped_client_trims_and_reports_alike(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(trim=True)) as front:
        reply = post(http, front.base_url, ask("What is the total?", FRAMED))
    for rules, trim in ((policy(trim=True), False), (policy(), True)):
        client = openai.OpenAI(base_url=upstream.url, api_key="sk", max_retries=0)
        with stakes.wrap(client, rules, trim=trim) as one:
            answer: Any = one.chat.completions.create(**ask("What is the total?", FRAMED))
            assert [":".join(map(str, box)) for box in answer.stakes.boxes] == [reply.headers["x-stakes-box"]]


def test_the_decision_without_an_image_says_whether_to_trim(upstream: Upstream, http: httpx.Client) -> None:
    asked = {"What is the total?": (True, HIGH), "Give the bounding box of the total.": (False, 0)}
    with gateway(upstream.url, policy(trim=True)) as front:
        for question, trimmed in asked.items():
            body = {"question": question, "images": [[1120, 1568]]}
            decided = http.post(f"{front.address}/stakes/decide", json=body).json()
            assert (decided["trim"], decided["trim_above"]) == trimmed


def test_a_mismatch_is_reported_and_an_engine_that_resizes_itself_is_refused() -> None:
    own = Settings(upstream="http://127.0.0.1:1/v1", trim=True)
    assert "calibrate again with --trim" in trim_warnings(policy(), own)[0]
    assert trim_warnings(policy(trim=True), own) == []
    assert trim_warnings(policy(fingerprint="uncalibrated"), own) == []
    assert trim_warnings(policy(trim=True), Settings(upstream="http://127.0.0.1:1/v1")) == []
    with pytest.raises(BadInput, match="leaves images as they are; use --actuator pixels"):
        check_servable(policy(trim=True), Settings(upstream="http://127.0.0.1:1/v1", actuator="vllm"))
