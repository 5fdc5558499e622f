"""``stakes explain`` shows when a question is asked again and when a person sees its answer."""

import json
from pathlib import Path

import pytest

from stakes import Policy
from stakes.cli import main
from stakes.models.base import CONFIDENCE


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    high = {"cost": 5, "budget": 304, "escalate": {"to": 576, "below": 0.9}, "review_below": 0.6}
    record = {"mean_budget": 304, "tiers": {"high": high, "low": {"cost": 1, "budget": 32}}, "confidence": CONFIDENCE}
    Policy.model_validate(record).save(tmp_path / "policy.json")
    return tmp_path / "policy.json"


def explained(policy: Path, question: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(["explain", question, "--policy", str(policy), *more])
    assert left.value.code == 0
    return capsys.readouterr().out


def test_the_option_is_shown_in_words_and_as_json(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = explained(policy, "What is the invoice total?", capsys)
    assert "option       304, then 576 below 0.9, review below 0.6 (by confidence)" in said
    record = json.loads(explained(policy, "What is the invoice total?", capsys, "--json"))
    assert (record["escalate"], record["review_below"]) == ({"to": 576, "below": 0.9}, 0.6)


def test_a_fixed_budget_has_no_option_to_show(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "option" not in explained(policy, "Who signed the letter?", capsys)
