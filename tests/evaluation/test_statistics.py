"""Exact tests against the published figures and against scipy; intervals against what they promise."""

import random
import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machine import slowness

from stakes import BadInput, cwe, mcnemar
from stakes.evaluation.statistics import cwe_gain, cwe_sweep, discordant, sign_flip


@pytest.mark.parametrize(
    ("b", "c", "p"), [(54, 4, 3.2e-12), (65, 5, 2.2e-14), (4, 4, 1.0), (17, 1, 1.45e-4), (0, 0, 1)]
)
def test_mcnemar_gives_the_published_p(b: int, c: int, p: float) -> None:
    assert mcnemar(b, c) == pytest.approx(p, rel=0.02)
    assert mcnemar(c, b) == mcnemar(b, c)


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_equals_scipys_exact_binomial(b: int, c: int) -> None:
    from scipy.stats import binomtest

    expected = binomtest(b, b + c).pvalue if b + c else 1.0
    assert mcnemar(b, c) == pytest.approx(expected, rel=1e-6)


def test_discordant_counts_wins_first() -> None:
    got = discordant([0, 0, 1, 1, 0], [1, 1, 0, 1, 0])
    assert (got.b, got.c, got.p) == (2, 1, 1.0)
    assert str(got) == "2:1, p = 1"


@given(st.integers(0, 200), st.integers(0, 200))
def test_with_one_question_per_document_the_sign_flip_test_is_mcnemars(b: int, c: int) -> None:
    assert sign_flip([1] * b + [0] * 3 + [-1] * c) == mcnemar(b, c)
    if b + c:
        one_each = discordant([0] * b + [1] * c, [1] * b + [0] * c, list(range(b + c)))
        assert (one_each.p_by_document, one_each.clustered) == (one_each.p, False)


@given(st.lists(st.integers(-6, 6), max_size=10), st.randoms())
def test_the_sign_flip_test_counts_the_signs_of_few_documents(net: list[int], dice: random.Random) -> None:
    flipped = [abs(sum(s * x for s, x in zip(signs, net, strict=True))) for signs in product((1, -1), repeat=len(net))]
    expected = sum(value >= abs(sum(net)) for value in flipped) / len(flipped)
    assert sign_flip(net) == pytest.approx(expected, rel=1e-9)
    mixed = net + [0] * 2
    dice.shuffle(mixed)
    assert sign_flip(mixed) == pytest.approx(sign_flip(net), rel=1e-9)
    assert sign_flip([-x for x in net]) == pytest.approx(sign_flip(net), rel=1e-9)


def test_thousands_of_documents_are_tested_at_once_and_alike() -> None:
    dice = random.Random(2)
    net = [dice.randint(-6, 6) for _ in range(3000)] + [1] * 40
    variance = sum(x * x for x in net)
    from scipy.special import ndtr

    assert sign_flip(net) == pytest.approx(2 * ndtr(-(abs(sum(net)) - 0.5) / variance**0.5), rel=0.02)
    started = time.perf_counter()
    assert sign_flip([dice.randint(-6, 7) for _ in range(20_000)]) < 1e-6
    assert time.perf_counter() - started < 10 * slowness()


def test_by_document_keeps_its_level_where_mcnemar_does_not() -> None:
    """Sixty pages of up to eight questions that share three quarters of their luck; neither arm is better."""
    dice = np.random.default_rng(4)
    rejected = {"question": 0, "document": 0}
    trials = 1000
    for _ in range(trials):
        sizes = dice.integers(1, 9, 60)
        page = np.repeat(np.arange(60), sizes)
        shared, own = dice.random((2, 60)), dice.random((2, len(page)))
        whole = dice.random(len(page)) < 0.75
        before, after = (np.where(whole, shared[i][page], own[i]) < 0.6 for i in (0, 1))
        found = discordant(before, after, page.tolist())
        rejected["question"] += found.p < 0.05
        rejected["document"] += found.p_by_document < 0.05  # type: ignore[operator]
    assert rejected["question"] / trials > 0.2, "McNemar's p is much too small"
    assert rejected["document"] / trials <= 0.05 + 2 * (0.05 * 0.95 / trials) ** 0.5


def test_discordant_pairs_state_both_p_where_a_document_has_several_questions() -> None:
    found = discordant([0, 0, 0, 0, 1], [1, 1, 1, 1, 0], ["a", "a", "b", "b", "c"])
    assert (found.b, found.c, found.clustered) == (4, 1, True)
    assert found.p_by_document == 0.5
    assert str(found) == "4:1, p = 0.38, by document 0.5"


def test_cwe_at_a_ratio_takes_the_costs_of_that_ratio() -> None:
    costs = {"total": 16.0, "date": 4.0, "other": 1.0}
    tiers = ["total", "date", "other"]
    assert cwe_sweep([1, 0, 1], tiers, costs, [1, 9, 16]) == pytest.approx({1: 1 / 3, 9: 3 / 13, 16: 4 / 21})
    assert cwe_sweep([1, 0, 1], tiers, costs, [16])[16] == cwe([1, 0, 1], [16, 4, 1])


