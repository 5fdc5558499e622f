"""``evaluate`` asks the policy's model and grades by its metric; anything else is stated before any conclusion."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.commands.test_calibrate import RULES, place, stakes

from stakes.budgets.policy import Policy
from stakes.commands.options.model import ModelSource, model_source
from stakes.errors import BadInput

__all__ = ["place"]  # a fixture

HEX = re.compile("[0-9a-f]{12}")


@pytest.fixture(scope="module")
def policy(place: Path) -> Path:
    stakes("calibrate", place / "cal.jsonl", "--model", place / "vlm", *RULES, "-o", place / "named.json")
    return place / "named.json"


def arms(place: Path, policy: Path, log: str, *words: object) -> Any:
    log_words = ("--log", place / f"{log}.jsonl")
    return stakes("evaluate", place / "test.jsonl", "--policy", policy, "--arms", "uniform,cost", *log_words, *words)


def edited(policy: Path, name: str, **fields: object) -> Path:
    record = {**json.loads(policy.read_text()), **fields}
    path = policy.with_name(name)
    path.write_text(json.dumps({key: value for key, value in record.items() if value is not ...}))
    return path


def older(policy: Path) -> Path:
    """The same policy as schema 1 had it."""
    missing = dict.fromkeys(("model", "metric", "trim", "confidence", "max_harm"), ...)
    return edited(policy, "older.json", schema=1, **missing)


def test_a_policy_names_its_model_and_metric(place: Path, policy: Path) -> None:
    record = json.loads(policy.read_text())
    assert (record["schema"], record["model"], record["metric"]) == (2, str(place / "vlm"), "value")


def test_evaluate_asks_the_policys_model_and_grades_by_its_metric(place: Path, policy: Path) -> None:
    record = json.loads(arms(place, policy, "plain", "--json").stdout)
    assert (record["model"], record["same_model"], record["metric"]) == (str(place / "vlm"), True, "value")
    assert record["differences"] == []
    assert not record["verdict"].startswith("ANOTHER")
    exact = edited(policy, "exact.json", metric="exact")
    assert json.loads(arms(place, exact, "exact", "--json").stdout)["metric"] == "exact"


def test_another_model_is_stated_first_in_the_output_the_verdict_and_with_saved_answers(
    place: Path, policy: Path
) -> None:
    other = ("--model", place / "vlm", "--max-tokens", 3)
    page = arms(place, policy, "other", *other).stdout
    says = (
        f"ANOTHER MODEL than the policy's: {place / 'vlm'}, answers of up to 3 tokens answered; the policy was "
        f"calibrated with {place / 'vlm'}."
    )
    assert page.splitlines()[0] == says
    record = json.loads(arms(place, policy, "other", *other, "--json").stdout)
    assert (record["same_model"], record["differences"]) == (False, [says])
    assert record["verdict"].startswith(says)
    saved = json.loads(arms(place, policy, "none", "--outcomes", place / "other.jsonl", "--json").stdout)
    assert (saved["same_model"], saved["differences"], saved["model"]) == (False, [says], record["model"])
    assert not HEX.search(says)


def test_a_policy_without_a_fingerprint_is_compared_by_the_models_name(place: Path, policy: Path) -> None:
    named = edited(policy, "by name.json", fingerprint="", model="./my-vlm")
    record = json.loads(arms(place, named, "by name", "--model", place / "vlm", "--json").stdout)
    assert record["same_model"] is None
    assert record["verdict"].startswith(f"ANOTHER MODEL than the policy's: {place / 'vlm'} answered; the policy was")


def test_another_metric_and_another_signal_are_stated_first(place: Path, policy: Path) -> None:
    metric = "ANOTHER METRIC than the policy's: graded anls; the policy was calibrated with value."
    page = arms(place, policy, "anls", "--metric", "anls", "--signal", "tier").stdout
    assert page.splitlines()[:2] == [metric, "ANOTHER SIGNAL than the policy's: tiers are as labelled."]
    arms(place, policy, "again")
    saved = arms(place, policy, "none", "--outcomes", place / "again.jsonl", "--metric", "anls").stdout
    assert saved.splitlines()[0] == metric
    own = arms(place, policy, "none", "--outcomes", place / "again.jsonl").stdout
    assert "ANOTHER" not in own


def test_a_changed_model_is_refused_unless_it_is_named(place: Path, policy: Path) -> None:
    """The same name and another prompt; other weights are the same case."""
    moved = place / "changing"
    shutil.copytree(place / "vlm", moved)
    named = edited(policy, "changing.json", model=str(moved))
    assert json.loads(arms(place, named, "before", "--json").stdout)["same_model"] is True
    template = moved / "chat_template.jinja"
    template.write_text(template.read_text() + " ")
    with pytest.raises(
        BadInput, match="has other weights, another prompt or another answer length than when"
    ) as caught:
        arms(place, named, "refused")
    assert not (place / "refused.jsonl").exists(), "nothing was answered"
    assert not HEX.search(str(caught.value).replace(str(place), ""))
    page = arms(place, named, "changed", "--model", moved).stdout
    assert page.startswith(f"ANOTHER MODEL than the policy's: {moved} has other weights, another prompt or another")


def test_a_model_that_is_gone_is_refused_with_what_to_do(place: Path, policy: Path) -> None:
    gone = edited(policy, "gone.json", model="./gone")
    with pytest.raises(BadInput, match="the policy's model does not load: there is no folder ./gone.*--model"):
        arms(place, gone, "gone")
    assert json.loads(arms(place, gone, "found", "--model", place / "vlm", "--json").stdout)["same_model"] is True


def test_a_policy_without_a_model_is_not_guessed(place: Path, policy: Path) -> None:
    with pytest.raises(
        BadInput, match="does not name the model that it was calibrated with.*give --model or --endpoint"
    ):
        arms(place, older(policy), "guessed")
    record = json.loads(arms(place, older(policy), "told", "--model", place / "vlm", "--json").stdout)
    assert (record["same_model"], record["metric"], record["differences"]) == (True, "value", [])
    by_hand = edited(older(policy), "by hand.json", fingerprint="")
    with pytest.raises(BadInput, match="does not name the model"):
        arms(place, by_hand, "by hand")


def test_an_old_policy_of_the_embedded_reader_is_recognized_by_it(tmp_path: Path) -> None:
    pages = ("--pages", "shapes", "--per-tier", 4, "--signal", "tier")
    words = ("--mechanism", "deletion", "--grid", "64,128", "--mean-budget", 96, "-o", tmp_path / "policy.json")
    stakes("calibrate", *pages, *words)
    assert Policy.load(tmp_path / "policy.json").origin == "calibrated with embedded, graded by value"
    done = stakes("evaluate", *pages, "--policy", older(tmp_path / "policy.json"), "--arms", "uniform,cost", "--json")
    assert json.loads(done.stdout)["same_model"] is True
    assert "note: the policy does not name its model; it was calibrated with the embedded reader" in done.stderr


def named(model: object, **more: object) -> ModelSource:
    tiers = {"high": {"cost": 5, "budget": 576}, "low": {"cost": 1, "budget": 32}}
    record = {"schema": 2, "model": model, "family": "qwen3-vl", "mean_budget": 304, "tiers": tiers, **more}
    return ModelSource.of_policy(Policy.from_record(record))


def test_a_server_of_the_policy_may_move_and_gets_its_key_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "k3y")
    at = named({"name": "vlm", "endpoint": "http://a/v1", "max_tokens": 64})
    asked = {"model": "vlm", "family": "qwen3-vl", "max_new_tokens": 64}
    own = model_source(key_env="MY_KEY", concurrency=2, default=at)
    assert (own.name, own.options, own.stated) == ("http://a/v1", asked | {"api_key": "k3y", "concurrency": 2}, False)
    moved = model_source(endpoint="http://b/v1", default=at)
    assert (moved.name, moved.options, moved.stated) == ("http://b/v1", asked, True)
    assert model_source(endpoint_model="other", default=at).options["model"] == "other"
    assert model_source("./my-vlm", default=at) == ModelSource("./my-vlm")
    assert model_source(endpoint="http://b/v1", default=named("./my-vlm")).options == {"family": "qwen3-vl"}
    with pytest.raises(BadInput, match="--key-env is for a model behind a server, and './my-vlm' is not"):
        model_source(key_env="MY_KEY", default=named("./my-vlm"))
