"""Budgets follow the reading and mistakes cost by the label: in choosing, in certifying and in what is printed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.certificate_worlds import LEVEL, Grouped, Misread
from benchmarks.certificates import no_gain
from benchmarks.scenarios import flat, published
from hypothesis import given
from hypothesis import strategies as st
from tests.evaluation.oracle import Oracle, write_samples

from stakes.budgets.controller_path import BudgetPath, certified_budgets
from stakes.budgets.digests import edited_parts
from stakes.budgets.policy import Policy
from stakes.calibration.adaptive.sampler import AdaptiveSampling
from stakes.calibration.by_document import by_document
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.certify.certificate import Certification
from stakes.calibration.certify.no_harm import saved_by_document
from stakes.calibration.result import Calibration
from stakes.commands.output.calibration import format_served, print_certificate
from stakes.data.sample import Sample
from stakes.evaluation.samples import prepare_samples
from stakes.gateway.reload import policy_warnings
from stakes.report.sentences import ended_certificate
from stakes.signals import KeywordRule
from stakes.tiers import expected_costs

COSTS = {"high": 5.0, "low": 1.0}
GRID = (32, 96, 208, 304, 400, 512, 576)
OTHER = {"high": "low", "low": "high"}


def labelled(folder: Path, wrong: int) -> list[Sample]:
    """Samples whose label is the keyword rule's reading, but for one in ``wrong`` (0: no labels)."""
    samples = write_samples(folder, pages=40)
    rule = KeywordRule()
    tiers = [rule(sample.question).tier for sample in samples]
    labels = [OTHER[tier] if wrong and i % wrong == 0 else tier for i, tier in enumerate(tiers)]
    return [replace(sample, tier=label if wrong else "") for sample, label in zip(samples, labels, strict=True)]


def certified(folder: Path, wrong: int, **more: Any) -> Calibration:
    samples = prepare_samples(labelled(folder, wrong), folder, KeywordRule())
    options = CalibrationOptions(grid=GRID, **{"certification": Certification(0.9), **more})
    return calibrate(samples, Oracle(), costs=COSTS, signal=KeywordRule(), options=options)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    return certified(tmp_path_factory.mktemp("labels"), wrong=7)


def test_a_misread_question_saves_what_its_label_costs(found: Calibration) -> None:
    outcomes = list(found.run.outcomes.values())
    samples = sorted({outcome.sample for outcome in outcomes})
    labels = {sample: ("high", "low")[i % 3 == 0] for i, sample in enumerate(samples)}
    tables, budgets = by_document(outcomes, COSTS, labels), {"high": 576, "low": 96}
    saved, weight = saved_by_document(tables, COSTS, budgets, 304)
    at = {(outcome.sample, outcome.budget): outcome for outcome in outcomes}
    expected = {document: [0.0, 0.0] for document in tables.documents}
    for outcome in outcomes:
        if outcome.budget == 304:
            served, cost = at[outcome.sample, budgets[outcome.tier]], COSTS[labels[outcome.sample]]
            expected[outcome.document][0] += cost * (served.correct - outcome.correct)
            expected[outcome.document][1] += cost
    assert np.allclose(np.column_stack([saved, weight]), list(expected.values()))


@given(st.integers(1, 50), st.integers(0, 50))
def test_expected_costs_lie_between_the_labels_costs(right: int, wrong: int) -> None:
    world = Misread(flat(), 5.0, 0.0, size=4)
    questions = world.draw(np.random.default_rng(0))
    assert questions.tables(by_label=True).expected_costs(COSTS) == COSTS
    mixed = expected_costs({"high": {"high": right, "low": wrong}, "low": {"low": 1}}, COSTS)
    assert mixed["high"] == pytest.approx((5 * right + wrong) / (right + wrong))
    assert mixed["low"] == 1


