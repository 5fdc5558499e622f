"""The signal on production requests that were written before it, half of them held out while it was built.

Each line of ``tuning.jsonl`` and ``held_out.jsonl`` is a request body with its tier and the reason. Three authors wrote
them from a description of the tiers, without seeing the signal.
"""

import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.machine import slowness

from stakes.signals import KeywordRule, Prompt, RequestSignal
from stakes.signals.prompt import Turn, read_prompt, read_schema
from stakes.signals.requests.vocabulary import builtin_languages

HERE = Path(__file__).parent
SETS = ("tuning", "held_out")


def requests(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def prompt(request: dict[str, Any]) -> Prompt:
    return read_prompt(request["api"], request["body"])


@pytest.fixture(scope="module")
def signal() -> RequestSignal:
    return RequestSignal()


def test_the_set_is_large_and_various() -> None:
    every = [one for name in SETS for one in requests(name)]
    languages = Counter(one["language"] for one in every)
    assert len(every) >= 400
    assert len({one["id"] for one in every}) == len(every)
    assert len([name for name, n in languages.items() if n >= 5]) >= 14
    assert len(requests("held_out")) >= 0.5 * len(every)
    assert {one["api"] for one in every} == {"chat", "responses", "messages"}


@pytest.mark.parametrize("name", SETS)
def test_few_expensive_requests_are_missed_and_few_cheap_ones_sent_high(name: str, signal: RequestSignal) -> None:
    high = low = missed = sent_high = undecided = 0
    for one in requests(name):
        reading = signal(prompt(one))
        undecided += not reading.decided
        if one["tier"] == "high":
            high, missed = high + 1, missed + (reading.tier == "low")
        else:
            low, sent_high = low + 1, sent_high + (reading.tier == "high")
    print(f"{name}: missed {missed}/{high}, sent high {sent_high}/{low}, undecided {undecided}/{high + low}")
    assert missed <= 0.03 * high
    assert sent_high <= 0.15 * low
    assert undecided <= 0.10 * (high + low)


def test_the_paper_rule_misses_most_of_them() -> None:
    rule = KeywordRule()
    high = [one for one in requests("held_out") if one["tier"] == "high"]
    assert sum(rule(prompt(one)).tier == "low" for one in high) > 0.5 * len(high)


def test_reading_a_request_takes_a_fraction_of_a_millisecond(signal: RequestSignal) -> None:
    prompts = [prompt(one) for name in SETS for one in requests(name)]
    for one in prompts:  # vocabulary of each language, and system texts, are prepared once
        signal(one)
    took = []
    for one in prompts:
        start = time.process_time()
        signal(one)
        took.append(time.process_time() - start)
    print(f"median {1000 * statistics.median(took):.3f} ms")
    assert statistics.median(took) < 0.0004 * slowness()  # 0.2 ms on an idle machine


@pytest.mark.parametrize(
    ("text", "tier"),
    [
        ("Extract all fields from this invoice as JSON", "high"),
        ("Convert this page to markdown", "high"),
        ("Read the IBAN", "high"),
        ('{"invoice_number": "", "total_amount": ""}', "high"),
        ("total?", "high"),
        ("What's the vendor's total?", "high"),
        ("What is the name of the vendor and the invoice date?", "high"),
        ("Was ist der Gesamtbetrag?", "high"),
        ("发票总金额是多少？", "high"),
        ("ما هو المبلغ الإجمالي؟", "high"),
        ("Describe this image", "low"),
        ("What is the name of the person with the highest total?", "low"),
        ("Who signed on 3 May?", "low"),
        ("Is this a date palm?", "low"),
        ("Welche Farbe hat das Logo?", "low"),
        ("这张照片里有什么？", "low"),
    ],
)
def test_known_cases(text: str, tier: str, signal: RequestSignal) -> None:
    assert signal(text).tier == tier, signal(text)


def test_the_system_text_decides_where_the_question_says_nothing(signal: RequestSignal) -> None:
    system = "Extract invoice number, date, total amount as JSON"
    assert signal(Prompt("Process this document.", system)).why.startswith("system text")
    assert signal(Prompt("Process this document.", "You write alt text for a museum.")).tier == "low"
    assert not signal(Prompt("Process this document.", "You are a helpful assistant.")).decided


def test_boilerplate_does_not_count(signal: RequestSignal) -> None:
    assert signal(Prompt("Describe this image", "Today's date is 2026-03-14. The current time is 10:00.")).tier == "low"
    assert signal("Today's date is 2026-03-14. Describe this image. Answer with a number from 1 to 5.").tier == "low"

    assert not signal("Today's date is 14 March.").decided
    assert not signal("Knowledge cutoff: June 2024, total tokens 8192.").decided


def test_examples_do_not_count(signal: RequestSignal) -> None:
    examples = "Example:\nQ: Extract the invoice total.\nA: 42.90"
    assert signal(Prompt("Process this.", f"Describe the picture.\n\n{examples}")).tier == "low"
    assert signal(f"What colour is the logo?\n\n{examples}").tier == "low"
    assert signal("What colour is the logo? <example>What is the total? 42.90</example>").tier == "low"
    assert signal("Q: What is the total?\nA: 42.90\nQ: Who signed?\nA: Ann\nQ: What colour is the logo?").tier == "low"


def test_a_follow_up_has_the_tier_of_what_it_follows(signal: RequestSignal) -> None:
    total = (Turn("user", "What is the total?"), Turn("assistant", "42.90"))
    colour = (Turn("user", "What colour is the logo?"), Turn("assistant", "red"))
    assert signal(Prompt("Are you sure?", history=total)).tier == "high"
    assert signal(Prompt("Are you sure?", history=colour)).tier == "low"
    assert signal(Prompt("And what is the title?", history=total)).tier == "low"
    assert not signal("Are you sure?").decided


def test_a_schema_counts_as_its_most_expensive_field(signal: RequestSignal) -> None:
    cheap = {
        "properties": {"title": {"type": "string"}, "signed": {"type": "boolean"}, "confidence": {"type": "number"}}
    }
    dated = {"properties": {**cheap["properties"], "due": {"type": "string", "format": "date"}}}
    assert signal(Prompt("", schema=read_schema(cheap))).tier == "low"
    assert signal(Prompt("", schema=read_schema(dated))).why.startswith('field "due"')


def test_fields_of_ones_own_have_their_own_tiers() -> None:
    fields = {"total*": "total", "date": "date", "company": "company", "address": "address"}
    signal = RequestSignal(("total", "date", "company", "address"), fields)
    assert [signal(f"What is the {name}?").tier for name in ("company", "date", "address", "total")] == [
        "company", "date", "address", "total",
    ]  # fmt: skip
    assert signal("When is the due date?").tier == "date"
    assert signal("Which company is it, and what is the total?").tier == "total"
    assert signal("Give me the company and the date").tier == "date"
    both = Prompt("", schema=read_schema(["address", "company", "date"]))
    assert signal(both).tier == "date"
    assert signal.find_fields(both) == [("date", "date"), ("company", "company"), ("address", "address")]
    assert signal("Describe the picture").tier == "address"
    assert signal("Read the IBAN").tier == "total"


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Give the bounding  box of the total.", True),
        ("Return bboxes", True),
        ("Locate the stamp as [x1, y1, x2, y2]", True),
        ("Give xmin, ymin, xmax and ymax of the logo", True),
        ("Where is the logo? Give its position in pixels.", True),
        ("Return the center (x, y) of the signature", True),
        ("Point to the signature", True),
        ("<ref>logo</ref><box>", True),
        ("What is the total?", False),
        ("Is the box for insurance ticked?", False),
        ("What is the starting point of the tour?", False),
        ("Read the box office numbers", False),
    ],
)
def test_requests_for_places_are_known(text: str, asks: bool) -> None:
    assert Prompt(text).asks_for_coordinates is asks
    assert Prompt("", text).asks_for_coordinates is asks


def test_undecided_is_the_most_expensive_tier_unless_told_otherwise() -> None:
    assert RequestSignal()("zxcv qwer").tier == "high"
    assert RequestSignal(undecided="low")("zxcv qwer") == RequestSignal.from_dict(
        RequestSignal(undecided="low").to_dict()
    )("zxcv qwer")
    assert RequestSignal(undecided="low")("zxcv qwer").tier == "low"


def test_a_very_long_system_text_is_read_in_part(signal: RequestSignal) -> None:
    long = "You are the assistant of a large company. " * 5000
    start = time.process_time()
    assert signal(Prompt("Process this.", f"{long}Extract the IBAN.")).tier == "high"
    assert time.process_time() - start < 0.05 * slowness()


@pytest.mark.parametrize("code", sorted(builtin_languages()))
def test_a_language_has_every_kind_of_term(code: str) -> None:
    kinds = Counter(term.kind for term in builtin_languages()[code].terms.terms)
    for kind in ("high", "quantity", "low", "who", "ask", "extract", "transcribe", "describe", "recheck", "common"):
        assert kinds[kind] >= 3, kind
    assert kinds["high"] >= 100
