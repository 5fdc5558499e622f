"""``stakes explain``: the tier of a question or of a whole request, why, and its budget under a policy."""

import json
from pathlib import Path

from tests.test_cli import _json, _refused, _stakes

from stakes import Policy


def test_explain_shows_tier_reason_and_budget(tmp_path: Path) -> None:
    alone = _json("explain", "What is the invoice total?")
    assert (alone["tier"], alone["why"], alone["budget"]) == ("high", '"total"', None)
    path = tmp_path / "policy.json"
    tiers = {"high": {"cost": 5, "budget": 576}, "low": {"cost": 1, "budget": 32}}
    Policy.from_record({"schema": 1, "mean_budget": 304, "tiers": tiers}).save(path)
    under = _json("explain", "Who wrote it?", "--policy", str(path))
    assert (under["tier"], under["budget"], under["cost"]) == ("low", 32, 1)
    assert "576 visual tokens" in _stakes("explain", "What is the total?", "--policy", str(path)).stdout


def test_explain_reads_system_text_schemas_and_whole_requests(tmp_path: Path) -> None:
    system = _json("explain", "Process this.", "--system", "Extract the IBAN.")
    assert (system["tier"], system["why"]) == ("high", 'system text: "iban"')
    schema, body = tmp_path / "schema.json", tmp_path / "body.json"
    schema.write_text(json.dumps({"properties": {"title": {"type": "string"}, "total": {"type": "number"}}}))
    fields = _json("explain", "--schema", str(schema))["fields"]
    assert fields == {"total": "high", "title": "low"}
    body.write_text(json.dumps({"messages": [{"role": "user", "content": "What colour is the logo?"}]}))
    assert _json("explain", "--request", str(body))["tier"] == "low"
    assert "give --request alone" in _refused("explain", "What?", "--request", str(body))
    assert "neither messages nor input" in _refused("explain", "--request", str(schema))
    assert _json("explain", "zxcv", "--undecided", "low")["tier"] == "low"
    assert "'gold'; the tiers are high, low" in _refused("explain", "zxcv", "--undecided", "gold")


def test_explain_reads_the_tier_by_the_signal_that_was_named(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("Kaution\n")
    assert _json("explain", "Wie hoch ist die Kaution?", "--signal", f"keywords:{words}")["tier"] == "high"
    by_task = _json("explain", "What is it?", "--task", "mail", "--signal", "task:mail=high,photos=low")
    assert by_task["tier"] == "high"
    assert "no signal is called 'magic'" in _refused("explain", "What?", "--signal", "magic")
    path = tmp_path / "policy.json"
    tiers = {"high_cost": {"cost": 5, "budget": 576}, "cheap": {"cost": 1, "budget": 32}}
    signal = {"kind": "task", "tasks": {"mail": "cheap"}, "most_expensive": "high_cost"}
    Policy.from_record({"schema": 1, "mean_budget": 304, "tiers": tiers, "signal": signal}).save(path)
    named = _json("explain", "Kaution?", "--policy", str(path), "--signal", f"keywords:{words}")
    assert (named["tier"], named["budget"]) == ("high_cost", 576)
