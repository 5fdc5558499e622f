"""Bets against the best choice lose on average, whatever the sizes of the documents; and units are random."""

from itertools import product

import numpy as np
import pytest
from benchmarks.adaptive_sizes import CHEAP, COSTS, HIGH_COST, book
from benchmarks.replay import replay
from hypothesis import given, settings
from hypothesis import strategies as st

from stakes.calibration.adaptive.evidence import BET_SIZES, Candidates, Wealth
from stakes.calibration.adaptive.sampler import AdaptiveSampling, sample_adaptively
from stakes.calibration.adaptive.units import DocumentSlices, form_units, leveled_curves
from stakes.calibration.by_document import ByDocument
from stakes.calibration.estimators import Terms
from stakes.errors import BadInput

REVERSED = [(CHEAP, 60, None), (HIGH_COST, 600, 15)]  # 120 pages of one question, 15 of 40 + 40 that want other budgets


@st.composite
def unfair(draw: st.DrawFn) -> tuple[list[int], list[tuple[float, float]]]:
    """Documents' sizes, and how likely each is wrong at A only and at B only; over all questions A is no worse."""
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    chance = st.floats(0, 0.5)
    pairs = draw(st.lists(st.tuples(chance, chance), min_size=len(sizes), max_size=len(sizes)))
    worse = sum(n * (a - b) for n, (a, b) in zip(sizes, pairs, strict=True))
    return sizes, [(b, a) for a, b in pairs] if worse > 0 else pairs


@given(unfair())
@settings(max_examples=40, deadline=None)
def test_bets_against_the_best_never_win_on_average_whatever_the_sizes(case: tuple[list[int], list]) -> None:  # type: ignore[type-arg]
    # exactly, by adding up everything that can happen on one unit; sizes up to 40, a question of each document asked
    sizes, chances = case
    names = tuple(f"{d}#{turn}" for turn in (0, 1) for d in range(len(sizes)))
    asked = np.repeat([1] * len(sizes) + [n - 1 for n in sizes], 2).reshape(-1, 2).astype(np.int64)
    table = ByDocument(names, (32, 64), {"t": 0 * asked}, {"t": asked})
    slices = DocumentSlices.of(table, [name[0] for name in names], ["t"])
    choices = Candidates.of(Terms({"t": 1.0}, {"t": sum(sizes)}, 64 * sum(sizes)), (32, 64))
    mean = np.zeros(len(BET_SIZES))
    for happens in product(range(3), repeat=len(sizes)):
        likely, wrong = 1.0, 0 * asked
        for d, what in enumerate(happens):
            only_a, only_b = chances[d]
            likely *= (only_a, only_b, 1 - only_a - only_b)[what]
            wrong[d] = [(1, 0), (0, 1), (0, 0)][what]
        wealth = Wealth(choices, slices)
        wealth.update(range(len(sizes)), {"t": wrong}, {"t": [0, 1]}, leader=1)
        mean += likely * np.exp(wealth.log_wealth[0])
        assert (wealth.log_wealth[1] == 0).all()  # nobody bets against the leader
    assert (mean <= 1 + 1e-9).all()


def test_what_is_best_for_all_questions_survives_many_small_pages_that_want_another() -> None:
    rng = np.random.default_rng(0)
    for _ in range(4):
        table, owners = book(REVERSED, rng)
        on = Terms(COSTS, table.counts, 304 * sum(table.counts.values()))
        found = sample_adaptively(
            table, on, replay(table), AdaptiveSampling(estimator="raw", max_passes=2000), owners=owners
        )
        assert (576, 32) in found.remaining  # the small pages alone would rule it out
        assert found.budgets == {"high": 576, "low": 32}


def test_every_unit_gets_its_share_of_small_and_of_large_documents() -> None:
    table, owners = book(REVERSED, np.random.default_rng(1))
    slices = DocumentSlices.of(table, owners, COSTS)
    units, new = form_units(table.documents, slices)
    assert sorted(row for unit in units for row in unit) == list(range(len(table)))
    first = units[:new]
    assert {len(unit) for unit in first} <= {1, 2}  # 135 documents, of which 75 have a question of either tier
    assert {owners[row] for unit in first for row in unit} == set(owners)
    assert sum(len(unit) for unit in first) == len(set(owners))
    large = [at for at, unit in enumerate(first) if any(slices.whole["high"][row] == 40 for row in unit)]
    assert len(large) == 15
    assert min(large) < new / 3 < 2 * new / 3 < max(large)  # neither first nor last


def test_a_document_counts_by_its_questions_however_many_were_asked() -> None:
    wrong, asked = np.array([[1, 0], [0, 0], [0, 0]]), np.array([[1, 1], [0, 0], [1, 1]])
    table = ByDocument(("a#0", "a#1", "b#0"), (32, 64), {"t": wrong}, {"t": asked})
    whole = ByDocument(table.documents, table.budgets, {"t": 0 * wrong}, {"t": np.array([[1, 1], [2, 2], [1, 1]])})
    curve = leveled_curves(table, DocumentSlices.of(whole, ["a", "a", "b"], ["t"]))["t"]
    assert curve.errors == (0.75, 0.0)
    assert curve.counts == (2, 2)  # (3 + 1)² / (9 + 1) = 1.6


def test_a_first_slice_must_have_every_tier_of_its_document() -> None:
    tables = {"high": np.array([[1], [0], [1]]), "low": np.array([[0], [1], [1]])}
    table = ByDocument(("a#0", "a#1", "b#0"), (32,), tables, tables)
    with pytest.raises(BadInput, match="'a#0' is a first slice without"):
        form_units(table.documents, DocumentSlices.of(table, ["a", "a", "b"], ["high", "low"]))
