"""The log is JSON, without images, and without questions unless they are asked for."""

import io
import json
import logging

import httpx
from tests.gateway.gateways import PAGE, Gateway, ask, gateway
from tests.gateway.upstream import Upstream

from stakes.gateway.monitoring.logs import JsonLines, redact


def test_the_log_is_json_and_holds_neither_image_nor_question(
    lines: io.StringIO, front: Gateway, http: httpx.Client
) -> None:
    http.post(f"{front.base_url}/chat/completions", json=ask("What is the secret total of Mrs Smith?"))
    http.post(f"{front.base_url}/chat/completions", json=ask("x", "data:image/png;base64,AAAA"))
    front.settle()
    records = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [record["event"] for record in records] == ["request", "refused"]
    assert records[0]["tier"] == "high"
    assert records[0]["why"] == 'keyword "…"'
    assert records[0]["predicted"] == [records[0]["counted"]]
    assert records[1]["reason"] == "unreadable_image"
    assert not any(word in lines.getvalue() for word in ("Smith", "secret", "base64", PAGE[40:60]))


def test_questions_are_logged_only_when_asked_for(lines: io.StringIO, upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, log_questions=True) as front:
        http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?"))
    record = json.loads(lines.getvalue().splitlines()[0])
    assert (record["question"], record["why"]) == ("What is the total?", 'keyword "total"')


def test_records_of_libraries_are_redacted_too() -> None:
    assert redact(f"bad url {PAGE} here") == "bad url data:… here"
    assert len(redact("x" * 10_000)) < 600
    try:
        raise ValueError(PAGE)
    except ValueError as error:
        record = logging.LogRecord(
            "x", logging.ERROR, "f", 1, "failed", None, (type(error), error, error.__traceback__)
        )
    written = json.loads(JsonLines().format(record))
    assert (written["error"], written["event"]) == ("ValueError", "failed")
    assert "base64" not in json.dumps(written)
