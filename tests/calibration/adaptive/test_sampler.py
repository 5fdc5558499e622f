"""Adaptive sampling asks a third, decides as all answers would, and asks the same again from the same log."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.replay import KnownAnswers
from benchmarks.scenarios import published
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.evaluation.oracle import Oracle, write_samples

from stakes.budgets.curve import Curve, cwe_at
from stakes.calibration.adaptive.candidates import Candidates
from stakes.calibration.adaptive.sampler import (
    AdaptiveResult,
    AdaptiveSampling,
    Ask,
    Numbers,
    sample_adaptively,
    spread,
)
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.certify.certificate import Certification
from stakes.calibration.estimators import Terms, choose
from stakes.calibration.result import Calibration
from stakes.data.sample import Sample
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.samples import prepare_samples
from stakes.signals import KeywordRule

COARSE = (32, 160, 304, 448, 576)
COSTS = {"high": 5.0, "low": 1.0}


def coarse(high: list[float] | None = None, low: list[float] | None = None) -> dict[str, Curve]:
    given = {"high": high, "low": low}
    return {
        tier: Curve(COARSE, given[tier] or [curve.error(budget) for budget in COARSE], 300)
        for tier, curve in published().items()
    }


def terms(answers: KnownAnswers, ratio: float = 5.0, mean: int = 304) -> Terms:
    return Terms({"high": ratio, "low": 1.0}, answers.counts, mean * sum(answers.counts.values()))


def sample(answers: KnownAnswers, on: Terms, ask: Ask | None = None, passes: int | None = None) -> AdaptiveResult:
    return sample_adaptively(answers.questions, answers.budgets, on, ask or answers.ask, AdaptiveSampling(passes))


@pytest.mark.parametrize("per_document", [1, 4])
def test_a_third_of_the_passes_decides_nearly_as_well_as_all(per_document: int) -> None:
    gaps, shares, truth = [], [], published()
    for seed in range(8):
        answers = KnownAnswers.simulated(truth, 300, np.random.default_rng(seed), per_document)
        on = terms(answers)
        found, full = sample(answers, on), choose(answers.by_document(), on, "pooled").budgets
        assert found.of == 7800
        gaps.append(cwe_at(truth, found.budgets, COSTS, on.counts) - cwe_at(truth, full, COSTS, on.counts))
        shares.append(found.passes / found.of)
    assert np.mean(gaps) < 0.005
    assert np.mean(shares) < 0.45


def test_budgets_that_clearly_lose_are_not_asked_again() -> None:
    answers = KnownAnswers.simulated(coarse([0.9, 0.9, 0.9, 0.05, 0.05], [0.1] * 5), 200, np.random.default_rng(0))
    asked: dict[int, int] = dict.fromkeys(COARSE, 0)

    def count(questions: Numbers, columns: Numbers) -> dict[str, NDArray[np.int64]]:
        for column in columns.get("high", ()):
            asked[COARSE[column]] += len(questions.get("high", ()))
        return answers.ask(questions, columns)

    found = sample(answers, terms(answers, 10.0), count)
    assert found.budgets["high"] in (448, 576)
    assert max(asked[32], asked[160], asked[304]) <= 50
    assert found.passes < 0.5 * found.of
    assert min(found.likely["high"]) >= 448


def test_a_dip_is_found_though_most_curves_fall() -> None:
    truth = coarse([0.6, 0.05, 0.6, 0.6, 0.6], [0.5, 0.5, 0.5, 0.5, 0.1])
    answers = KnownAnswers.simulated(truth, 200, np.random.default_rng(1))
    assert sample(answers, terms(answers)).budgets["high"] == 160


def test_of_choices_that_are_alike_the_one_with_fewest_tokens_is_taken() -> None:
    answers = KnownAnswers.simulated(coarse([0.0] * 5, [0.0] * 5), 300, np.random.default_rng(0))
    assert sample(answers, terms(answers)).budgets == {"high": 32, "low": 32}


@given(st.integers(10, 1500), st.integers(0, 50), st.integers(1, 60), st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_it_never_asks_more_than_it_may_nor_the_same_twice(passes: int, seed: int, high: int, low: int) -> None:
    known = KnownAnswers.simulated(coarse(), 60, np.random.default_rng(seed), 2)
    sizes = {"high": high, "low": low}
    answers = KnownAnswers(
        known.budgets,
        {tier: known.questions[tier][:n] for tier, n in sizes.items()},
        {tier: known.wrong[tier][:n] for tier, n in sizes.items()},
    )
    seen: set[tuple[str, int, int]] = set()

    def ask_once(questions: Numbers, columns: Numbers) -> dict[str, NDArray[np.int64]]:
        asked = [(tier, n, column) for tier, numbers in questions.items() for n in numbers for column in columns[tier]]
        assert len(asked) == len(set(asked) - seen)
        seen.update(asked)
        return answers.ask(questions, columns)

    on = terms(answers)
    found = sample(answers, on, ask_once, passes)
    assert found.passes == len(seen) <= min(passes, found.of)
    assert found.of == 5 * (high + low)
    assert sum(on.counts[tier] * budget for tier, budget in found.budgets.items()) <= on.total
    assert all(budget in found.likely[tier] for tier, budget in found.budgets.items())


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.data())
@settings(max_examples=50, deadline=None)
def test_every_beginning_of_the_order_covers_documents_by_their_size(sizes: list[int], data: st.DataObject) -> None:
    questions = [(f"page {d}", f"{d}/{q}") for d, size in enumerate(sizes) for q in range(size)]
    order = spread(questions)
    assert sorted(order) == list(range(len(questions)))
    beginning = data.draw(st.integers(1, len(questions)))
    asked = np.bincount([int(questions[i][0].split()[1]) for i in order[:beginning]], minlength=len(sizes))
    fair = np.array(sizes) * beginning / len(questions)
    assert np.abs(asked - fair).max() < 4


def test_the_order_does_not_depend_on_the_order_of_the_file() -> None:
    questions = [(f"page {i % 7}", f"q{i}") for i in range(60)]
    order = [questions[i] for i in spread(questions)]
    turned = questions[::-1]
    assert [turned[i] for i in spread(turned)] == order


@pytest.mark.parametrize(
    ("rule", "columns"),
    [
        ({"floor": 160}, (1, 5)),  # the smallest budget may not be had,
        ({"total": 134 * 120}, (0, 3)),  # the largest cannot be paid for,
        ({"floor": 160, "total": 230 * 120}, (1, 4)),  # or both
    ],
)
def test_budgets_that_nobody_may_have_are_as_good_as_not_in_the_grid(
    rule: dict[str, int], columns: tuple[int, int]
) -> None:
    answers = KnownAnswers.simulated(coarse(), 60, np.random.default_rng(2))
    first, last = columns
    cut = replace(
        answers, budgets=COARSE[first:last], wrong={tier: table[:, first:last] for tier, table in answers.wrong.items()}
    )
    on = replace(terms(answers), **rule)  # type: ignore[arg-type]
    found, same = sample(answers, on), sample(cut, on)
    assert found.record() | {"of": 0} == same.record() | {"of": 0}
    assert found.fitted == same.fitted


def test_one_tier_may_have_a_floor_of_its_own() -> None:
    # the high-cost tier's curve then begins at 304, the other's at 32
    truth = coarse([0.0, 0.0, 0.9, 0.9, 0.1], [0.1, 0.9, 0.9, 0.9, 0.9])
    answers = KnownAnswers.simulated(truth, 60, np.random.default_rng(0))
    found = sample(answers, replace(terms(answers), floors={"high": 304}))
    assert found.budgets == {"high": 576, "low": 32}
    assert found.fitted["high"].budgets[0] == 304


@given(st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_candidates_cost_what_the_allocation_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    curves = {tier: Curve(COARSE, rng.random(5).tolist(), 10) for tier in ("a", "b", "c")}
    on = Terms({"a": 7.0, "b": 2.0, "c": 1.0}, {"a": 3, "b": 10, "c": 5}, 250 * 18)
    candidates = Candidates.of(on, COARSE)
    cwe = candidates.cwe({tier: np.array(curve.errors) for tier, curve in curves.items()})
    best = candidates.budgets(int(cwe.argmin()))
    assert cwe.min() == pytest.approx(cwe_at(curves, best, on.costs, on.counts))
    assert best == dict(on.allocate(curves).budgets)


def of_a_model(samples: list[Sample], log: Path, options: CalibrationOptions) -> Calibration:
    return calibrate(samples, Oracle(), costs=COSTS, mean_budget=304, signal=KeywordRule(), log=log, options=options)


def test_a_model_is_sampled_adaptively_and_the_rest_can_be_asked_later(tmp_path: Path) -> None:
    samples = prepare_samples(write_samples(tmp_path, pages=60, per_page=2), tmp_path, KeywordRule())
    log, options = tmp_path / "log.jsonl", CalibrationOptions(grid=COARSE, sampling=AdaptiveSampling())
    adaptive = of_a_model(samples, log, options)
    assert adaptive.adaptive is not None
    assert adaptive.adaptive.passes == adaptive.run.answered == len(read_outcomes(log)) < adaptive.adaptive.of
    assert adaptive.policy.budgets == adaptive.adaptive.budgets
    assert "adaptive sampling" in adaptive.why_not_held_out
    full = of_a_model(samples, log, replace(options, sampling=None))
    assert full.run.answered == adaptive.adaptive.of - adaptive.adaptive.passes
    assert adaptive.native_tokens == full.native_tokens  # pages of one size, of which some questions were asked
    again = of_a_model(samples, log, options)
    assert again.run.answered == 0, "a complete log holds what adaptive sampling asks for"
    assert again.policy.model_dump() == adaptive.policy.model_dump()
    counts = adaptive.plan.counts
    gap = cwe_at(full.curves, adaptive.policy.budgets, COSTS, counts) - cwe_at(
        full.curves, full.policy.budgets, COSTS, counts
    )
    assert 0 <= gap < 0.05


@pytest.mark.parametrize("kept", [0.1, 0.7])
def test_a_killed_run_resumes_to_the_same_policy(tmp_path: Path, kept: float) -> None:
    samples = prepare_samples(write_samples(tmp_path, pages=60, per_page=2), tmp_path, KeywordRule())
    options = CalibrationOptions(grid=COARSE, sampling=AdaptiveSampling())
    whole = of_a_model(samples, tmp_path / "whole.jsonl", options)
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    part = lines[: int(kept * len(lines))]
    (tmp_path / "part.jsonl").write_text("".join(part) + lines[len(part)][:20])  # killed while it wrote a line
    resumed = of_a_model(samples, tmp_path / "part.jsonl", options)
    assert resumed.adaptive is not None
    assert whole.adaptive is not None
    assert resumed.adaptive.record() == whole.adaptive.record()
    assert resumed.run.answered == len(lines) - len(part)
    assert resumed.policy.tiers == whole.policy.tiers


def test_a_certificate_asks_other_documents_at_the_chosen_budgets_and_uniform_only(tmp_path: Path) -> None:
    samples = prepare_samples(write_samples(tmp_path, pages=60, per_page=2), tmp_path, KeywordRule())
    log, certified = tmp_path / "log.jsonl", CalibrationOptions(grid=COARSE, certification=Certification())
    options = replace(certified, sampling=AdaptiveSampling())
    found = of_a_model(samples, log, options)
    assert found.adaptive is not None
    assert found.certificate is not None
    asked: dict[str, set[int]] = {}
    for outcome in read_outcomes(log):
        asked.setdefault(outcome.sample, set()).add(outcome.budget)
    two = [sample for sample in samples if asked.get(sample.id) == {found.adaptive.budgets[sample.tier], 304}]
    assert len({sample.document for sample in two}) == found.certificate.certified_on
    assert len(read_outcomes(log)) == found.adaptive.passes < 0.6 * found.adaptive.of
    assert of_a_model(samples, log, options).policy == found.policy
    full = of_a_model(samples, log, certified)
    assert full.certificate is not None
    assert (full.certificate.chosen_on, full.certificate.certified_on) == (
        found.certificate.chosen_on,
        found.certificate.certified_on,
    )
    if full.certificate.budgets == found.certificate.budgets:
        assert full.certificate == found.certificate


def test_a_model_is_sampled_adaptively_above_a_floor(tmp_path: Path) -> None:
    samples = prepare_samples(write_samples(tmp_path, pages=8, per_page=2), tmp_path, KeywordRule())
    adaptive = of_a_model(samples, tmp_path / "log.jsonl", CalibrationOptions(floor=96, sampling=AdaptiveSampling(300)))
    assert adaptive.adaptive is not None
    assert adaptive.policy.floor == 96
    assert min(adaptive.policy.budgets.values()) >= 96
    assert min(outcome.budget for outcome in read_outcomes(tmp_path / "log.jsonl")) >= 96
    assert adaptive.policy.budgets == adaptive.adaptive.budgets


def test_what_adaptive_sampling_cannot_do_is_an_error() -> None:
    answers = KnownAnswers.simulated(coarse(), 20, np.random.default_rng(0))
    with pytest.raises(BadInput, match="at least 10 passes, not 5"):
        sample(answers, terms(answers), passes=5)
    with pytest.raises(InfeasibleBudget, match="no choice"):
        sample(answers, Terms(COSTS, answers.counts, 100))
    many = {f"t{k}": 1.0 for k in range(5)}
    with pytest.raises(BadInput, match="5 tiers of 13 budgets are too many"):
        Candidates.of(Terms(many, dict.fromkeys(many, 1), 10_000), range(1, 14))
    with pytest.raises(BadInput, match="posterior of pooled, and raw has none"):
        CalibrationOptions(estimator="raw", sampling=AdaptiveSampling())
