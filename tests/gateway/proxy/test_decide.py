"""The tier of a request: what the client names, else the last question, of several the most expensive."""

from typing import Any
from urllib.parse import quote, unquote

import httpx
import pytest
from tests.gateway.gateways import (
    HIGH,
    LOW,
    PAGE,
    Gateway,
    ask,
    dumped,
    gateway,
    image_part,
    page,
    policy,
    text_part,
    url_of,
)
from tests.gateway.gateways import encoded as png
from tests.gateway.upstream import Upstream, image_sizes

from stakes import TaskIdentity
from stakes.budgets.policy import TierPlan
from stakes.gateway.proxy.decide import choose_tier
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.request import (
    MOST_BYTES,
    Call,
    ClientHints,
    decode_header,
    encode_header,
    header_bytes,
    parse,
    read_call,
    tier_names,
)
from stakes.signals import Prompt, to_dict


def post(front: Gateway, http: httpx.Client, body: dict[str, Any], **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return http.post(f"{front.base_url}/chat/completions", json=body, headers=names)


def test_the_header_wins_over_metadata_and_both_over_the_question(front: Gateway, http: httpx.Client) -> None:
    body = ask("What is the total?", metadata={"stakes_tier": "low"})
    assert post(front, http, body).headers["x-stakes-tier"] == "low"
    reply = post(front, http, body, x_stakes_tier="high")
    assert (reply.headers["x-stakes-tier"], reply.headers["x-stakes-why"]) == ("high", "header x-stakes-tier")
    assert post(front, http, ask("Who?"), x_stakes_tier="low, high").headers["x-stakes-budget"] == str(HIGH)


def test_grounding_keeps_native_size_within_the_total(front: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    body = ask()
    reply = post(front, http, body, x_stakes_tier="grounding")
    assert reply.headers["x-stakes-outcome"] == "grounding"
    assert reply.headers["x-stakes-scale"] == "1.0000x1.0000"
    assert upstream.last.json == body
    assert (front.state()["images"], front.state()["tokens_spent"]) == (1, 1260)


def test_bypass_forwards_the_body_unchanged_and_is_counted(
    front: Gateway, upstream: Upstream, http: httpx.Client
) -> None:
    body = dumped(ask()).replace(b'"model"', b'  "model"')
    reply = http.post(f"{front.base_url}/chat/completions", content=body, headers={"x-stakes-bypass": "1"})
    assert upstream.last.body == body
    assert reply.headers["x-stakes-outcome"] == "bypassed"
    assert front.metric("bypasses_total") == 1
    assert front.metric("apart_tokens_total", why="bypassed") == 1260
    assert front.state()["images"] == 0
    fitted = http.post(f"{front.base_url}/chat/completions", content=body, headers={"x-stakes-bypass": "false"})
    assert fitted.headers["x-stakes-outcome"] == "fitted"


def test_bypass_can_be_forbidden(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, allow_bypass=False) as front:
        assert post(front, http, ask(), x_stakes_bypass="1").status_code == 403


def test_the_refusal_of_an_unknown_tier_names_it(front: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    reply = post(front, http, ask(), x_stakes_tier="gold")
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == "there is no tier 'gold'; this gateway's tiers are high, low, grounding"
    assert not upstream.seen


def test_a_conversation_is_read_by_its_last_question(front: Gateway, http: httpx.Client) -> None:
    turns = [
        {"role": "system", "content": "Give the total amount."},
        {"role": "user", "content": [image_part(), text_part("What is the total amount?")]},
        {"role": "assistant", "content": "42"},
        {"role": "user", "content": "And who signed it?"},
    ]
    assert post(front, http, {"model": "tiny", "messages": turns}).headers["x-stakes-tier"] == "low"
    turns.append({"role": "user", "content": "On which date?"})
    assert post(front, http, {"model": "tiny", "messages": turns}).headers["x-stakes-tier"] == "high"


def test_questions_of_several_tiers_get_the_most_expensive(front: Gateway, http: httpx.Client) -> None:
    parts = [image_part(), text_part("Who signed it?"), text_part("What is the total?"), text_part("Which colour?")]
    reply = post(front, http, {"model": "tiny", "messages": [{"role": "user", "content": parts}]})
    assert reply.headers["x-stakes-tier"] == "high"
    assert reply.headers["x-stakes-why"] == 'keyword "total"'


def test_a_request_without_text_gets_the_most_expensive_tier(front: Gateway, http: httpx.Client) -> None:
    reply = post(front, http, {"model": "tiny", "messages": [{"role": "user", "content": [image_part()]}]})
    assert reply.headers["x-stakes-tier"] == "high"
    assert reply.headers["x-stakes-why"].startswith("undecided")
    assert front.metric("undecided_total") == 1


def test_several_images_share_by_native_size(front: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    small = url_of(png(page(56, 56)))
    reply = post(front, http, ask("How many?", PAGE, small))
    budgets = [int(word) for word in reply.headers["x-stakes-budget"].split(",")]
    natives = [int(word) for word in reply.headers["x-stakes-native-tokens"].split(",")]
    assert natives == [1260, 4]
    assert budgets[0] >= HIGH
    sizes = image_sizes(upstream.last.json)
    assert sizes[1] == (56, 56)
    assert sum(width * height // 784 for width, height in sizes) <= sum(budgets) <= 2 * HIGH
    assert upstream.last.json["messages"][0]["content"][1]["image_url"]["url"] == small  # within budget: its own bytes


def test_a_task_can_be_named_where_the_policy_reads_tasks(upstream: Upstream, http: httpx.Client) -> None:
    rules = policy(signal=to_dict(TaskIdentity({"invoices": "high", "photos": "low"})))
    with gateway(upstream.url, rules) as front:
        assert post(front, http, ask("Total?"), x_stakes_task="photos").headers["x-stakes-budget"] == str(LOW)
        named = ask("Total?", metadata={"stakes_task": "photos"})
        assert post(front, http, named).headers["x-stakes-why"] == 'task "photos"'
        evil = post(front, http, ask("Total?", metadata={"stakes_task": 'x"\r\nset-cookie: a=é'}))
        assert evil.headers["x-stakes-tier"] == "high"
        assert "set-cookie" not in evil.headers


NAMES = ["高", "prüfen", "тест", "50%", "a%41", "two words"]


@pytest.mark.parametrize("name", NAMES)
def test_a_tier_name_may_hold_any_character(upstream: Upstream, http: httpx.Client, name: str) -> None:
    tiers = {
        "high": TierPlan(cost=5, budget=HIGH),
        "low": TierPlan(cost=1, budget=LOW),
        name: TierPlan(cost=2, budget=99),
    }
    with gateway(upstream.url, policy(tiers=tiers)) as front:
        header = post(front, http, ask(metadata={"stakes_tier": name})).headers["x-stakes-tier"]
        assert header.isascii()
        assert unquote(header) == name
        sent = [header.encode(), quote(name).encode(), *([] if "%4" in name else [name.encode()])]
        sent += [name.encode("latin-1")] if name == "prüfen" else []
        for value in sent:
            reply = http.post(f"{front.base_url}/chat/completions", json=ask(), headers={b"x-stakes-tier": value})
            assert (reply.status_code, reply.headers.get("x-stakes-budget")) == (200, "99"), (value, reply.text)
        several = {b"x-stakes-tier": quote(name).encode() + b", low"}
        reply = http.post(f"{front.base_url}/chat/completions", json=ask(), headers=several)
        assert unquote(reply.headers["x-stakes-tier"]) == name


def test_a_task_name_may_hold_any_character(upstream: Upstream, http: httpx.Client) -> None:
    rules = policy(signal=to_dict(TaskIdentity({"請求書": "high", "写真, 風景": "low"})))
    with gateway(upstream.url, rules) as front:
        for value in ("写真, 風景".encode(), quote("写真, 風景").encode()):
            reply = http.post(f"{front.base_url}/chat/completions", json=ask(), headers={b"x-stakes-task": value})
            assert reply.headers["x-stakes-tier"] == "low"
            assert unquote(reply.headers["x-stakes-why"]) == 'task "写真, 風景"'


def test_a_header_carries_any_text_and_nothing_but_printable_ascii() -> None:
    for text in (*NAMES, "", "a,b", "100%25", "%", "%%41", "\r\nset-cookie: a=1", "\x00\x7f\xa0", "😀" * 20):
        value = encode_header(text)
        assert all(32 <= byte <= 126 for byte in value)
        assert decode_header(value) == text
    assert encode_header('10% of "x"; y') == b'10% of "x"; y'
    assert decode_header(encode_header("lone \ud800")) == "lone ?"
    cut = encode_header("高" * 1000)
    assert MOST_BYTES - 9 < len(cut) <= MOST_BYTES
    assert set(decode_header(cut)) == {"高"}
    assert tier_names("a%2Cb, 高,".encode()) == ("a,b", "高")


@pytest.mark.parametrize("value", ["高, low", "高, low".encode().decode("latin-1"), "%E9%AB%98,low"])
def test_hints_are_read_from_headers_of_text(value: str) -> None:
    headers = {"X-Stakes-Tier": value, "x-stakes-bypass": "off", "x-stakes-cost": " 20 ", "x-other": 7}
    assert ClientHints.from_headers(header_bytes(headers)) == ClientHints(("高", "low"), None, False, "20")


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ({"type": "image_url", "image_url": {"url": PAGE, "detail": "high"}}, 1),
        ({"type": "image_url", "image_url": PAGE}, 1),
        ({"image_url": PAGE}, 1),
        ({"type": "input_image", "image_url": PAGE}, 1),
        ({"type": "tool_result", "content": [{"type": "image_url", "image_url": {"url": PAGE}}]}, 1),
        ({"type": "text", "text": "an image_url in words"}, 0),
    ],
)
def test_every_form_of_an_image_is_found(part: dict[str, Any], found: int) -> None:
    body = dumped({"messages": [{"role": "user", "content": [part, text_part("Total?")]}]})
    call = read_call("chat", parse(body))
    assert len(call.images) == found
    assert call.prompt.question.endswith("Total?")
    for ref in call.images:
        ref.detail = "low"
        ref.url = "data:changed"
        assert PAGE not in str(call.record)
        assert ref.detail == "low"


def test_choose_tier_names_its_source() -> None:
    rules, asked = policy(), Call({}, prompt=Prompt("Who?"))
    assert choose_tier(rules, asked, ClientHints()).tier == "low"
    assert choose_tier(rules, Call({}), ClientHints()).tier == "high"
    assert choose_tier(rules, asked, ClientHints(tiers=("low", "high"))).why == "header x-stakes-tier"
    named = Call({}, hints=ClientHints(tiers=("low",)))
    assert choose_tier(rules, named, ClientHints()).why == "metadata stakes_tier"
    with pytest.raises(Refused, match="no tier 'x'"):
        choose_tier(rules, asked, ClientHints(tiers=("high", "x")))


def test_an_engines_cached_image_is_never_of_another_size(upstream: Upstream, http: httpx.Client) -> None:
    """vLLM answers from its cache where an image part has a known ``uuid``, so each fitted size gets its own."""

    def sent(question: str, url: str = PAGE, **headers: str) -> str:
        body = ask(question, url)
        body["messages"][0]["content"][0]["uuid"] = "page-1"
        assert http.post(f"{front.base_url}/chat/completions", json=body, headers=headers).status_code == 200
        return str(upstream.posts()[-1].json["messages"][0]["content"][0]["uuid"])

    with gateway(upstream.url) as front:
        high, low = sent("What is the total?"), sent("Who signed it?")
        assert high.startswith("page-1-")
        assert low.startswith("page-1-")
        assert high != low
        assert sent("What is the total?") == high  # the same size is cached
        assert sent("Who signed it?", **{"x-stakes-bypass": "1"}) == "page-1"  # native size
        small = url_of(png(page(112, 112)))
        assert sent("What is the total?", small) == "page-1"  # sent unchanged


@pytest.mark.parametrize("part", [{}, {"image_url": None}])
def test_an_image_that_only_the_engine_has_is_counted_as_uncapped(
    upstream: Upstream, http: httpx.Client, part: dict[str, None]
) -> None:
    cached = {"type": "image_url", "uuid": "page-1", **part}
    body = {"model": "tiny", "messages": [{"role": "user", "content": [cached, text_part("What is the total?")]}]}
    with gateway(upstream.url, unread="pass") as front:
        assert http.post(f"{front.base_url}/chat/completions", json=body).status_code == 200
        assert front.metric("apart_images_total", why="uncompressed") == 1