def test_the_choice_the_plan_and_the_file_use_the_mean_cost_of_a_reading(found: Calibration, tmp_path: Path) -> None:
    costs = {tier: plan.expected_cost for tier, plan in found.policy.tiers.items()}
    assert found.policy.costs == COSTS, "the stated costs stay"
    assert costs["high"] is not None
    assert costs["low"] is not None
    assert 1 < costs["low"] < costs["high"] < 5
    assert (found.plan.costs, found.plan.costs_as_read) == (COSTS, costs)
    assert found.policy.costs_as_read() == costs
    found.policy.save(tmp_path / "policy.json")
    again = Policy.load(tmp_path / "policy.json")
    assert {tier: plan.expected_cost for tier, plan in again.tiers.items()} == costs
    assert BudgetPath.of(again) == BudgetPath.of(found.policy)
    plain = {tier: plan.model_copy(update={"expected_cost": None}) for tier, plan in again.tiers.items()}
    free = again.model_copy(update={"certificate": None, "tiers": plain})
    assert "expected_cost" not in json.dumps(free.model_dump(exclude_none=True))


def test_labels_are_stated_as_covered_and_readings_alone_as_not(
    found: Calibration, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unlabelled = certified(tmp_path, wrong=0)
    for calibration, sentence, warned in (
        (found, "tiers as read by the signal, costs by the label; misreading is counted", False),
        (unlabelled, "tiers as read by the signal; misreading not covered", True),
    ):
        assert calibration.certificate is not None
        assert calibration.policy.certificate is not None
        assert calibration.policy.certificate["covers"] == sentence
        print_certificate(calibration.certificate)
        assert sentence[1:] in capsys.readouterr().out
        assert (sentence in " ".join(policy_warnings(calibration.policy))) == warned
    assert all(plan.expected_cost is None for plan in unlabelled.policy.tiers.values())
    assert unlabelled.served is None


def test_the_estimate_as_served_is_printed_also_with_adaptive_sampling(found: Calibration, tmp_path: Path) -> None:
    assert found.served is not None
    assert not found.served.estimated
    assert "mistakes cost by the label" in " ".join(format_served(found))
    adaptive = certified(tmp_path, wrong=7, certification=None, sampling=AdaptiveSampling())
    assert adaptive.served is not None
    assert adaptive.served.estimated
    assert adaptive.served.agreement == pytest.approx(found.served.agreement, abs=0.02)
    samples = prepare_samples(labelled(tmp_path, 7), tmp_path)  # tiers are labels
    options = CalibrationOptions(grid=GRID, sampling=AdaptiveSampling())
    by_label = calibrate(samples, Oracle(), costs=COSTS, signal="tier", options=options)
    assert by_label.served is not None
    assert by_label.served.cwe > by_label.served.by_label, "a misread question costs what its label says"


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "costs": lambda file: file["tiers"]["high"].update(cost=6.0),
    "mean": lambda file: file.update(mean_budget=320),
    "signal": lambda file: file["signal"]["keywords"].append("shipping"),
    "confidence": lambda file: file["certificate"].update(confidence=0.99),
    "curves": lambda file: file["tiers"]["low"]["curve"]["errors"].__setitem__(0, 0.5),
    "bounds": lambda file: file["certificate"]["upper_errors"]["high"].update(upper=0.01),
    "budgets": lambda file: file["tiers"]["low"].update(budget=64),
    "setting": lambda file: file.update(family="qwen3-vl"),
    "model": lambda file: file.update(model="./another-vlm"),
    "metric": lambda file: file.update(metric="exact"),
    "harm limit": lambda file: file.update(max_harm={"low": 0.15}),
}


