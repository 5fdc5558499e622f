"""Commands print the one that comes next, ready to be pasted."""

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stakes.cli import app
from stakes.commands.output import print_serve
from stakes.experiments.study import fixed_policy
from stakes.models.identity import ModelName

POLICY = fixed_policy("qwen2.5-vl", "resolution", {"high": 256, "low": 64}, {"high": 5.0, "low": 1.0}, ["high", "low"])


def run(*words: object) -> list[str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exception is None, done.output
    return done.stdout.splitlines()


def test_tokens_prints_a_command_with_a_budget_and_that_runs() -> None:
    last = run("tokens", "1654x2339")[-1]
    assert last == "Next: stakes tokens 1654x2339 --family qwen2.5-vl --budget 304"
    assert run(*shlex.split(last)[2:])[-1].startswith("spends ")


def test_plan_prints_a_calibration_at_the_same_costs_and_mean() -> None:
    last = run("plan", "--published", "docvqa", "--cost", "high=20", "--cost", "low=1", "--mean-budget", 400)[-1]
    assert last == "Next: stakes calibrate --pages receipts --cost high=20 --cost low=1 --mean-budget 400"


def test_explain_with_a_policy_prints_how_to_serve_it(tmp_path: Path) -> None:
    file = tmp_path / "a policy.json"
    POLICY.save(file)
    last = run("explain", "What is the total?", "--policy", file)[-1]
    assert last == f"Next: stakes serve --policy '{file}' --upstream http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("model", "upstream"),
    [
        (ModelName(name="embedded"), "embedded"),
        (ModelName(name="qwen", endpoint="http://there:1/v1"), "http://there:1/v1"),
        (ModelName(name="ocr"), "http://127.0.0.1:8000/v1"),  # OCR finds answers and answers no requests
    ],
)
def test_a_policy_is_served_in_front_of_its_own_model(
    model: ModelName, upstream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = POLICY.model_copy(update={"model": model})
    print_serve(Path("policy.json"), policy)
    assert capsys.readouterr().out == f"Next: stakes serve --policy policy.json --upstream {upstream}\n"
