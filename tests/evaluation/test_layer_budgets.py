"""Budgets averaged over layers: as near as whole tokens come, never above, and arms of one total agree within that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.evaluation.oracle import Oracle
from tests.evaluation.runs import go

from stakes.calibration.arms.comparison import EqualTotals
from stakes.calibration.arms.plan import _rounding, plan_arms
from stakes.calibration.evaluate import EvaluationOptions, evaluate, regrade
from stakes.data.sample import Sample
from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.layer_budgets import LayerBudgets, layer_budgets
from stakes.evaluation.outcome_log import read_outcomes
from stakes.experiments.study import Study, fixed_policy
from stakes.experiments.tables import invariance
from stakes.models.base import Answer, Request
from stakes.vision.selectors import make

pytest.importorskip("torch", reason="selectors inside the model need it")

SPECS = ["fastv", "fastv:layer=1", "sparsevlm", "sparsevlm:merge=False", "sparsevlm:layers=(0,1,2)", "pyramiddrop"]


def of(spec: str, depth: int) -> LayerBudgets:
    selector: Any = make(f"{spec}{',' if ':' in spec else ':'}count=layers")
    return LayerBudgets(selector, depth)


@given(st.sampled_from(SPECS), st.integers(4, 64), st.integers(1, 3000), st.data())
def test_an_average_is_as_near_to_its_budget_as_whole_tokens_come(
    spec: str, depth: int, native: int, data: st.DataObject
) -> None:
    layers = of(spec, depth)
    least = layers.least(native)
    budget = data.draw(st.integers(least, native))
    left, average = layers.spent(native, budget)
    assert 1 <= left <= average <= budget
    if left == native:
        assert (average, layers.rounding(native, budget)) == (budget, 0)
    else:
        assert budget < layers.selector.average(native, left + 1, depth)
        assert budget - average < layers.rounding(native, budget) + 1e-9
    if spec.startswith("fastv") and left < native:
        assert layers.rounding(native, budget) == pytest.approx((depth - layers.selector.layer) / depth)  # type: ignore[attr-defined]
    if least > 1:
        with pytest.raises(InfeasibleBudget, match=rf"the smallest feasible budget is {least}$"):
            layers.spent(native, least - 1)


@given(st.sampled_from(SPECS), st.integers(4, 40), st.lists(st.integers(300, 1500), min_size=2, max_size=9), st.data())
def test_arms_of_one_total_agree_within_the_rounding_and_no_more_is_let_pass(
    spec: str, depth: int, native: list[int], data: st.DataObject
) -> None:
    layers = of(spec, depth)
    arms = {name: [data.draw(st.integers(layers.least(n), n)) for n in native] for name in ("uniform", "cost")}
    # the arm that has less gets the rest where possible
    fewer, more = sorted(arms.values(), key=sum)
    for i, n in enumerate(native):
        fewer[i] += min(n - fewer[i], sum(more) - sum(fewer))
    total = sum(more)
    assume(sum(fewer) == total)
    rounding = _rounding(layers, native, arms, total)
    samples = [str(i) for i in range(len(native))]
    spent = {arm: [layers.spent(*pair)[1] for pair in zip(native, row, strict=True)] for arm, row in arms.items()}
    checks = EqualTotals(samples, native, "deletion", rounding)
    assert 0 <= checks.check_realised(spent) <= rounding
    short = (1 + 1.01 * rounding + 1e-9) * sum(spent["cost"]) / sum(spent["uniform"])
    with pytest.raises(LedgerBreach, match="arms do not spend the same"):
        checks.check_realised({**spent, "cost": [tokens / short for tokens in spent["cost"]]})


@dataclass
class Deep(Oracle):
    """An oracle with 28 decoder layers, which reads as many tokens as its selector leaves."""

    depth: int = 28
    off: float = 0.0

    def _answer(self, request: Request) -> Answer:
        answer = super()._answer(request)
        layers = layer_budgets(self, Setting("deletion", request.selector)) if request.mechanism == "deletion" else None
        if layers is None:
            return answer
        left, average = layers.spent(answer.native_tokens, answer.realised_tokens)
        return replace(answer, realised_tokens=left, layer_tokens=average + self.off)


SETTING = Setting("deletion", "fastv:count=layers")


def test_answers_are_held_to_the_average_and_infeasible_budgets_are_refused_before_the_first(
    samples: list[Sample], tmp_path: Path
) -> None:
    ran = go(Deep(), samples, tmp_path / "log.jsonl", grid=(96, 304, 972), setting=SETTING)
    kept = {
        budget: {(o.realised, o.layers) for (_, b), o in ran.outcomes.items() if b == budget} for budget in (96, 304)
    }
    assert kept == {96: {(28, (2 * 972 + 26 * 28) / 28)}, 304: {(252, (2 * 972 + 26 * 252) / 28)}}
    assert read_outcomes(tmp_path / "log.jsonl")[0].layers is not None
    with pytest.raises(LedgerBreach, match=r"sample 'p0q0': layers saw 96.4\d* tokens on average, and not the 95.4"):
        go(Deep(off=1.0), samples, tmp_path / "off.jsonl", grid=(96,), setting=SETTING)
    idle = Deep()
    with pytest.raises(
        InfeasibleBudget, match=r"^sample 'p0q0': fastv .*\(24 of 24 .* smallest feasible budget is 71$"
    ):
        go(idle, samples, tmp_path / "small.jsonl", grid=(70, 304), setting=SETTING)
    with pytest.raises(BadInput, match="Oracle does not say its depth"):
        go(Oracle(), samples, tmp_path / "flat.jsonl", grid=(304,), setting=SETTING)
    assert idle.batches == []


def evaluated(samples: Sequence[Sample], log: Path) -> Any:
    """Arms of 517 and 91; of these pages 517 is met exactly, 304 is missed by 16/28 and 91 by 6/28 of a token."""
    tiers = [one.tier for one in samples]
    policy = fixed_policy("qwen2.5-vl", "deletion", {"high": 517, "low": 91}, {"high": 5, "low": 1}, tiers)
    return policy, evaluate(Deep(), samples, policy, log=log, options=EvaluationOptions(setting=SETTING))


def test_arms_are_equal_in_what_layers_see_and_not_in_what_is_left(samples: list[Sample], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    policy, found = evaluated(samples, log)
    record = found.record()
    assert (record["counted"], found.plan.total) == ("tokens averaged over layers", 24 * 304)
    # all pages have 972 tokens, so that every answer may fall short by 26/28 of a token
    assert found.plan.rounding == pytest.approx(26 / 28 / (304 - 26 / 28))
    rows = found.comparison.rows
    of_arm = {row.arm: (row.realised, row.layers) for row in rows}
    assert of_arm["uniform"] == (24 * 252, pytest.approx(24 * (304 - 16 / 28)))
    assert of_arm["cost"] == of_arm["anti"] == (12 * (482 + 23), pytest.approx(12 * (517 + 91 - 6 / 28)))
    for row in rows:
        assert 24 * (304 - 26 / 28) < row.layers <= 24 * 304
    assert found.deviation == max(row.layers for row in rows) / min(row.layers for row in rows) - 1 > 0
    assert min(found.plan.budgets["content"]) >= 71
    again = regrade(log, {one.id: one.answers for one in samples}, policy, metric="exact")
    assert (again.deviation, again.plan) == (found.deviation, found.plan)


def test_one_answer_that_saw_more_is_a_breach(samples: list[Sample], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    policy, _ = evaluated(samples, log)
    answers = {one.id: one.answers for one in samples}
    text = log.read_text()
    average = (2 * 972 + 26 * 23) / 28
    assert f'"layers": {average}' in text
    log.write_text(text.replace(f'"layers": {average}', f'"layers": {average + 9}'))
    with pytest.raises(LedgerBreach, match=r"'(cost|anti)' .*tokens, 'uniform' .*a difference of"):
        regrade(log, answers, policy)


def test_a_plan_below_the_least_is_refused_and_other_settings_are_not_averaged(samples: list[Sample]) -> None:
    tiers = [one.tier for one in samples]
    low = fixed_policy("qwen2.5-vl", "deletion", {"high": 512, "low": 64}, {"high": 5, "low": 1}, tiers)
    with pytest.raises(InfeasibleBudget, match="cannot average 64 of 972 tokens .* budget is 71"):
        plan_arms(samples, low, Deep(), SETTING, ["uniform", "cost"])
    for selector in (None, "fastv", "fastv:layer=3", "redundancy:seed=nearest", "fastv:count=left"):
        assert layer_budgets(Deep(), Setting("deletion", selector)) is None
    assert layer_budgets(Oracle(), Setting()) is None


def test_the_table_of_selectors_reports_the_rounding(tmp_path: Path) -> None:
    study = Study(Deep(), "deep", tmp_path, per_tier=10, selectors=("redundancy", "fastv:count=layers"))
    found = invariance.table(study)
    assert [row[2] for row in found.rows if row[:2] == ("deep", "selector")] == list(study.selectors)
    (finding,) = (line for line in found.findings if "averaged" in line)
    assert finding.startswith("fastv:count=layers: arms differ by 0.")
    assert math.isclose(float(finding.split()[-1].rstrip("%")) / 100, 26 / 28 / (304 - 26 / 28), rel_tol=2e-3)
