"""Documents that share a page are one unit, whatever a file calls them; documents that were right stay as they were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evaluation.oracle import Oracle, write_samples

from stakes.budgets.digests import document_digests, is_held_out
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.certify.certificate import Certification
from stakes.calibration.evaluate import EvaluationOptions, evaluate
from stakes.calibration.result import Calibration
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.samples import document_units, format_joined, prepare_samples
from stakes.signals import KeywordRule

COSTS = {"high": 5.0, "low": 1.0}
GRID = (32, 304, 576)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("units")


@pytest.fixture(scope="module")
def samples(folder: Path) -> list[Sample]:
    return write_samples(folder, 12, per_page=2)


def by_question(samples: list[Sample]) -> list[Sample]:
    return [replace(sample, document=sample.id) for sample in samples]


def certified(prepared: list[Sample], log: Path) -> Calibration:
    return calibrate(
        prepared,
        Oracle(),
        costs=COSTS,
        mean_budget=304,
        signal=KeywordRule(),
        log=log,
        options=CalibrationOptions(grid=GRID, certification=Certification(0.9)),
    )


def test_a_chain_of_shared_pages_is_one_unit_under_its_first_name() -> None:
    assert document_units(["a", "b", "c", "d"], ["1", "2", "3", "4"]) == ["a", "b", "c", "d"]
    assert document_units(["a", "b", "b", "c", "c"], ["1", "2", "3", "3", "1"]) == ["a"] * 5
    assert document_units(["c", "a", "b", "a"], ["1", "2", "2", "9"]) == ["c", "a", "a", "a"]
    assert document_units([], []) == []


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("123456789")), max_size=20))
def test_units_are_the_connected_parts(pairs: list[tuple[str, str]]) -> None:
    documents, pages = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    found = document_units(documents, pages)
    reach = [{i} for i in range(len(pairs))]  # the slow way: grow until nothing more is touched
    for group in reach:
        while (
            more := {
                j for i in group for j in range(len(pairs)) if documents[i] == documents[j] or pages[i] == pages[j]
            }
            - group
        ):
            group |= more
    assert [found[i] == found[j] for i in range(len(pairs)) for j in range(len(pairs))] == [
        j in reach[i] for i in range(len(pairs)) for j in range(len(pairs))
    ]
    assert all(unit == documents[min(reach[i])] for i, unit in enumerate(found))


def test_a_document_for_each_question_certifies_no_more_than_one_for_each_page(
    samples: list[Sample], folder: Path, tmp_path: Path
) -> None:
    named = [
        replace(sample, document=f"{sample.image}".removesuffix(".png").replace("page", "p") + "q0")
        for sample in samples
    ]
    pages = certified(prepare_samples(named, folder, KeywordRule()), tmp_path / "pages.jsonl")
    fine = certified(prepare_samples(by_question(samples), folder, KeywordRule()), tmp_path / "fine.jsonl")
    assert pages.certificate is not None
    assert fine.certificate is not None
    assert fine.certificate.chosen_on + fine.certificate.certified_on == 12
    assert (fine.certificate, fine.held_out, fine.policy.budgets) == (
        pages.certificate,
        pages.held_out,
        pages.policy.budgets,
    )
    judged = evaluate(
        Oracle(),
        prepare_samples(by_question(samples), folder, KeywordRule()),
        fine.policy,
        log=tmp_path / "e.jsonl",
        options=EvaluationOptions(arms=["uniform", "cost"]),
    )
    assert judged.comparison.documents == 12
    assert judged.comparison.rows[1].gain is not None
    assert judged.comparison.rows[1].gain.units == 12


def test_documents_that_were_right_keep_their_names_and_their_logs(
    samples: list[Sample], folder: Path, tmp_path: Path
) -> None:
    prepared = prepare_samples(samples, folder)
    assert [(one.document, one.named) for one in prepared] == [(sample.document, "") for sample in samples]
    assert format_joined(prepared) == ""
    unnamed = prepare_samples([replace(sample, document="") for sample in samples], folder)
    assert all(one.document == one.digest for one in unnamed)


def test_the_log_of_finer_documents_is_kept_and_counts_by_unit(
    samples: list[Sample], folder: Path, tmp_path: Path
) -> None:
    fine = [
        replace(one, document=one.id, named="") for one in prepare_samples(samples, folder, KeywordRule())
    ]  # as it was read
    first = calibrate(
        fine,
        Oracle(),
        costs=COSTS,
        mean_budget=304,
        signal=KeywordRule(),
        log=tmp_path / "log.jsonl",
        options=CalibrationOptions(grid=GRID),
    )
    model = Oracle()
    joined = prepare_samples(by_question(samples), folder, KeywordRule())
    again = calibrate(
        joined,
        model,
        costs=COSTS,
        mean_budget=304,
        signal=KeywordRule(),
        log=tmp_path / "log.jsonl",
        options=CalibrationOptions(grid=GRID),
    )
    assert (model.batches, again.run.answered, again.run.retiered) == ([], 0, 0)
    assert again.curves == first.curves
    assert {outcome.document for outcome in read_outcomes(tmp_path / "log.jsonl")} == {f"p{n}q0" for n in range(12)}


def test_what_a_policy_has_seen_goes_by_either_name(samples: list[Sample], folder: Path, tmp_path: Path) -> None:
    prepared = prepare_samples(by_question(samples), folder, KeywordRule())
    found = calibrate(
        prepared,
        Oracle(),
        costs=COSTS,
        mean_budget=304,
        signal=KeywordRule(),
        log=tmp_path / "log.jsonl",
        options=CalibrationOptions(grid=GRID),
    )
    assert document_digests(sample.id for sample in samples) <= set(found.policy.documents or ())
    assert is_held_out(found.policy, ["p3q2"]) is False


def test_joined_documents_are_listed_once(samples: list[Sample], folder: Path) -> None:
    prepared = prepare_samples(by_question(samples), folder)
    assert format_joined(prepared) == (
        "48 documents share pages with others and count as 12 units: p0q0 with p0q1, p0q2, p0q3; "
        "p1q0 with p1q1, p1q2, p1q3; p2q0 with p2q1, p2q2, p2q3 and 9 more"
    )
    one = prepare_samples(by_question(samples)[:5], folder)
    assert format_joined(one) == "4 documents share pages with others and count as one unit: p0q0 with p0q1, p0q2, p0q3"


def test_both_commands_report_joined_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.commands.test_calibrate import stakes, write

    file = write(tmp_path, "cal", 3)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({**line, "document": line["id"]}) + "\n" for line in lines))
    words = ("--model", "no model", "-o", tmp_path / "p.json")
    said: list[str] = []
    monkeypatch.setattr("typer.echo", lambda text="", **_: said.append(str(text)))
    for command in (("calibrate", file, *words), ("evaluate", file, "--policy", _policy(tmp_path), *words[:2])):
        with pytest.raises(BadInput, match="no model"):
            stakes(*command)
    assert len([text for text in said if "6 documents share pages with others and count as 3 units" in text]) == 2


def _policy(folder: Path) -> Path:
    tiers = {"high": {"cost": 5, "budget": 48}, "low": {"cost": 1, "budget": 12}}
    path = folder / "rules.json"
    path.write_text(json.dumps({"schema": 1, "mean_budget": 30, "tiers": tiers}))
    return path


def test_groups_are_the_units_wherever_they_are_given(folder: Path, samples: list[Sample]) -> None:
    names = ["acme"] * 8 + ["other"] * 8 + [""] * 32
    groups = [replace(sample, group=name) for sample, name in zip(samples, names, strict=True)]
    prepared = prepare_samples(groups, folder, KeywordRule())
    assert [sample.document for sample in prepared[:16]] == names[:16]
    assert [sample.document for sample in prepared[16:]] == [sample.document for sample in samples[16:]]
    assert [sample.named for sample in prepared[:16]] == [sample.document for sample in samples[:16]]
    text = "the independent units are 2 groups, and 8 documents without one, as the file names them, of 12 documents"
    assert format_joined(prepared) == text
    assert document_units(["1", "1", "2"], ["x", "y", "z"], ["", "acme", "acme"]) == ["1", "1", "1"], "by document too"
    assert document_units(["1", "2"], ["x", "x"], ["acme", "other"]) == ["acme", "acme"], "and by page"


def test_a_label_outlives_the_reading(folder: Path, samples: list[Sample]) -> None:
    labelled = [replace(sample, tier="low") for sample in samples]
    prepared = prepare_samples(labelled, folder, KeywordRule())
    assert {sample.label for sample in prepared} == {"low"}
    assert {sample.tier for sample in prepared} == {"high", "low"}
    assert {sample.label for sample in prepare_samples(samples, folder, KeywordRule())} <= {"", "high", "low"}
