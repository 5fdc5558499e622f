"""Undecided requests are counted, logged and shown; their texts are kept masked, few and for a limited time."""

import asyncio
import io
import json
import sys
import time
import unicodedata
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.gateway.gateways import PAGE, Gateway, ask, dumped, gateway, policy
from tests.gateway.upstream import Seen, Upstream, Wire

from stakes.gateway.monitoring import undecided
from stakes.gateway.monitoring.undecided import (
    ADVICE,
    LONGEST_TEXT,
    SEE_EXAMPLES,
    UndecidedShare,
    UndecidedTexts,
    example_text,
    is_neutral,
    mask,
)
from stakes.signals import Prompt, RequestSignal, to_dict
from stakes.signals.prompt import SchemaField

UNKNOWN = "qwertz zuiop 4711"
DIGITS = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c)[0] == "N" or c.isdigit())
WITH_DIGITS = st.text(st.one_of(st.characters(), st.sampled_from(DIGITS), st.sampled_from("@＠﹫ .\n㏠🄁")))


def requests_policy() -> Any:
    return policy(signal=to_dict(RequestSignal()))


def post(http: httpx.Client, front: Gateway, body: dict[str, Any], **headers: str) -> httpx.Response:
    return http.post(f"{front.base_url}/chat/completions", content=dumped(body), headers=headers)


def shown(http: httpx.Client, front: Gateway) -> dict[str, Any]:
    reply = http.get(f"{front.address}/stakes/state")
    assert reply.status_code == 200
    found: dict[str, Any] = reply.json()["undecided"]
    return found


def with_system(question: str, system: str) -> dict[str, Any]:
    body = ask(question)
    return {**body, "messages": [{"role": "system", "content": system}, *body["messages"]]}


# ---- masking -------------------------------------------------------------------------------------------------------


def has_digit(text: str) -> bool:
    return any(one.isdigit() or unicodedata.category(one)[0] == "N" for one in unicodedata.normalize("NFKC", text))


@given(question=WITH_DIGITS, system=WITH_DIGITS, fields=st.lists(WITH_DIGITS, max_size=3))
@example(question="", system="IBAN DE89 3704 ①②٣४𝟝½Ⅷ㏠ tag \U000e0031", fields=["line_2"])
def test_no_digit_and_no_address_survives_and_the_text_is_short(question: str, system: str, fields: list[str]) -> None:
    text = example_text(Prompt(question, system, tuple(map(SchemaField, fields))))
    assert not has_digit(text)
    assert not set("@＠﹫") & set(text)
    assert len(text) <= LONGEST_TEXT
    assert text.isprintable() or set(filter(lambda one: not one.isprintable(), text)) <= set("\u200c\u200d")
    text.encode("utf-8")  # no lone surrogate


def test_every_digit_of_unicode_is_masked() -> None:
    assert len(DIGITS) > 1700
    for start in range(0, len(DIGITS), LONGEST_TEXT):
        part = DIGITS[start : start + LONGEST_TEXT]
        assert mask(part) == "#" * len(part)


@given(before=st.integers(0, 25_000), local=st.text("xyz", min_size=1, max_size=40), filler=st.sampled_from("ü@"))
@example(before=296, local="xyz.xyz", filler="ü")
@example(before=19_994, local="xyz.xyz", filler="@")
def test_cutting_leaves_no_part_of_an_address(before: int, local: str, filler: str) -> None:
    masked = mask(f"{filler * before} {local}@example.com")
    assert not set(masked) & set("xyz@")
    assert len(masked) <= LONGEST_TEXT


def test_words_stay_readable() -> None:
    assert mask("  Lies Feld 12\n für <anna.b@example.com>, bitte ") == "Lies Feld ## für [e-mail] bitte"
    assert mask("word " * 100) == ("word " * 60)[:299] + "…"
    assert mask("请读取第5行") == "请读取第#行"
    assert mask("می‌خواهم") == "می‌خواهم"  # with its joiner


def test_a_long_text_is_masked_in_little_time() -> None:
    began = time.perf_counter()
    for text in ("a" * 2_000_000, "a@" * 1_000_000, " @" * 1_000_000, "1" * 2_000_000):
        assert len(example_text(Prompt(text, text))) <= LONGEST_TEXT
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        (Prompt("Zork it", "You are the intake of ACME."), "Zork it"),
        (Prompt("Process this document.", "Zork 12 it."), "Process this document. · system: Zork ## it."),
        (Prompt("", "Zork it."), "system: Zork it."),
        (
            Prompt("Fill in the fields.", "", (SchemaField("zork"), SchemaField("q2"))),
            "Fill in the fields. · fields: zork, q#",
        ),
        (Prompt(), ""),
    ],
)
def test_the_system_text_is_kept_only_where_the_question_is_neutral(prompt: Prompt, text: str) -> None:
    assert example_text(prompt) == text


def test_neutral_questions_are_known_in_several_languages() -> None:
    for question in ("Please process this document.", "Bitte verarbeite dieses Dokument.", ""):
        assert is_neutral(question), question
    for question in ("What is the total?", UNKNOWN, "Describe the image"):
        assert not is_neutral(question), question


# ---- keeping -------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@given(texts=st.lists(st.sampled_from("abcdefgh"), max_size=60), keep=st.integers(0, 5))
def test_the_last_different_texts_are_kept_with_their_counts(texts: list[str], keep: int) -> None:
    one = UndecidedTexts(keep, clock=Clock())
    for text in texts:
        one.add(text)
    kept = [record["text"] for record in one.records()]
    assert kept == list(dict.fromkeys(reversed(texts)))[:keep]
    if len(set(texts)) <= keep:
        assert {record["text"]: record["count"] for record in one.records()} == {t: texts.count(t) for t in texts}


