"""Requests are read as a whole: system text, schemas, tools and earlier turns decide through a running gateway."""

from typing import Any

import httpx
import pytest
from tests.gateway.gateways import HIGH, LOW, ask, gateway, image_part, policy, text_part
from tests.gateway.upstream import Upstream

from stakes.signals import RequestSignal, to_dict
from stakes.signals.prompt import SchemaField, Turn, read_prompt

SCHEMA = {"type": "object", "properties": {"invoice_number": {"type": "string"}, "total_amount": {"type": "number"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "invoice", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "save", "parameters": SCHEMA}}
FORCED = {"type": "function", "function": {"name": "save"}}


def chat(question: str, system: str = "", *earlier: tuple[str, str], **more: Any) -> dict[str, Any]:
    turns: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    turns += [{"role": role, "content": text} for role, text in earlier]
    turns.append({"role": "user", "content": [image_part(), text_part(question)]})
    return {"model": "tiny", "messages": turns, **more}


CASES = {
    "system text": (chat("Process this document.", "Extract invoice number, date, total amount as JSON"), HIGH),
    "schema only": (chat("", response_format=FORMAT), HIGH),
    "tool call": (chat("New mail.", tools=[TOOL], tool_choice=FORCED), HIGH),
    "follow-up": (chat("Are you sure?", "", ("user", "What is the total?"), ("assistant", "42.90")), HIGH),
    "German": (chat("Wie hoch ist der Gesamtbetrag der Rechnung?"), HIGH),
    "Chinese": (chat("发票号码和总金额是多少？"), HIGH),
    "Arabic": (chat("ما هو المبلغ الإجمالي في الفاتورة؟"), HIGH),
    "boilerplate": (chat("Describe this image", "Today's date is 2026-03-14. You are a helpful assistant."), LOW),
    "examples": (chat("What is the title?", "Answer questions.\n\nExample:\nQ: What is the total?\nA: 42.90"), LOW),
    "nothing": (chat("Hello", tools=[TOOL], tool_choice="none", response_format={"type": "text"}), HIGH),
}


@pytest.mark.parametrize("case", CASES)
def test_a_request_gets_the_budget_of_all_that_it_says(case: str, upstream: Upstream, http: httpx.Client) -> None:
    body, budget = CASES[case]
    with gateway(upstream.url, policy(signal=to_dict(RequestSignal()))) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
        assert reply.headers["x-stakes-budget"] == str(budget), reply.headers["x-stakes-why"]


def test_undecided_requests_are_counted_and_get_the_high_budget(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(signal=to_dict(RequestSignal()))) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=ask("qwertz zuiop"))
        assert reply.headers["x-stakes-budget"] == str(HIGH)
        assert reply.headers["x-stakes-why"].startswith("undecided")
        assert front.metric("undecided_total") == 1


def test_undecided_requests_may_get_another_tier(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(signal=to_dict(RequestSignal(undecided="low")))) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=ask("qwertz zuiop"))
        assert reply.headers["x-stakes-budget"] == str(LOW)
        assert front.metric("undecided_total") == 1


def test_the_three_apis_give_the_same_prompt() -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    schema = {"properties": {"due": {"type": "string", "format": "date"}}}
    chat_body = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            *turns,
            {"role": "user", "content": [text_part("Due?")]},
        ],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    }
    responses_body = {
        "instructions": "Be brief.",
        "input": [*turns, {"role": "user", "content": [{"type": "input_text", "text": "Due?"}]}],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}},
    }
    messages_body: dict[str, Any] = {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [*turns, {"role": "user", "content": [text_part("Due?")]}],
        "tools": [{"name": "save", "input_schema": schema}],
        "tool_choice": {"type": "tool", "name": "save"},
    }
    called = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "scan", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "Total: 7"}]}
    again = read_prompt("messages", {**messages_body, "messages": [*messages_body["messages"], called, result]})
    assert again.question == "Due?"  # what a tool returned is not the user's question
    prompt = read_prompt("chat", chat_body)
    assert prompt == read_prompt("responses", responses_body) == read_prompt("messages", messages_body)
    assert (prompt.question, prompt.system) == ("Due?", "Be brief.")
    assert prompt.history == (Turn("user", "Hi"), Turn("assistant", "Hello"))
    assert prompt.schema == (SchemaField("due", "", "date"),)


def test_only_the_tool_that_must_be_called_counts_as_the_schema() -> None:
    other = {"type": "function", "function": {"name": "tag", "parameters": {"properties": {"tags": {"type": "array"}}}}}
    named = read_prompt("chat", {"messages": [], "tools": [TOOL, other], "tool_choice": FORCED})
    assert [field.name for field in named.schema] == ["invoice_number", "total_amount"]
    free = read_prompt("chat", {"messages": [], "tools": [TOOL, other], "tool_choice": "auto"})
    assert (free.schema, len(free.optional)) == ((), 3)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": None, "tools": 1, "tool_choice": []},
        {"messages": [1, {"role": []}, {"role": "user", "content": [None, 3, {"text": 5}]}]},
        {"messages": "x", "response_format": {"json_schema": []}, "text": {"format": 1}, "metadata": [1]},
        {"messages": [], "tools": [{"function": {"parameters": {"properties": {"a": {"$ref": "#/nowhere"}}}}}]},
    ],
)
def test_an_odd_body_is_read_without_an_error(body: dict[str, Any]) -> None:
    for api in ("chat", "responses", "messages"):
        read_prompt(api, body)
