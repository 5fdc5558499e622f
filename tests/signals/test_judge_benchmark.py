"""The judge's benchmark counts what a judge says, without the models that it is meant for."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.judge import COLUMNS, NAMES, draw, interval, measure, published

from stakes.data.sample import Sample
from stakes.signals import Judge, KeywordRule
from stakes.signals.agreement import Confusion
from stakes.signals.judge import RUBRIC
from stakes.signals.validation import validate_with_judge

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "judge.json"
CUES = {"total": "high", "date": "high", "page number": "low", "zip": "high", "title": "low", "author": "low"}
SAMPLES = [
    Sample(
        id=f"s{i}{cue}",
        image="x.png",
        question=f"What is the {cue} of sheet {i}?",
        answers=("7",) if tier == "high" else ("x",),
        document=f"d{i}",
    )
    for i in range(36)
    for cue, tier in CUES.items()
]


def truth(body: dict[str, Any]) -> str:
    text = body["messages"][1]["content"]
    return next(tier for cue, tier in CUES.items() if cue in text)


def both(chat_server: Any) -> tuple[Judge, Judge]:
    swapped = dict(reversed(RUBRIC.items()))
    return Judge(chat_server.url, "m1"), Judge(chat_server.url, "m1", rubric=swapped)


def test_its_rows_are_those_of_the_paper_s_experiment(chat_server: Any, reply: Any) -> None:
    chat_server.script = lambda body, n: reply(json.dumps({"answer": "?", "tier": truth(body)}))
    drawn, (judge, swapped) = draw(SAMPLES), both(chat_server)
    run = measure("m1", judge, swapped, drawn, repeats=1)
    rows: dict[Any, dict[str, Any]] = {row[1]: dict(zip(COLUMNS, row, strict=True)) for row in run.rows}
    checked = validate_with_judge([s.question for s in SAMPLES], judge, ids=[s.id for s in SAMPLES])
    assert rows["rule and judge"]["kappa"] == checked.confusion.kappa < 1
    assert rows["gold answer and judge"]["agreement"] == 1
    assert rows["judge and learned signal"]["agreement"] > rows["rule and judge"]["agreement"]
    assert {row["undecided"] for row in rows.values()} == {0}
    pages = checked.confusion.counts[0][1]
    assert f"{pages} of {pages} questions that the rule calls high and the judge low" in run.findings[0]
    assert "200 of 200 verdicts stay the same" in run.findings[1]


def test_a_judge_that_prefers_the_rating_listed_first_is_found(chat_server: Any, reply: Any) -> None:
    def first_listed(body: dict[str, Any], n: int) -> Any:
        system = body["messages"][0]["content"]
        return reply("high" if system.index("- high") < system.index("- low") else "low")

    chat_server.script = first_listed
    run = measure("m1", *both(chat_server), draw(SAMPLES))
    assert "0 of 200 verdicts stay the same" in run.findings[1]
    assert "no signal is learned from its labels" in run.findings[2]


def test_a_judge_that_decides_nothing_gets_a_row_and_no_figure(chat_server: Any, reply: Any) -> None:
    chat_server.script = lambda body, n: reply("The answer is 12.")
    run = measure("m1", *both(chat_server), draw(SAMPLES))
    [row] = run.rows
    assert row == ("m1", "rule and judge", 0, 200, *[None] * 7)
    assert "decides on none of 200 questions" in run.findings[0]


def test_the_interval_holds_kappa_and_is_narrower_with_more_questions() -> None:
    def ends(confusion: Confusion) -> tuple[float, float]:
        low, high = interval(confusion).strip("[]").split(", ")
        return float(low), float(high)

    small, large = Confusion.two(hh=70, ll=75, hl=30, lh=25), Confusion.two(hh=700, ll=750, hl=300, lh=250)
    (low, high), (inner_low, inner_high) = ends(small), ends(large)
    assert low < inner_low < small.kappa < inner_high < high
    assert (high - low) / (inner_high - inner_low) == pytest.approx(10**0.5, rel=0.1)


def test_the_stored_results_hold_both_models_beside_the_published_rows() -> None:
    table = json.loads(RESULTS.read_text(encoding="utf-8"))["tables"]["judge"]
    rows = [tuple(row) for row in table["rows"]]
    assert rows[: len(published())] == published()
    assert {row[0] for row in rows} == {"published", *NAMES.values()}
    for row in rows:
        count, undecided, agreement, cells = row[2], row[3], row[4], row[7:]
        if cells[0] is not None:
            assert sum(cells) == count
            assert agreement == pytest.approx((cells[0] + cells[1]) / count)
        assert undecided is None or count + undecided == table["meta"]["questions"] == 200


def test_the_sample_is_balanced_by_the_rule() -> None:
    tiers = [KeywordRule()(sample.question).tier for sample in draw(SAMPLES)]
    assert (tiers.count("high"), tiers.count("low")) == (100, 100)