@given(steps=st.lists(st.tuples(st.floats(0, 5), st.sampled_from("abc")), max_size=30), hours=st.floats(0.01, 10))
def test_no_text_is_kept_longer_than_its_hours(steps: list[tuple[float, str]], hours: float) -> None:
    clock = Clock()
    one = UndecidedTexts(1000, hours, clock)
    last: dict[str, float] = {}
    for pause, text in steps:
        clock.now += 3600 * pause
        one.add(text)
        last[text] = clock.now
        assert {record["text"] for record in one.records()} == {
            text for text, at in last.items() if at >= clock.now - 3600 * hours
        }
    clock.now += 3600 * hours + 1
    assert one.records() == []


def test_texts_expire_while_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undecided, "_SWEEP_S", 0.01)
    clock = Clock()
    one = UndecidedTexts(5, 1, clock)
    one.add("old")

    async def wait() -> None:
        sweeping = asyncio.create_task(one.sweep())
        await asyncio.sleep(0.05)
        assert list(one._texts) == ["old"]
        clock.now += 3601
        await asyncio.sleep(0.05)
        assert not one._texts
        sweeping.cancel()

    asyncio.run(wait())


# ---- through a gateway ---------------------------------------------------------------------------------------------


@given(undecided=st.integers(0, 50), decided=st.integers(0, 50), others=st.integers(0, 50))
def test_the_share_is_of_requests_whose_tier_was_chosen(undecided: int, decided: int, others: int) -> None:
    counts = [({"tier": "high"}, undecided), ({"tier": "low"}, decided), ({"tier": ""}, others)]
    share = UndecidedShare.of(undecided, counts)
    assert share.requests == undecided + decided
    assert share.share == (undecided / (undecided + decided) if undecided + decided else None)
    assert share.high == bool(share.advice()) == bool(share.advice(keeping=True)) == (9 * undecided > decided)


def test_the_state_shows_the_share_and_advice_above_ten_percent(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, requests_policy()) as front:
        assert shown(http, front) == {
            "undecided": 0, "requests": 0, "share": None, "advice": None, "keep": 0, "hours": 24, "texts": [],
        }  # fmt: skip
        for question in (UNKNOWN, *["What is the total?"] * 8):
            post(http, front, ask(question))
        post(http, front, ask(UNKNOWN), **{"x-stakes-tier": "low"})  # the client decided
        post(http, front, ask(UNKNOWN), **{"x-stakes-bypass": "1"})  # not read
        post(http, front, ask(UNKNOWN, "data:nonsense"))  # refused
        post(http, front, {"model": "tiny", "messages": []})
        found = shown(http, front)
        assert (found["undecided"], found["requests"], found["share"], found["advice"]) == (1, 10, 0.1, None)
        post(http, front, ask(UNKNOWN))
        found = shown(http, front)
        assert (found["undecided"], found["requests"], found["advice"]) == (2, 11, f"{ADVICE}; {SEE_EXAMPLES}")
        decided = [one["decided"] for one in http.get(f"{front.address}/stakes/state").json()["decisions"]]
        assert decided == [False, True, True, *[True] * 8, False]
    assert (found["keep"], found["texts"]) == (0, [])  # nothing is kept unless asked for


def test_the_share_never_exceeds_one_where_requests_fail(upstream: Upstream, http: httpx.Client) -> None:
    def refuse(_: Seen, wire: Wire) -> None:
        wire.reply(b"{}", 429)

    with gateway(upstream.url, requests_policy(), fail="open") as front:
        post(http, front, ask(UNKNOWN, "data:nonsense"))  # forwarded as it is
        post(http, front, ask(UNKNOWN, PAGE, *[PAGE] * 50))  # refused after its tier was read
        upstream.script = refuse
        post(http, front, ask(UNKNOWN))
        found = shown(http, front)
    assert found["undecided"] <= found["requests"]
    assert found["undecided"] >= 1


def test_the_log_says_whether_a_request_was_decided(lines: io.StringIO, upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, requests_policy(), keep_undecided=5) as front:
        post(http, front, ask(UNKNOWN))
        post(http, front, ask("What is the total?"))
    records = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [record["decided"] for record in records] == [False, True]
    assert "qwertz" not in lines.getvalue()  # kept texts are not logged


def test_masked_texts_are_shown_where_they_are_kept(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, requests_policy(), keep_undecided=2, keep_undecided_hours=0.5) as front:
        for question in ("first one zork", "qwertz 12", "qwertz 34", "What is the total?"):
            post(http, front, ask(question))
        post(http, front, with_system("Process this document.", "Zork it for anna@example.com. \ud800"))
        found = shown(http, front)
        assert (found["keep"], found["hours"]) == (2, 0.5)
        assert [(one["text"], one["count"]) for one in found["texts"]] == [
            ("Process this document. · system: Zork it for [e-mail]", 1), ("qwertz ##", 2),
        ]  # fmt: skip
        assert "anna" not in http.get(f"{front.address}/stakes/state").text


def test_kept_texts_need_the_gateways_key(upstream: Upstream, http: httpx.Client) -> None:
    key = {"authorization": "Bearer correct-horse"}
    with gateway(upstream.url, requests_policy(), keep_undecided=2, client_keys=("correct-horse",)) as front:
        post(http, front, ask(UNKNOWN), **key)
        assert http.get(f"{front.address}/stakes/state").status_code == 401
        assert "qwertz ####" not in http.get(f"{front.address}/metrics", headers=key).text
        assert "qwertz ####" not in http.get(front.address).text
