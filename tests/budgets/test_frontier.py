"""The pair frontier against the paper's figures and against every pair; break-even; slopes of curves."""

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import Curve
from stakes.budgets.frontier import (
    break_even,
    central_marginal,
    change_ratios,
    format_pays,
    frontier,
    marginals,
    pays_below,
    snap,
    sweep,
)
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.statistics import RATIOS
from stakes.experiments.published import curves as published_curves
from stakes.published import figures

FIGURES: dict[str, Any] = figures()


def published(tier: str, **extra: float) -> Curve:
    errors = {int(b): e for b, e in {**FIGURES["curves_docvqa"][tier], **extra}.items()}
    return Curve(sorted(errors), [errors[b] for b in sorted(errors)], counts=300)


HIGH, LOW = published("high"), published("low")
LOW_384 = published("low", **{"384": 74 / 300})


@pytest.mark.parametrize("low", [LOW, LOW_384])
def test_the_published_optima_at_every_cost_ratio(low: Curve) -> None:
    result = {ratio: tuple(best.budgets.values()) for ratio, best in sweep(HIGH, low, 608).items()}
    assert result == dict(
        zip(RATIOS, [(304, 304), (304, 304), (448, 160), (576, 32), (576, 32), (576, 32)], strict=True)
    )
    assert {r: tuple(pair) for r, pair in FIGURES["frontier_optimum"].items()} == {str(r): p for r, p in result.items()}


def test_the_published_frontier_is_found_pair_by_pair() -> None:
    pairs = {(pair.high, pair.low): pair for pair in frontier(HIGH, LOW, 608)}
    assert list(pairs) == sorted(pairs)
    assert all(high + low == 608 for high, low in pairs)
    for row in FIGURES["frontier"]:
        pair = pairs[row["high"], row["low"]]
        assert (pair.error_high, pair.error_low) == (row["e_high"], row["e_low"])
        for ratio, cwe in row["cwe"].items():
            assert pair.cwe(float(ratio)) == pytest.approx(cwe, abs=0.00101)
    assert (224, 384) not in pairs
    assert (224, 384) in {(pair.high, pair.low) for pair in frontier(HIGH, LOW_384, 608)}


def test_the_published_optimum_changes_at_three_cost_ratios() -> None:
    high, low = published_curves("docvqa").values()  # snapped to k/300
    changes = change_ratios(high, low, 608)
    assert [round(change.ratio, 2) for change in changes] == [2.10, 2.38, 3.72]
    assert [change.ratio for change in changes] == pytest.approx([44 / 21, 50 / 21, 67 / 18])
    ends = [(change.before.high, change.before.low) for change in changes]
    assert [*ends, (changes[-1].after.high, changes[-1].after.low)] == [(304, 304), (384, 224), (448, 160), (576, 32)]
    below = change_ratios(high, low, 608, start=0.01)
    assert below[-3:] == changes
    assert all(change.ratio < 1 for change in below[:-3])


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    budgets = sorted(draw(st.lists(st.integers(1, 20), min_size=1, max_size=8, unique=True)))
    return Curve(budgets, [draw(st.integers(0, 30)) / 30 for _ in budgets], counts=30)


@settings(max_examples=500)
@given(curves(), curves(), st.integers(0, 40), st.integers(1, 3), st.integers(1, 3))
def test_between_changes_the_optimum_stays_and_across_them_it_moves(
    high: Curve, low: Curve, extra: int, n_high: int, n_low: int
) -> None:
    counts = {"high": n_high, "low": n_low}
    total = n_high * high.budgets[0] + n_low * low.budgets[0] + extra
    changes = change_ratios(high, low, total, counts=counts)

    def errors(ratio: float) -> tuple[float, float]:
        best = allocate({"high": high, "low": low}, {"high": ratio, "low": 1}, counts, total)
        return best.errors["high"], best.errors["low"]

    edges = [1.0, *[change.ratio for change in changes], 1e6]
    assert edges == sorted(edges)
    for i, (left, right) in enumerate(itertools.pairwise(edges)):
        assert right - left > 1e-6
        inside = [left + (right - left) * share for share in (1e-3, 0.5, 1 - 1e-3)]
        expected = None
        if changes:
            pair = changes[i].before if i < len(changes) else changes[-1].after
            expected = (pair.error_high, pair.error_low)
        assert len({errors(r) for r in inside}) == 1
        assert expected in (None, errors(inside[0]))


def test_a_total_for_no_pair_is_infeasible() -> None:
    with pytest.raises(InfeasibleBudget, match="at least 64"):
        change_ratios(HIGH, LOW, 63)
    assert frontier(HIGH, LOW, 63) == ()


@pytest.mark.parametrize(
    ("dataset", "n", "ratio"), [("docvqa", 300, 2.82), ("chartqa", 200, 3.60), ("infographicvqa", 200, 0.74)]
)
def test_the_published_break_evens(dataset: str, n: int, ratio: float) -> None:
    arms = {
        a: dict(zip(("high", "low"), e, strict=False)) for a, e in FIGURES["cross_dataset"][dataset]["arms"].items()
    }
    assert (
        round(break_even(arms["uniform"], arms["cost"], n=n), 2)
        == ratio
        == FIGURES["cross_dataset"][dataset]["break_even"]
    )
    by_hand = {a: {t: snap(e, n) for t, e in arms[a].items()} for a in arms}
    assert break_even(by_hand["uniform"], by_hand["cost"]) == pytest.approx(
        break_even(arms["uniform"], arms["cost"], n=n)
    )


