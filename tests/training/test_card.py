"""The model card's tables: budgets that were measured, bars for the first reader alone, other readers' tables kept."""

import json
from pathlib import Path

from training.card import SHOWN, families, main

ERRORS = {
    "forms.resolution": {"304": {"error": 0.5}, "full": {"error": 0.08, "high": 0.06, "low": 0.1}},
    "forms.deletion": {"304": {"error": 0.4}},
    "swatches.resolution": {"full": {"error": 0.0, "low": 0.0}},
}


def test_a_budget_stands_in_its_column_and_a_bar_that_is_missed_is_named() -> None:
    made = families(ERRORS)
    first = dict(zip(made["columns"], made["rows"][0], strict=True))
    assert (first["304 tokens"], first["full"], first["bar"]) == (0.5, 0.08, 0.05)
    assert "32 tokens" not in made["columns"]  # nobody measured it
    assert made["rows"][1][-1] is None  # deletion of nothing has no bar
    assert made["findings"] == ["above the bar at full size: forms 0.080 (bar 0.05)"]
    within = {"swatches.resolution": ERRORS["swatches.resolution"]}
    assert families(within)["findings"] == ["every family is under its bar"]


def test_the_other_readers_are_held_to_no_bar() -> None:
    for reader in SHOWN:
        made = families(ERRORS, reader)
        assert made["name"] == f"{reader}-families"
        assert ("bar" in made["columns"]) == bool(made["findings"]) == (reader == "reader")
        assert {len(row) for row in made["rows"]} == {len(made["columns"])}


def test_a_reader_that_is_not_named_keeps_its_table(tmp_path: Path) -> None:
    card, errors = tmp_path / "card.json", tmp_path / "errors.json"
    errors.write_text(json.dumps(ERRORS))
    main(card, {"reader": errors})
    errors.write_text(json.dumps({"signs.resolution": {"full": {"error": 0.2, "high": 0.1, "low": 0.3}}}))
    main(card, {"reader-small": errors})
    tables = json.loads(card.read_text())["tables"]
    assert tables["reader-families"] == families(ERRORS)
    assert [row[0] for row in tables["reader-small-families"]["rows"]] == ["signs"]
