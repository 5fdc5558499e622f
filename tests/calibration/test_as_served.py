"""Budgets chosen by labels, served by readings: a dear question that is read as cheap still costs what it costs."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.evaluation.oracle import Oracle, write_samples

from stakes.budgets.policy import Policy
from stakes.calibration.as_served import as_served
from stakes.calibration.calibrate import Calibration, calibrate
from stakes.errors import BadInput
from stakes.evaluation.items import Asked, ask
from stakes.report.sentences import promises
from stakes.signals import KeywordRule

COSTS = {"high": 5.0, "low": 1.0}
GRID = (100, 200, 300, 400)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[Asked]:
    folder = tmp_path_factory.mktemp("samples")
    return ask(write_samples(folder, pages=12), folder, KeywordRule())


@pytest.fixture(scope="module")
def found(asked: list[Asked], tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    log = tmp_path_factory.mktemp("log") / "log.jsonl"
    return calibrate(Oracle(), asked, COSTS, 250, KeywordRule(), log=log, grid=GRID, confidence=0.6)


def test_it_is_the_cost_of_the_label_at_the_budget_of_the_reading(asked: list[Asked], found: Calibration) -> None:
    outcomes = list(found.run.outcomes.values())
    tiers = {one.id: one.tier for one in asked}
    turned = {sample: "low" if i % 3 == 0 else tier for i, (sample, tier) in enumerate(tiers.items())}
    budgets = {"high": 400, "low": 100}
    told = as_served(outcomes, budgets, turned, COSTS, 250)
    at = {(outcome.sample, outcome.budget): outcome for outcome in outcomes}
    lost = sum(COSTS[tiers[s]] * (not at[s, budgets[turned[s]]].correct) for s in tiers)
    assert told.cwe == pytest.approx(lost / sum(COSTS[tier] for tier in tiers.values()))
    assert told.tokens == pytest.approx(sum(at[s, budgets[turned[s]]].realised for s in tiers) / len(tiers))
    assert told.agreement == sum(turned[s] == tiers[s] for s in tiers) / len(tiers) < 1
    assert told.uniform_budget == 200
    same = as_served(outcomes, budgets, tiers, COSTS, 250)
    assert (same.cwe, same.tokens, same.agreement) == (told.by_label, told.label_tokens, 1.0)
    with pytest.raises(BadInput, match="not every sample was answered"):
        as_served(outcomes, {"high": 350, "low": 100}, tiers, COSTS, 250)


def test_a_certificate_by_labels_says_that_it_is_of_named_tiers(
    asked: list[Asked], found: Calibration, tmp_path: Path
) -> None:
    tiers = {one.id: one.tier for one in asked}
    assert found.by_labels(tiers) is found, "where the signal reads every label, nothing is to be said"
    turned = found.by_labels(tiers | {asked[0].id: "low" if asked[0].tier == "high" else "high"})
    assert turned.served is not None
    assert turned.served.agreement == pytest.approx(1 - 1 / len(asked))
    assert turned.record()["as_served"] is not None
    turned.policy.save(tmp_path / "policy.json")
    kept = Policy.load(tmp_path / "policy.json")
    assert "requests that name their tier" in " ".join(promises(kept.certificate))
    assert "requests that name their tier" not in " ".join(promises(found.policy.certificate))
    assert replace(turned, served=None).policy.budgets == found.policy.budgets