def test_cwe_is_cost_of_the_wrong_over_cost_of_all() -> None:
    assert cwe([1, 0, 1], [5, 5, 1]) == pytest.approx(5 / 11)
    correct, tiers = [0, 1, 1, 0], ["high", "high", "low", "low"]
    assert cwe_sweep(correct, tiers, {"high": 5, "low": 1}, [1, 3]) == pytest.approx({1: 0.5, 3: 0.5})
    assert cwe_sweep([0, 1, 1, 1], tiers, {"high": 5, "low": 1}, [1, 3]) == pytest.approx({1: 1 / 4, 3: 3 / 8})


@given(st.lists(st.tuples(st.booleans(), st.floats(0.1, 10)), min_size=1, max_size=50))
def test_cwe_at_equal_costs_is_the_error_rate(rows: list[tuple[bool, float]]) -> None:
    correct = [right for right, _ in rows]
    assert cwe(correct, [rows[0][1]] * len(rows)) == pytest.approx(1 - np.mean(correct))
    assert 0 <= cwe(correct, [cost for _, cost in rows]) <= 1


def _pairs(n: int, seed: int, gain: float = 0.1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    before = rng.random(n) < 0.6
    after = np.where(rng.random(n) < gain, True, before) & (rng.random(n) > 0.02)
    return before, after, np.where(np.arange(n) % 2, 5.0, 1.0)


def test_gain_is_the_difference_of_two_cwes_with_an_interval_around_it() -> None:
    before, after, costs = _pairs(600, 0)
    gain = cwe_gain(before, after, costs)
    assert gain.value == pytest.approx(cwe(before, costs) - cwe(after, costs))
    assert gain.low < gain.value < gain.high
    assert gain.units == 600
    assert cwe_gain(after, before, costs).value == pytest.approx(-gain.value)


def test_interval_covers_the_truth_about_as_often_as_its_level() -> None:
    rng = np.random.default_rng(5)
    population = _pairs(20_000, 9, gain=0.3)
    truth = cwe(population[0], population[2]) - cwe(population[1], population[2])
    covered = 0
    for trial in range(150):
        rows = rng.integers(0, 20_000, 600)
        before, after, costs = (column[rows] for column in population)
        gain = cwe_gain(before, after, costs, resamples=999, seed=trial)
        covered += gain.low <= truth <= gain.high
    assert 0.90 <= covered / 150 <= 0.99


def test_clustering_by_document_widens_the_interval_when_pages_decide() -> None:
    rng = np.random.default_rng(1)
    page = np.repeat(np.arange(60), 10)
    before = np.repeat(rng.random(60) < 0.5, 10)
    after = before | np.repeat(rng.random(60) < 0.3, 10)
    costs = np.ones(600)
    alone, clustered = cwe_gain(before, after, costs), cwe_gain(before, after, costs, documents=list(page))
    assert clustered.units == 60
    assert clustered.value == pytest.approx(alone.value)
    assert clustered.high - clustered.low > 2 * (alone.high - alone.low)


def test_no_difference_anywhere_gives_a_point_not_a_crash() -> None:
    gain = cwe_gain([1, 0, 1], [1, 0, 1], [5, 5, 1])
    assert (gain.value, gain.low, gain.high) == (0, 0, 0)


def test_ten_thousand_resamples_of_600_pairs_take_under_a_second() -> None:
    before, after, costs = _pairs(600, 0)
    cwe_gain(before, after, costs, resamples=100)  # imports
    started = time.perf_counter()
    cwe_gain(before, after, costs, resamples=10_000)
    assert time.perf_counter() - started < slowness()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mcnemar(-1, 2), "at least 0, not -1:2"),
        (lambda: mcnemar(float("nan"), 3), "at least 0, not nan:3"),  # type: ignore[arg-type]
        (lambda: mcnemar(3, float("inf")), "at least 0, not 3:inf"),  # type: ignore[arg-type]
        (lambda: sign_flip([1, 0.5]), "whole numbers, not"),  # type: ignore[list-item]
        (lambda: cwe([], []), "non-empty list"),
        (lambda: cwe([1, 0], [5]), r"lengths \[1, 2\]"),
        (lambda: cwe([1, 0], [5, -1]), "positive number, not -1"),
        (lambda: cwe([1, 0], [5, float("nan")]), "positive number, not nan"),
        (lambda: cwe([0.5, 1], [1, 1]), "other than 0 and 1"),
        (lambda: cwe_sweep([1], ["low"], {"high": 5}), "tier 'low' has no cost"),
        (lambda: cwe_gain([1, 0], [1, 1], [1, 1], documents=["a", "a"]), "at least two independent units"),
    ],
)
def test_unusable_columns_are_refused(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadInput, match=message):
        call()
