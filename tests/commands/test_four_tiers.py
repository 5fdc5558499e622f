"""Receipts with four tiers: ``calibrate``, ``evaluate``, ``plan`` and the report give the same numbers at every r."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.evaluation.oracle import Oracle, page
from tests.report.test_allocate_js import in_node, needs_node
from typer.testing import CliRunner

from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.evaluate import Evaluation, EvaluationOptions, evaluate
from stakes.calibration.result import Calibration
from stakes.cli import app
from stakes.commands.output.calibration import print_calibration
from stakes.data.sample import Sample
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.samples import prepare_samples
from stakes.report.data import read_run, report_data
from stakes.signals import TaskIdentity
from stakes.tiers import at_ratio

COSTS = {"total": 20.0, "date": 5.0, "company": 2.0, "other": 1.0}
GRID = (32, 96, 160, 304, 448, 576)
RATIOS = (1, 2, 3, 5, 10, 20)
MEAN = 400  # between two measured budgets
WORDS = {"total": "total", "date": "date", "company": "name", "other": "remark"}


def receipts(folder: Path, pages: int, misread: bool) -> Iterator[Sample]:
    """Four questions per receipt; of those for a date or a name, one in six is sent as another task."""
    for number in range(pages):
        page(number).save(folder / f"page{number}.png", compress_level=1)
        for k, (tier, word) in enumerate(WORDS.items()):
            read = {"date": "other", "company": "total"}.get(tier, tier) if misread and (number + k) % 6 == 0 else tier
            answer = f"word{number}x{k}"
            yield Sample(
                id=f"p{number}{tier}", image=f"page{number}.png", question=f"What {word} is given for {answer}?",
                answers=(answer,), tier=tier, task=read, document=f"page{number}",
            )  # fmt: skip


class Receipts(NamedTuple):
    folder: Path
    found: Calibration
    judged: Evaluation
    misread: bool


@pytest.fixture(scope="module", params=[False, True], ids=["read as labelled", "misread"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Receipts:
    folder = tmp_path_factory.mktemp("receipts")
    signal = TaskIdentity({tier: tier for tier in COSTS}, most_expensive="total")
    raw = list(receipts(folder, 36, request.param))
    keys = ("id", "image", "question", "answers", "tier", "task")
    lines = [{key: getattr(sample, key) for key in keys} for sample in raw]
    (folder / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    samples, setting = prepare_samples(raw, folder, signal), Setting("deletion", "redundancy")
    found = calibrate(
        samples, Oracle(), costs=COSTS, mean_budget=MEAN, signal=signal, log=folder / "policy.outcomes.jsonl",
        options=CalibrationOptions(setting=setting, grid=GRID),
    )  # fmt: skip
    found.policy.save(folder / "policy.json")
    options = EvaluationOptions(arms=["uniform", "cost"], setting=setting, ratios=RATIOS)
    judged = evaluate(Oracle(), samples, found.policy, log=folder / "policy.evaluation.jsonl", options=options)
    return Receipts(folder, found, judged, request.param)


def stakes(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exception is None, done.output
    return done.stdout


def planned(run: Receipts, *words: object) -> Any:
    return json.loads(stakes("plan", *words, "--json"))


def test_plan_of_the_policy_is_the_calibrations_own(run: Receipts) -> None:
    plan = planned(run, "--curves", run.folder / "policy.json")
    own = json.loads(json.dumps(run.found.plan.record()))
    assert {key: plan[key] for key in own if key != "pair"} == {key: own[key] for key in own if key != "pair"}
    assert plan["estimator"] == run.found.policy.estimator == "pooled"
    assert plan["allocation"]["budgets"] == plan["policy_budgets"] == run.found.policy.budgets
    assert [row["ratio"] for row in plan["ratios"]] == list(RATIOS)
    assert (plan["costs_as_read"] is not None) == run.misread
    costs = [word for tier, cost in COSTS.items() for word in ("--cost", f"{tier}={cost}")]
    log = planned(run, "--curves", run.folder / "policy.outcomes.jsonl", *costs, "--mean-budget", MEAN)
    if not run.misread:  # a log holds no labels
        assert log["ratios"] == plan["ratios"]
        assert log["allocation"] == plan["allocation"]
    raw = planned(run, "--curves", run.folder / "policy.json", "--estimator", "raw")
    assert raw["ratios"] != plan["ratios"]


def test_uniform_spends_what_it_is_compared_with(run: Receipts) -> None:
    plan, budgets, counts = run.found.plan, run.found.policy.budgets, run.found.policy.counts
    mean = sum(counts[tier] * budget for tier, budget in budgets.items()) / sum(counts.values())
    assert plan.uniform_budget == mean < MEAN
    assert plan.uniform_interpolated
    assert run.judged.plan.total / len(run.judged.plan.samples) == mean
    assert {round(mean), int(mean), int(mean) + 1} >= set(run.judged.plan.budgets["uniform"])


def test_evaluate_charges_the_label_at_the_same_costs_at_every_ratio(run: Receipts) -> None:
    right = {key: outcome.correct for key, outcome in run.found.run.outcomes.items()}
    labels = {f"p{number}{tier}": tier for number in range(36) for tier in COSTS}
    readings = {outcome.sample: outcome.tier for outcome in run.found.run.outcomes.values()}
    rows = {row.arm: row for row in run.judged.comparison.rows}
    budgets = run.found.policy.budgets
    for ratio in RATIOS:
        prices = at_ratio(COSTS, ratio)
        lost = sum(prices[tier] for one, tier in labels.items() if not right[one, budgets[readings[one]]])
        assert rows["cost"].ratios[ratio] == pytest.approx(lost / sum(prices[tier] for tier in labels.values()))
    assert rows["cost"].cwe == rows["cost"].ratios[20]
    assert (run.found.served is not None) == run.misread
    if run.found.served is not None:
        assert run.found.served.cwe == pytest.approx(rows["cost"].cwe)
        assert run.judged.comparison.agreement == run.found.served.agreement < 1
    words = ("evaluate", run.folder / "samples.jsonl", "--policy", run.folder / "policy.json")
    again = json.loads(stakes(*words, "--outcomes", run.folder / "policy.evaluation.jsonl", "--json"))
    assert {row["arm"]: row["ratios"] for row in again["rows"]} == {
        arm: {str(float(ratio)): value for ratio, value in row.ratios.items()} for arm, row in rows.items()
    }


@needs_node
def test_the_report_has_the_numbers_of_plan_and_evaluate(run: Receipts) -> None:
    data = report_data(read_run(run.folder))
    code = """[null, ...given.ratios].map((r) => ({now: allocationAt(given.data, r, given.data.mean, 'fitted'),
        arms: armsAt(given.data.arms, atRatio(given.data, r === null ? 20 : r))}))"""
    own, *rest = in_node(code, {"data": data, "ratios": RATIOS}, "allocate.js", "recompute.js")
    plan = run.found.plan
    assert own["now"]["best"]["budgets"] == run.found.policy.budgets
    assert own["now"]["best"]["cwe"] == pytest.approx(plan.allocation.cwe, abs=1e-12)
    assert own["now"]["uniform"]["tokens"] == plan.uniform_budget
    assert own["now"]["uniform"]["cwe"] == pytest.approx(plan.uniform_cwe, abs=1e-12)
    for ratio, row, seen in zip(RATIOS, plan.ratios, rest, strict=True):
        assert (row.ratio, seen["now"]["best"]["budgets"]) == (ratio, row.budgets)
        assert seen["now"]["best"]["cwe"] == pytest.approx(row.cwe, abs=1e-12)
        assert seen["now"]["mean"] == row.tokens
        assert seen["now"]["uniform"]["cwe"] == pytest.approx(row.uniform_cwe, abs=1e-12)
        arms = {arm["arm"]: arm["cwe"] for arm in seen["arms"]}
        for arm in run.judged.comparison.rows:
            assert arms[arm.arm] == pytest.approx(arm.ratios[ratio], abs=1e-12)


def test_every_output_states_one_meaning_of_r(run: Receipts, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("vl_convert", reason="a report needs the report extra")
    sentence = (
        "r: a mistake in total costs r times one in other; date, company keep their place between them on a log scale."
    )
    print_calibration(run.found, "receipts", Path("policy.json"), Path("log.jsonl"))
    texts = {
        "calibrate": capsys.readouterr().out,
        "plan": stakes("plan", "--curves", run.folder / "policy.json"),
        "evaluate": stakes(
            "evaluate", run.folder / "samples.jsonl", "--policy", run.folder / "policy.json", "--outcomes",
            run.folder / "policy.evaluation.jsonl",
        ),
    }  # fmt: skip
    stakes("report", run.folder)
    texts["report"] = (run.folder / "report.html").read_text(encoding="utf-8")
    means = "at the mean cost of what is read as each tier"
    for name, text in texts.items():
        assert sentence in text, name
        if name != "evaluate":  # which charges every label itself
            assert (means in text) == run.misread, name
    assert ("errors and costs are by the label" in texts["evaluate"]) == run.misread
    assert "interpolated between measured budgets" in texts["plan"]
    assert "p, by" in texts["evaluate"]
