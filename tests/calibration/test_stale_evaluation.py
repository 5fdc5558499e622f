"""An evaluation is of one policy: at other budgets it is refused, under another signal it is shown with a note."""

import json
import shutil
from pathlib import Path

import pytest
from tests.calibration.evaluations import mixed_pages, policy
from tests.evaluation.oracle import Oracle

from stakes.calibration.evaluate import EvaluationOptions, evaluate, regrade
from stakes.commands.evaluate import print_evaluation
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.report.data import read_run
from stakes.report.sentences import SIGNAL_CHANGED
from stakes.signals import KeywordRule, to_dict

STALE = "this evaluation is of budgets high 512, low 96; the policy's are high 400, low 208; run stakes evaluate again"
OTHER = to_dict(KeywordRule(("sum",)))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Sample], Path]:
    """Questions, and a folder with the evaluation of a policy beside where that would stand."""
    folder = tmp_path_factory.mktemp("stale")
    samples = mixed_pages(folder, 12)
    evaluate(
        Oracle(),
        samples,
        policy(),
        log=folder / "policy.evaluation.jsonl",
        options=EvaluationOptions(arms=["uniform", "cost"]),
    )
    return samples, folder


def test_a_policy_with_other_budgets_is_not_judged_by_old_arms(pages: tuple[list[Sample], Path]) -> None:
    samples, folder = pages
    log, answers = folder / "policy.evaluation.jsonl", {one.id: one.answers for one in samples}
    with pytest.raises(BadInput, match=STALE):
        regrade(log, answers, policy(400, 208))
    more_expensive = policy(tiers={"high": {"cost": 9, "budget": 512}, "low": {"cost": 1, "budget": 96}})
    assert regrade(log, answers, more_expensive).same_signal is True


def test_a_report_notes_a_stale_evaluation_and_shows_none(pages: tuple[list[Sample], Path]) -> None:
    _, folder = pages
    policy(400, 208).save(folder / "policy.json")
    run = read_run(folder / "policy.json")
    assert run.evaluation is None
    assert f"The evaluation beside the policy cannot be shown: {STALE}." in run.notes
    with pytest.raises(BadInput, match=STALE):
        read_run(folder / "policy.json", evaluation=folder / "policy.evaluation.jsonl")
    policy().save(folder / "policy.json")
    assert read_run(folder / "policy.json").evaluation is not None


def test_a_changed_signal_is_noted_on_both_pages(
    pages: tuple[list[Sample], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = pages
    policy().save(folder / "policy.json")
    assert SIGNAL_CHANGED not in read_run(folder / "policy.json").notes
    rules = policy(signal=OTHER)
    rules.save(folder / "policy.json")
    run = read_run(folder / "policy.json")
    assert SIGNAL_CHANGED in run.notes
    assert run.evaluation is not None
    assert run.evaluation.record()["same_signal"] is False
    print_evaluation(run.evaluation, rules, "log")
    assert SIGNAL_CHANGED in capsys.readouterr().out


def test_arms_without_a_key_are_accepted_as_they_are(pages: tuple[list[Sample], Path], tmp_path: Path) -> None:
    samples, folder = pages
    answers, log = {one.id: one.answers for one in samples}, tmp_path / "log.jsonl"
    shutil.copy(folder / "policy.evaluation.jsonl", log)
    record = json.loads((folder / "policy.evaluation.jsonl.arms.json").read_text())
    arms = tmp_path / "log.jsonl.arms.json"
    del record["key"]["signal"]
    arms.write_text(json.dumps(record))
    assert regrade(log, answers, policy(signal=OTHER)).same_signal is None
    with pytest.raises(BadInput, match=STALE):
        regrade(log, answers, policy(400, 208))
    arms.write_text(json.dumps({**record, "key": 3}))
    with pytest.raises(BadInput, match="is not a plan of arms"):
        regrade(log, answers, policy())
    del record["key"]
    arms.write_text(json.dumps(record))
    assert regrade(log, answers, policy(400, 208)).same_signal is None