@pytest.mark.parametrize("part", EDITS)
def test_a_certificate_ends_when_what_it_rests_on_is_edited(part: str, found: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    found.policy.save(path)
    assert edited_parts(Policy.load(path)) == []
    assert certified_budgets(Policy.load(path)) is not None
    file = json.loads(path.read_text())
    EDITS[part](file)
    path.write_text(json.dumps(file))
    edited = Policy.load(path)
    assert edited_parts(edited) == [part]
    assert certified_budgets(edited) is None
    assert policy_warnings(edited)[0].startswith("NOT CERTIFIED")
    assert "Nothing is guaranteed" in ended_certificate(edited)[0]
    for digest in found.policy.certificate["digest"].values():  # type: ignore[index]
        assert digest not in " ".join(policy_warnings(edited)), "no hashes in messages"


def test_another_signal_ends_a_certificate_and_so_does_another_tier_for_undecided(found: Calibration) -> None:
    policy = Policy.from_record(found.policy.model_dump(by_alias=True))
    assert certified_budgets(policy) is not None
    policy.use(KeywordRule(["shipping"]))
    assert edited_parts(policy) == ["signal"]
    assert certified_budgets(policy) is None


def test_an_old_certificate_is_checked_by_its_budgets_and_states_that(found: Calibration) -> None:
    record = found.policy.model_dump(by_alias=True)
    del record["certificate"]["digest"]
    old = Policy.from_record(record)
    assert certified_budgets(old) is not None
    assert "edits of costs, mean, signal, curves or bounds are not detected" in " ".join(policy_warnings(old))
    record["tiers"]["low"]["budget"] = 64
    assert edited_parts(Policy.from_record(record)) == ["budgets"]


def test_a_certificate_of_schema_1_stays_valid_until_a_new_field_is_set(found: Calibration) -> None:
    record = found.policy.model_dump(by_alias=True)
    for name in ("model", "metric", "max_harm", "trim", "trim_above", "confidence"):
        del record[name]
    for part in ("model", "metric", "harm limit", "trimming"):
        del record["certificate"]["digest"][part]
    record["schema"] = 1
    assert edited_parts(Policy.from_record(record)) == []
    assert edited_parts(Policy.from_record(record | {"max_harm": {"low": 0.1}})) == ["harm limit"]
    del record["certificate"]["digest"]["costs"]
    assert edited_parts(Policy.from_record(record)) == ["costs"], "a digest that schema 1 had may not be removed"


def test_misread_tiers_do_not_ship_what_harms() -> None:
    """A small piece of benchmarks/certificates.py; with costs by reading nearly all of these ship, and harm."""
    rng, world = np.random.default_rng(0), Misread(published(), 10, 0.25, size=150)
    by_label = by_reading = 0
    for _ in range(40):
        questions = world.draw(rng)
        for labels in (True, False):
            budgets, p = no_gain(questions.tables(by_label=labels), world.costs)
            falsely = p < LEVEL and world.gain(budgets) <= 0
            by_label, by_reading = by_label + (labels and falsely), by_reading + (not labels and falsely)
    assert by_label <= 4
    assert by_reading >= 20


def test_groups_that_gain_and_groups_that_lose_do_not_ship() -> None:
    rng, world = np.random.default_rng(0), Grouped(published(), 8, 20)
    questions = [world.draw(rng) for _ in range(60)]
    by_group = sum(no_gain(one.tables(), world.costs)[1] < LEVEL for one in questions)
    by_page = sum(no_gain(one.tables(unit=world.pages(one)), world.costs)[1] < LEVEL for one in questions)
    assert by_group <= 5
    assert by_page >= 9


def test_groups_are_the_units_of_a_certificate(tmp_path: Path) -> None:
    samples = [replace(s, group=f"supplier {i // 8}") for i, s in enumerate(labelled(tmp_path, 7))]
    prepared = prepare_samples(samples, tmp_path, KeywordRule())
    options = CalibrationOptions(grid=GRID, certification=Certification(0.9))
    found = calibrate(prepared, Oracle(), costs=COSTS, signal=KeywordRule(), options=options)
    assert found.certificate is not None
    assert found.certificate.unit == "group"
    assert found.certificate.chosen_on + found.certificate.certified_on == 20
    assert found.held_out is not None
    assert found.held_out.chosen_on + found.held_out.tested_on == 20


def test_a_limit_per_document_counts_that_many_and_states_the_rate(tmp_path: Path) -> None:
    limited = certified(tmp_path, wrong=7, certification=Certification(0.9, max_per_document=2))
    assert limited.certificate is not None
    assert limited.certificate.rate == "all rates count at most 2 questions of a document"
    assert sum(limited.plan.counts.values()) == 80
