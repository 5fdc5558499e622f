"""The numbers of ``docs/fleet.md`` and ``docs/deploy.md`` are those of the results file."""

import json
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
ROWS = ("nothing fails", "kill -9", "Redis killed", "Redis stopped", "failover", "clocks")


@pytest.fixture(scope="module")
def found() -> Any:
    return json.loads((DOCS / "results" / "fleet.json").read_text("utf-8"))


def test_every_scenario_is_shown(found: Any) -> None:
    text = (DOCS / "fleet.md").read_text("utf-8").replace("`", "")
    for row, words in zip(found["scenarios"], ROWS, strict=True):
        (line,) = [one for one in text.splitlines() if one.startswith(f"| {words}")]
        assert line.endswith(f"| {row['images']:,} | {row['over']} | {100 * row['used']:.1f} % |")


def test_the_sentences_are_of_the_same_file(found: Any) -> None:
    text = " ".join((DOCS / "fleet.md").read_text("utf-8").split())
    worst = 1 - min(row["used"] for row in found["scenarios"])
    assert f"worst idle share was {100 * worst:.1f} %" in text
    assert f"asked {found['scenarios'][0]['redis_calls_per_1000']:.0f} times for 1,000 images" in text
    one, other = found["latency"]["redis"], found["latency"]["memory"]
    assert f"{one['p50_ms']:.1f} ms in the median and {one['p99_ms']:.0f} ms at p99 with Redis" in text
    assert f"{other['p50_ms']:.1f} and {other['p99_ms']:.0f} ms in memory" in text
    cpu = found["processor"]["ms_per_request"]
    assert f"{cpu['1']:.2f} ms of processor time with one process, {cpu['2']:.2f} with two and {cpu['4']:.2f}" in text
    sizing = (DOCS / "deploy.md").read_text("utf-8")
    assert f"{cpu['1']:.1f} ms with one process, {cpu['4']:.1f} ms with four" in sizing
