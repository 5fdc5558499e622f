"""An evaluation is of one policy: at other budgets it is refused, under another signal it is shown with a note."""

import json
import shutil
from pathlib import Path

import pytest
from tests.budgets.test_evaluate import mixed_pages, policy
from tests.evaluation.oracle import Oracle

from stakes.calibration.evaluate import evaluate, regrade
from stakes.commands.evaluate import print_evaluation
from stakes.errors import BadInput
from stakes.evaluation.items import Asked
from stakes.report.run import read_run
from stakes.report.sentences import OTHER_SIGNAL
from stakes.signals import KeywordRule, to_dict

STALE = "this evaluation is of budgets high 512, low 96; the policy's are high 400, low 208; run stakes evaluate again"
OTHER = to_dict(KeywordRule(("sum",)))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Asked], Path]:
    """Questions, and a folder with the evaluation of a policy beside where that would stand."""
    folder = tmp_path_factory.mktemp("stale")
    asked = mixed_pages(folder, 12)
    evaluate(Oracle(), asked, policy(), log=folder / "policy.evaluation.jsonl", arms=["uniform", "cost"])
    return asked, folder


def test_a_policy_with_other_budgets_is_not_judged_by_old_arms(pages: tuple[list[Asked], Path]) -> None:
    asked, folder = pages
    log, answers = folder / "policy.evaluation.jsonl", {one.id: one.answers for one in asked}
    with pytest.raises(BadInput, match=STALE):
        regrade(log, answers, policy(400, 208))
    dearer = policy(tiers={"high": {"cost": 9, "budget": 512}, "low": {"cost": 1, "budget": 96}})
    assert regrade(log, answers, dearer).same_signal is True


def test_a_report_notes_a_stale_evaluation_and_shows_none(pages: tuple[list[Asked], Path]) -> None:
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
    pages: tuple[list[Asked], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = pages
    policy().save(folder / "policy.json")
    assert OTHER_SIGNAL not in read_run(folder / "policy.json").notes
    rules = policy(signal=OTHER)
    rules.save(folder / "policy.json")
    run = read_run(folder / "policy.json")
    assert OTHER_SIGNAL in run.notes
    assert run.evaluation is not None
    assert run.evaluation.record()["same_signal"] is False
    print_evaluation(run.evaluation, rules, "log")
    assert OTHER_SIGNAL in capsys.readouterr().out


def test_arms_that_do_not_say_their_policy_are_taken_as_they_are(
    pages: tuple[list[Asked], Path], tmp_path: Path
) -> None:
    asked, folder = pages
    answers, log = {one.id: one.answers for one in asked}, tmp_path / "log.jsonl"
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
