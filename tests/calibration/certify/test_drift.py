"""The monitor alarms when a condition fails, seldom otherwise, and calls disagreement a proxy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stakes.calibration.certify.drift import Conditions, DriftMonitor, same_answer
from stakes.calibration.certify.stream import EPOCH, MOST_RUNS, STAKE, Stream, log_wealth
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


def test_runs_of_five_break_the_level_one_by_one_and_keep_it_with_one_value_a_client_and_minute() -> None:
    rng, level, runs = np.random.default_rng(5), 0.2, 60
    false = {0.0: 0, 60.0: 0}
    for _ in range(runs):
        values = np.repeat(rng.random(EPOCH) < 0.3, 5)
        for window in false:
            stream = Stream(0.3)
            for i, value in enumerate(values):  # the next client comes after 20 seconds
                stream.observe(float(value), unit=str(i // 5 % 40), now=20.0 * (i // 5) + i % 5, window=window)
            false[window] += stream.highest >= -np.log(level)
    assert false[0.0] / runs > 2 * level
    assert false[60.0] / runs <= level + 2 * np.sqrt(level * (1 - level) / runs)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1), st.floats(0, 30)), min_size=1, max_size=60))
def test_a_run_counts_as_the_mean_of_its_values_and_none_is_lost(sent: list[tuple[int, float, float]]) -> None:
    stream, now, counted = Stream(0.5), 0.0, dict[int, list[tuple[float, list[float]]]]()
    for client, value, gap in sent:
        now += gap
        stream.observe(value, unit=str(client), now=now, window=60)
        runs = counted.setdefault(client, [])
        if not runs or now >= runs[-1][0] + 60:
            runs.append((now, []))
        runs[-1][1].append(value)
    assert stream.observed == len(sent)
    assert stream.mean == pytest.approx(np.mean([value for _, value, _ in sent]))
    stream.close(now + 60)
    means = [float(np.mean(values)) for runs in counted.values() for _, values in runs]
    assert (stream.seen, len(stream.runs)) == (len(means), 0)
    assert stream.total == pytest.approx(sum(means), abs=1e-9)


def test_the_memory_of_open_runs_is_bounded() -> None:
    stream = Stream(0.5)
    for i in range(MOST_RUNS + 500):
        stream.observe(1.0, unit=f"client {i}", now=0.0, window=60)
    assert len(stream.runs) == MOST_RUNS + 1  # one for all further clients
    stream.close(60.0)
    assert (stream.seen, stream.observed) == (MOST_RUNS + 1, MOST_RUNS + 500)


@pytest.mark.parametrize(
    ("window", "condition"), [(0.0, "if requests are independent"), (60.0, "clients or groups, or 60 s apart, are")]
)
def test_every_alarm_states_its_condition(window: float, condition: str) -> None:
    seconds = iter(range(100_000))
    monitor = DriftMonitor(FINE, window=window, clock=lambda: next(seconds))
    for i in range(200):
        monitor.observe("high", same=False, predicted=300, counted=500, unit=str(i))
    assert len(alarms(monitor)) == 3
    assert all(condition in alarm and "probability 5% at most" in alarm for alarm in alarms(monitor))
    assert condition in str(monitor.state()["note"])


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
    with pytest.raises(BadInput, match="window"):
        DriftMonitor(FINE, window=-1)
    for window in (0.0, 60.0):
        with pytest.raises(BadInput, match="monitored value"):
            Stream(0.5).observe(1.5, unit="client", window=window)
