"""``stakes.calibrate`` from a file, from labels and by steps, and what its result shows."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.evaluation.oracle import Oracle, write_samples

import stakes
from stakes.calibration.adaptive.sampler import AdaptiveSampling
from stakes.calibration.by_document import by_document
from stakes.calibration.calibrate import CalibrationOptions
from stakes.calibration.certify.certificate import Certification, certify
from stakes.calibration.estimators import Terms, choose, fit
from stakes.calibration.measure import measure
from stakes.calibration.result import Calibration
from stakes.errors import BadInput
from stakes.evaluation.samples import prepare_samples
from stakes.notebooks import VEGA_LITE
from stakes.signals import KeywordRule

COSTS = {"high": 5.0, "low": 1.0}
GRID = (32, 304, 576)


def write_file(folder: Path, **change: str) -> Path:
    fields = ("id", "image", "question", "answers", "tier", "document")
    records = [{name: getattr(sample, name) for name in fields} | change for sample in write_samples(folder, pages=12)]
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    path = write_file(tmp_path_factory.mktemp("result"))
    return stakes.calibrate(path, Oracle(), costs=COSTS, options=CalibrationOptions(grid=GRID))


def test_a_file_with_labels_is_enough(found: Calibration, tmp_path: Path) -> None:
    assert found.policy.budgets["high"] > found.policy.budgets["low"]
    assert found.policy.mean_budget == 304
    found.policy.save(tmp_path / "policy.json")
    assert stakes.Policy.load(tmp_path / "policy.json") == found.policy
    assert found.served is None, "the tiers are as the trained signal reads them"


def test_labels_that_the_signal_misreads_are_reported(tmp_path: Path) -> None:
    first, *rest = prepare_samples(write_samples(tmp_path, pages=12), tmp_path)
    samples = [replace(first, tier="low"), *rest]  # its question asks for a total, which is read as high
    found = stakes.calibrate(samples, Oracle(), costs=COSTS, signal="tier", options=CalibrationOptions(grid=GRID))
    assert found.served is not None
    assert found.served.agreement == pytest.approx(1 - 1 / len(samples))


def test_questions_without_labels_are_read_by_a_signal(tmp_path: Path) -> None:
    path = write_file(tmp_path, tier="")
    options = CalibrationOptions(grid=GRID)
    for named in ("tier", "train"):
        with pytest.raises(BadInput, match="has no tier; label it, or read tiers by a signal"):
            stakes.calibrate(path, Oracle(), costs=COSTS, signal=named, options=options)
    assert stakes.calibrate(path, Oracle(), costs=COSTS, options=options).policy.signal["kind"] == "requests"
    found = stakes.calibrate(path, Oracle(), costs=COSTS, signal=KeywordRule(), log=tmp_path / "log", options=options)
    assert found.run.answered == len(found.run.outcomes) == 48 * 3
    again = stakes.calibrate(path, Oracle(), costs=COSTS, signal=KeywordRule(), log=tmp_path / "log", options=options)
    assert (again.run.answered, again.policy.model_dump()) == (0, found.policy.model_dump())


def test_the_steps_alone_come_to_the_same_policy(found: Calibration, tmp_path: Path) -> None:
    samples = prepare_samples(write_samples(tmp_path, pages=12), tmp_path)
    measured = measure(Oracle(), samples, GRID, tmp_path / "log.jsonl")
    tables = by_document(measured.outcomes, COSTS)
    assert fit("pooled", tables.curves(), tables) == found.fitted
    terms = Terms(COSTS, tables.counts, 304 * len(samples))
    assert choose(tables, terms, "pooled").budgets == found.policy.budgets
    certificate = certify(tables, COSTS, 304, Certification(0.6))
    assert set(certificate.budgets) == set(COSTS)
    with pytest.raises(BadInput, match="give the terms of the choice"):
        measure(Oracle(), samples, GRID, tmp_path / "log.jsonl", sampling=AdaptiveSampling())


def test_choices_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(BadInput, match="ceilings need every question at every budget.* choose one"):
        CalibrationOptions(sampling=AdaptiveSampling(), certification=Certification(ceilings={"high": 0.1}))
    with pytest.raises(BadInput, match="per-request costs need every question at every budget.* choose one"):
        CalibrationOptions(sampling=AdaptiveSampling(), per_request=True)
    with pytest.raises(BadInput, match="budgets by tier, and per-request costs have none"):
        CalibrationOptions(certification=Certification(), per_request=True)
    with pytest.raises(BadInput, match="'hybrid' was removed .* use pooled"):
        CalibrationOptions(estimator="hybrid:prior.jsonl")


def test_per_request_costs_are_one_option(tmp_path: Path) -> None:
    path = write_file(tmp_path, question="What is the total?")  # so that keywords misread half of the labels
    options = CalibrationOptions(grid=GRID, per_request=True)
    found = stakes.calibrate(path, Oracle(), costs=COSTS, signal=KeywordRule(), options=options)
    assert found.policy.per_request is not None
    assert found.policy.per_request.estimate is not None
    assert found.policy.per_request.estimate["right"] == 0.5


def test_rows_hold_every_measured_point_and_the_choice(found: Calibration) -> None:
    rows = found.rows()
    assert [(row["tier"], row["budget"]) for row in rows] == [(tier, b) for tier in COSTS for b in GRID]
    assert {row["tier"]: row["budget"] for row in rows if row["chosen"]} == found.policy.budgets
    assert all(row["low"] - 1e-9 <= row["error"] <= row["high"] + 1e-9 for row in rows)
    assert rows[0]["error"] == found.curves["high"].error(32)


def test_a_frame_has_the_rows_and_names_what_is_missing(found: Calibration, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    assert found.to_frame().to_dict("records") == found.rows()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match="pip install pandas, or take rows"):
        found.to_frame()


def test_the_plot_is_vega_lite_that_a_converter_draws(found: Calibration) -> None:
    chart = found.plot()
    assert chart._repr_mimebundle_()[VEGA_LITE] == dict(chart)
    assert json.loads(json.dumps(chart))["data"]["values"][0]["tier"] == "high"
    converter = pytest.importorskip("vl_convert")
    assert "<svg" in converter.vegalite_to_svg(dict(chart))
