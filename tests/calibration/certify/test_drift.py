"""The monitor alarms when a condition fails, seldom otherwise, and calls disagreement a proxy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stakes.calibration.certify.drift import EPOCH, STAKE, Conditions, DriftMonitor, Stream, log_wealth, same_answer
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome

FINE = Conditions({"high": 0.15, "low": 0.6}, {"high": 0.4, "low": 0.6})


def alarms(monitor: DriftMonitor) -> list[str]:
    found = monitor.state()["alarms"]
    assert isinstance(found, list)
    return found


def feed(monitor: DriftMonitor, rng: np.random.Generator, requests: int, high: float = 0.1, share: float = 0.4) -> None:
    for _ in range(requests):
        tier = "high" if rng.random() < share else "low"
        monitor.observe(tier, same=bool(rng.random() >= (high if tier == "high" else 0.5)), predicted=300, counted=301)


@given(st.integers(1, 40), st.floats(0.02, 0.9), st.data())
@settings(max_examples=60, deadline=None)
def test_the_wealth_is_the_integral_of_its_definition(n: int, m: float, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    angle = (np.arange(60_000) + 0.5) / 60_000 * np.pi / 2  # Beta(1/2, 1/2) is sin² of an even angle
    p = np.sin(angle) ** 2
    p = p[p > m]
    expected = np.mean(np.exp(k * np.log(p / m) + (n - k) * np.log((1 - p) / (1 - m))))
    assert log_wealth(np.array([n]), np.array([k]), m)[0] == pytest.approx(np.log(expected), abs=0.02)


def test_at_the_limit_it_alarms_no_more_often_than_alpha_ever() -> None:
    rng, level, runs = np.random.default_rng(0), 0.2, 80
    false = 0
    assert sum(STAKE / k**2 for k in range(1, 10_000)) < 1  # all bets together begin with no more than 1
    for _ in range(runs):
        stream = Stream(0.3)
        for value in rng.random(3 * EPOCH) < 0.3:
            stream.add(float(value))
        false += stream.highest >= -np.log(level)
    assert false / runs <= level + 2 * np.sqrt(level * (1 - level) / runs)


def test_the_stake_of_a_stream_begins_below_one_and_each_bet_has_its_share() -> None:
    stream = Stream(0.3)
    for _ in range(8):
        stream.add(1.0)
    alone = float(log_wealth(np.array([8.0]), np.array([8.0]), 0.3)[0])
    assert stream.highest == pytest.approx(alone + np.log(STAKE))
    for _ in range(2 * EPOCH - 8):
        stream.add(0.0)
    assert stream.bets[:, 0].tolist() == [1, 1 / 4, 1 / 9]
    assert stream.bets[:, 1].tolist() == [2 * EPOCH, EPOCH, 0]


def test_all_quiet_is_quiet_and_a_change_is_named() -> None:
    rng = np.random.default_rng(1)
    monitor = DriftMonitor(FINE)
    feed(monitor, rng, 800)
    assert alarms(monitor) == []
    feed(monitor, rng, 800, high=0.5)
    (alarm,) = alarms(monitor)
    assert alarm.startswith("disagreement high")
    assert "proxy" in str(monitor.state()["note"])
    feed(monitor, rng, 2000, high=0.0)
    assert alarms(monitor) == [alarm], "an alarm stays until somebody looks"


def test_a_late_change_is_seen_about_as_soon_as_an_early_one() -> None:
    rng, delays = np.random.default_rng(2), []
    for good in (0, 12 * EPOCH):
        stream = Stream(0.2)
        for value in rng.random(good) < 0.1:
            stream.add(float(value))
        for number, value in enumerate(rng.random(2000) < 0.4):
            stream.add(float(value))
            if stream.highest > np.log(100):
                delays.append(number)
                break
    early, late = delays
    assert late < early + EPOCH + 100


def test_a_moved_mix_and_wrong_token_counts_are_called() -> None:
    rng = np.random.default_rng(3)
    moved = DriftMonitor(FINE)
    feed(moved, rng, 1500, share=0.65)
    assert [alarm.partition(":")[0] for alarm in alarms(moved)] == ["mix high"]
    off = DriftMonitor(FINE)
    for _ in range(400):
        off.observe("high" if rng.random() < 0.4 else "low", predicted=300, counted=400)
    assert [alarm.partition(":")[0] for alarm in alarms(off)] == ["tokens"]


def test_the_lower_bound_lies_below_the_truth_and_close() -> None:
    rng, missed = np.random.default_rng(4), 0
    for _ in range(50):
        stream = Stream(0.05)
        for value in rng.random(400) < 0.3:
            stream.add(float(value))
        bound = stream.lower(0.1)
        missed += bound > 0.3
        assert bound > 0.15
    assert missed <= 5 + 2 * 2
    assert Stream(0.05).lower(0.1) == 0.0


def test_conditions_come_from_the_calibration() -> None:
    outcomes = []
    for i in range(60):
        tier = "high" if i % 3 == 0 else "low"
        for budget, text in ((32, "a" if i % 4 else "B"), (576, "A")):
            outcomes.append(
                Outcome(
                    f"s{i}", f"d{i}", tier, "deletion", None, budget, 900, budget, text, False, 1, True, "exact", 1, ""
                )
            )
    found = Conditions.of(outcomes, {"high": 576, "low": 32})
    assert found.mix == {"high": pytest.approx(1 / 3), "low": pytest.approx(2 / 3)}
    assert found.disagreement["high"] < 0.2  # never differs from itself; 20 documents know no better
    assert 0.25 < found.disagreement["low"] < 0.5
    assert same_answer("The  Total", "the total")
    assert not same_answer("12", "1 2")
    with pytest.raises(BadInput, match="answered at both"):
        Conditions.of(outcomes, {"high": 64, "low": 32})


def test_nonsense_is_refused() -> None:
    with pytest.raises(BadInput, match="not monitored"):
        DriftMonitor(FINE).observe("medium")
    with pytest.raises(BadInput, match="adding up"):
        Conditions({"high": 0.1}, {"high": 0.5})
    with pytest.raises(BadInput, match="between 0 and 1"):
        Conditions({"high": 0.0}, {"high": 1.0})
    with pytest.raises(BadInput, match="alpha"):
        DriftMonitor(FINE, alpha=0)
    with pytest.raises(BadInput, match="monitored value"):
        Stream(0.5).add(1.5)
