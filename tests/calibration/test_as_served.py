"""Budgets chosen by labels, served by readings: a high-cost question read as cheap still costs what it costs."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.evaluation.oracle import Oracle, write_samples

from stakes.budgets.options.tier_plan import TierOption
from stakes.budgets.policy import Policy
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.certify.certificate import Certification
from stakes.calibration.holdout import as_served
from stakes.calibration.result import Calibration
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.samples import prepare_samples
from stakes.report.sentences import guarantees
from stakes.signals import KeywordRule

COSTS = {"high": 5.0, "low": 1.0}
GRID = (100, 200, 300, 400)


def fixed(budgets: dict[str, int]) -> dict[str, TierOption]:
    return {tier: TierOption(budget) for tier, budget in budgets.items()}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    folder = tmp_path_factory.mktemp("samples")
    return prepare_samples(write_samples(folder, pages=12), folder, KeywordRule())


@pytest.fixture(scope="module")
def found(samples: list[Sample], tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    log = tmp_path_factory.mktemp("log") / "log.jsonl"
    return calibrate(
        samples,
        Oracle(),
        costs=COSTS,
        mean_budget=250,
        signal=KeywordRule(),
        log=log,
        options=CalibrationOptions(grid=GRID, certification=Certification(0.6)),
    )


def test_it_is_the_cost_of_the_label_at_the_budget_of_the_reading(samples: list[Sample], found: Calibration) -> None:
    outcomes = list(found.run.outcomes.values())
    tiers = {one.id: one.tier for one in samples}
    readings = {sample: "low" if i % 3 == 0 else tier for i, (sample, tier) in enumerate(tiers.items())}
    budgets = {"high": 400, "low": 100}
    served = as_served(outcomes, fixed(budgets), readings, COSTS)
    at = {(outcome.sample, outcome.budget): outcome for outcome in outcomes}
    lost = sum(COSTS[tiers[s]] * (not at[s, budgets[readings[s]]].correct) for s in tiers)
    assert served.cwe == pytest.approx(lost / sum(COSTS[tier] for tier in tiers.values()))
    assert served.tokens == pytest.approx(sum(at[s, budgets[readings[s]]].realised for s in tiers) / len(tiers))
    assert served.agreement == sum(readings[s] == tiers[s] for s in tiers) / len(tiers) < 1
    below, above = (
        (
            sum(at[s, b].realised for s in tiers) / len(tiers),
            sum(COSTS[tiers[s]] * (not at[s, b].correct) for s in tiers),
        )
        for b in ((100, 200) if served.tokens < sum(at[s, 200].realised for s in tiers) / len(tiers) else (200, 300))
    )
    assert below[0] <= served.tokens <= above[0]
    share = (served.tokens - below[0]) / (above[0] - below[0])
    even = (1 - share) * below[1] + share * above[1]
    assert served.uniform == pytest.approx(even / sum(COSTS[tier] for tier in tiers.values())), "at the same tokens"
    same = as_served(outcomes, fixed(budgets), tiers, COSTS)
    assert (same.cwe, same.tokens, same.agreement) == (served.by_label, served.label_tokens, 1.0)
    with pytest.raises(BadInput, match="not every sample was answered"):
        as_served(outcomes, fixed({"high": 350, "low": 100}), tiers, COSTS)


def test_a_certificate_by_labels_states_that_it_is_of_named_tiers(
    samples: list[Sample], found: Calibration, tmp_path: Path
) -> None:
    tiers = {one.id: one.tier for one in samples}
    assert found.by_labels(tiers) is found, "where the signal reads every label, nothing changes"
    other = found.by_labels(tiers | {samples[0].id: "low" if samples[0].tier == "high" else "high"})
    assert other.served is not None
    assert other.served.agreement == pytest.approx(1 - 1 / len(samples))
    assert other.record()["as_served"] is not None
    other.policy.save(tmp_path / "policy.json")
    kept = Policy.load(tmp_path / "policy.json")
    assert "requests that name their tier" in " ".join(guarantees(kept.certificate))
    assert "requests that name their tier" not in " ".join(guarantees(found.policy.certificate))
    assert replace(other, served=None).policy.budgets == found.policy.budgets
