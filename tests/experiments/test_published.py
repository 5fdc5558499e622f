"""Which published figures follow from the others, and which do not."""

import copy
from typing import Any

import pytest

from stakes import published
from stakes.experiments import published as experiment
from stakes.experiments.figure_checks import check_value
from stakes.signals.judge import RUBRIC
from stakes.signals.keywords import KEYWORDS


def _failing() -> dict[str, Any]:
    return {f"{c.table}: {c.what}": c for c in experiment.checks() if c.verdict == "does not follow"}


def test_exactly_these_figures_do_not_follow() -> None:
    assert {name: c.recomputed for name, c in _failing().items()} == pytest.approx(
        {
            "within-task DocVQA: anti: avg": 0.4833,
            "frontier: high difference 96-128": -0.0633,
            "LLaVA-OneVision: break-even": 2.808,
            "mixed workload: CWE reduction": 0.386,
            "metric robustness ChartQA: anls: p of 17:1": 0.000145,
        },
        rel=2e-3,
    )
    listed = published.figures()["does_not_follow"]
    assert len(listed) == 4
    values = [c.recomputed for c in _failing().values()]
    for entry in listed:
        assert any(value == pytest.approx(entry["recomputed"], rel=3e-3) for value in values), entry["what"]


def test_one_figure_lacks_an_ingredient() -> None:
    missing = [c for c in experiment.checks() if c.verdict == "cannot be recomputed"]
    assert [c.what for c in missing] == ["saved by the deployed pair (576, 32)"]
    assert "345.9 ms" in missing[0].how


def test_every_table_is_checked() -> None:
    tables = {c.table for c in experiment.checks()}
    assert len(tables) >= 20
    assert len(experiment.checks()) > 290


def test_a_tampered_figure_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = copy.deepcopy(published.figures())
    changed["cross_dataset"]["chartqa"]["break_even"] = 3.7
    changed["frontier"][2]["cwe"]["5"] = 0.250
    changed["label_validation"]["llm_judge"]["kappa"] = 0.46
    changed["latency_a100_resolution_ms"]["304"]["ms"] = 346.1
    for module in ("published", "published_arms"):
        monkeypatch.setattr(f"stakes.experiments.{module}.figures", lambda: changed)
    names = set(_failing())
    assert {
        "cross-dataset ChartQA: break-even",
        "frontier: (448, 160): CWE at r = 5",
        "label validation, llm judge: kappa",
        "latency: saved at 304 tokens",
    } <= names


@pytest.mark.parametrize(
    ("printed", "value", "follows"),
    [(0.484, 0.48349, False), (0.484, 0.4835, True), (3e-12, 3.17e-12, True), (3e-12, 3.6e-12, False), (13, 13, True)],
)
def test_a_printed_number_stands_for_what_rounds_to_it(printed: float, value: float, follows: bool) -> None:
    assert (check_value("t", "w", printed, value, "h").verdict == "follows") is follows


def test_the_projects_own_constants_equal_the_published_ones() -> None:
    defaults = published.figures()["defaults"]
    assert tuple(defaults["keyword_rule_high"]) == KEYWORDS
    assert (defaults["judge_rubric_high"], defaults["judge_rubric_low"]) == (RUBRIC["high"], RUBRIC["low"])


def test_the_figures_are_credited() -> None:
    assert "Wen" in published.figures()["about"]