def test_llavas_published_break_even_does_not_follow_from_its_counts() -> None:
    arms = {a: dict(zip(("high", "low"), e, strict=False)) for a, e in FIGURES["llava_onevision"]["arms"].items()}
    assert round(break_even(arms["uniform"], arms["cost"], n=300), 2) == 2.81
    assert FIGURES["llava_onevision"]["break_even"] == 2.79 == round(break_even(arms["uniform"], arms["cost"]), 2)


@settings(max_examples=300)
@given(*[st.integers(0, 300)] * 4)
def test_cwe_is_equal_at_break_even_and_the_cost_arm_wins_above_it(hu: int, lu: int, hc: int, lc: int) -> None:
    uniform, cost = {"high": hu / 300, "low": lu / 300}, {"high": hc / 300, "low": lc / 300}
    ratio = break_even(uniform, cost, n=300)

    def gain(r: float) -> float:
        return r * (hu - hc) - (lc - lu)

    below = pays_below(uniform, cost, n=300)
    assert (below is not None) == (hc > hu and lc < lu)
    if below is not None:
        assert ratio == math.inf
        assert gain(below) == pytest.approx(0, abs=1e-9)
        assert gain(below * 0.99) > 0 > gain(below * 1.01)
        assert format_pays(ratio, below) == f"below {below:.2f}"
    elif hc >= hu and lc >= lu:
        assert ratio == math.inf
        assert all(gain(r) <= 0 for r in (1e-9, 1, 1e9))
        assert format_pays(ratio, below) == "never"
    elif hc <= hu and lc <= lu:
        assert ratio == 0
        assert all(gain(r) >= 0 for r in (1e-9, 1, 1e9))
        assert gain(1) > 0
        assert format_pays(ratio, below) == "every r"
    else:
        assert gain(ratio) == pytest.approx(0, abs=1e-9)
        assert gain(ratio * 1.01) > 0 > gain(ratio * 0.99)


def test_tiers_of_unequal_size_are_weighted() -> None:
    uniform, cost = {"high": 0.3, "low": 0.4}, {"high": 0.1, "low": 0.6}
    assert break_even(uniform, cost) == pytest.approx(1)
    assert break_even(uniform, cost, n={"high": 100, "low": 300}) == pytest.approx(3)


def test_an_arm_that_ties_in_high_and_wins_in_low_pays_at_every_ratio() -> None:
    assert break_even({"high": 0.3, "low": 0.4}, {"high": 0.3, "low": 0.2}) == 0
    assert break_even({"high": 0.3, "low": 0.4}, {"high": 0.3, "low": 0.4}) == math.inf


def test_bad_rates_are_named() -> None:
    with pytest.raises(BadInput, match="cost arm's error in tier 'low' is missing"):
        break_even({"high": 0.3, "low": 0.4}, {"high": 0.1})
    with pytest.raises(BadInput, match="uniform arm's error in tier 'high' is nan"):
        break_even({"high": math.nan, "low": 0.4}, {"high": 0.1, "low": 0.2})
    with pytest.raises(BadInput, match="rate of 1.2"):
        snap(1.2, 300)


def test_snapping_undoes_published_rounding() -> None:
    assert [snap(0.373, 300), snap(0.843, 300), snap(0.133, 300)] == [112 / 300, 253 / 300, 40 / 300]


rate_curves = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 20)), min_size=1, max_size=8, unique_by=lambda point: point[0]
).map(lambda points: Curve([b for b, _ in sorted(points)], [e / 20 for _, e in sorted(points)], 20))


@settings(max_examples=60)
@given(rate_curves, rate_curves, st.integers(2, 200), st.integers(1, 4), st.integers(1, 4))
def test_changes_of_the_optimum_are_the_envelope_of_all_pairs(
    high: Curve, low: Curve, total: int, n_high: int, n_low: int
) -> None:
    fits = [
        (n_low * low.error(b), n_high * high.error(a))
        for a, b in itertools.product(high.budgets, low.budgets)
        if n_high * a + n_low * b <= total
    ]
    if not fits:
        with pytest.raises(InfeasibleBudget):
            change_ratios(high, low, total, counts={"high": n_high, "low": n_low})
        return
    changes = change_ratios(high, low, total, counts={"high": n_high, "low": n_low})
    ratios = [1.0, *(change.ratio for change in changes)]
    assert ratios == sorted(ratios)
    for i, change in enumerate(changes):
        end = ratios[i + 2] if i + 2 < len(ratios) else change.ratio + 1
        between = (change.ratio + end) / 2
        best = min(low_loss + between * high_loss for low_loss, high_loss in fits)
        mine = n_low * change.after.error_low + between * n_high * change.after.error_high
        assert mine == pytest.approx(best, abs=1e-9)
        assert n_high * change.after.high + n_low * change.after.low <= total
    pairs = [(a, b) for a, b in itertools.product(high.budgets, low.budgets) if a + b == total]
    assert [(pair.high, pair.low) for pair in frontier(high, low, total)] == pairs


def test_published_marginals_and_their_standard_error() -> None:
    result = published_curves("docvqa")
    high, low = (central_marginal(result[tier], 304) for tier in ("high", "low"))
    assert (-high.per_token, -low.per_token) == pytest.approx((0.00173, 0.00171), abs=5e-6)
    assert high.standard_error == pytest.approx(2e-4, abs=5e-5)


def test_steps_add_up_to_the_whole_fall() -> None:
    curve = Curve([32, 64, 128], [0.9, 0.95, 0.2], 50)
    assert sum(m.change for m in marginals(curve)) == pytest.approx(0.2 - 0.9)


def test_edges_have_no_central_marginal() -> None:
    with pytest.raises(BadInput, match="32 is at the edge"):
        central_marginal(Curve([32, 64], [0.9, 0.8], 10), 32)
