"""The solver equals brute force: ties when enumerated, the optimum and an honest gap when HiGHS solves it."""

import itertools
import math
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stakes.budgets import solver
from stakes.budgets.allocate import best_mixture
from stakes.budgets.hull import ONE, TIE_LOSS, Menu, lower_hull, relax, undominated
from stakes.budgets.solver import Solution, exchange, solve

RANDOMS = st.randoms(use_true_random=True)  # Hypothesis draws the seed, which is faster than drawing every number


def menus(rng: random.Random, tiers: int = 5, points: int = 5) -> list[Menu]:
    """Undominated menus: losses and tokens from small sets collide often, so that ties of every level occur.

    A third of a tie as the step between losses puts choices exactly on the edge of the tie.
    """
    step = rng.choice([ONE // 64, ONE // 64 + 1, TIE_LOSS // 3, 1])
    straight = rng.random() < 0.5
    made = []
    for _ in range(rng.randint(1, tiers)):
        budgets = sorted(rng.sample(range(1, 10), rng.randint(1, points)))
        count = rng.randint(1, 3)
        if straight:
            losses = [step * count * (10 - b) + rng.randint(0, 2) for b in budgets]
        else:
            losses = [step * rng.randint(0, 6) for _ in budgets]
        tokens, spreads = [count * b for b in budgets], [count * b * b for b in budgets]
        menu = Menu(tuple(budgets), tuple(tokens), tuple(losses), tuple(spreads))
        made.append(menu.select(undominated(menu)))
    return made


def total_for(rng: random.Random, menus: Sequence[Menu]) -> int:
    return rng.randint(sum(m.tokens[0] for m in menus), sum(m.tokens[-1] for m in menus) + 2)


def sums(menus: Sequence[Menu], choice: Sequence[int]) -> tuple[int, int, int]:
    picked = list(zip(menus, choice, strict=True))
    return (
        sum(m.tokens[i] for m, i in picked),
        sum(m.losses[i] for m, i in picked),
        sum(m.spreads[i] for m, i in picked),
    )


def brute_force(menus: Sequence[Menu], total: int) -> list[int]:
    fits = []
    for choice in itertools.product(*[range(len(menu.tokens)) for menu in menus]):
        tokens, loss, spread = sums(menus, choice)
        if tokens <= total:
            fits.append((tokens, spread, loss, [-i for i in choice]))
    least = min(fit[2] for fit in fits)
    return [-i for i in min(fit for fit in fits if fit[2] <= least + TIE_LOSS)[3]]


@settings(max_examples=2000)
@given(RANDOMS)
def test_enumeration_equals_brute_force_to_the_last_tie(rng: random.Random) -> None:
    made = menus(rng)
    total = total_for(rng, made)
    assert solve(made, total) == Solution(brute_force(made, total), 0.0)


@settings(max_examples=400, deadline=None)
@given(RANDOMS)
def test_a_large_instance_is_solved_to_the_optimum_and_proven(rng: random.Random) -> None:
    """With nothing enumerated, exchanges, the hulls' bound and HiGHS do the work; ties are not settled then."""
    made = menus(rng)
    total = total_for(rng, made)
    least = sums(made, brute_force(made, total))[1]
    choice, gap = solve(made, total, listed=0)
    tokens, loss, _ = sums(made, choice)
    assert tokens <= total
    assert loss <= least + TIE_LOSS
    assert gap == 0


@settings(max_examples=200, deadline=None)
@given(RANDOMS)
def test_losses_far_below_the_tolerances_of_highs_are_still_distinguished(rng: random.Random) -> None:
    """Losses of 1e-3 to 1e-9 of CWE and tokens up to 350,000: unscaled, HiGHS would stop within 1e-6."""
    made = []
    for _ in range(rng.randint(2, 5)):
        budgets, count = sorted(rng.sample(range(1, 700), rng.randint(2, 5))), rng.randint(1, 500)
        errors = [rng.random() * 10.0 ** -rng.randint(0, 6) for _ in budgets]
        menu = Menu.of(budgets, errors, count, 1e-3)
        made.append(menu.select(undominated(menu)))
    total = total_for(rng, made)
    choice, gap = solve(made, total, listed=0)
    tokens, loss, _ = sums(made, choice)
    assert tokens <= total
    assert gap == 0
    assert loss <= sums(made, brute_force(made, total))[1] + TIE_LOSS


@settings(max_examples=300, deadline=None)
@given(RANDOMS)
def test_what_the_bound_leaves_over_is_enumerated_with_its_ties(rng: random.Random) -> None:
    made = menus(rng)
    total = total_for(rng, made)
    enumerate_all, enumerated = solver._enumerate, []

    def spy(menus: Sequence[Menu], total: int) -> list[int]:
        enumerated.append(enumerate_all(menus, total))
        return enumerated[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "_enumerate", spy)
        choice, _ = solve(made, total, listed=math.prod([len(menu.tokens) for menu in made]) - 1)
    if enumerated:
        assert choice == brute_force(made, total)


@settings(max_examples=100, deadline=None)
@given(RANDOMS)
def test_without_time_for_highs_the_choice_fits_and_its_gap_is_true(rng: random.Random) -> None:
    made = menus(rng, tiers=7)
    total = total_for(rng, made)
    least = sums(made, brute_force(made, total))[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "SECONDS", 0.0)
        choice, gap = solve(made, total, listed=0)
    tokens, loss, _ = sums(made, choice)
    assert tokens <= total
    assert loss - gap * ONE <= least + TIE_LOSS


@pytest.mark.parametrize("answer", [None, np.zeros, np.ones, lambda n: np.full(n, 0.4)])
def test_what_highs_returns_is_summed_up_again_in_whole_numbers(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that does not fit, or is worse, is not taken; the gap then rests on the bound of the hulls."""
    made = [Menu.of([2, 5, 9], [0.9, 0.6 - i / 100, 0.1], 1, 0.1) for i in range(4)]

    def milp(c: np.ndarray, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(x=None if answer is None else answer(c.size), mip_dual_bound=None)

    monkeypatch.setattr("scipy.optimize.milp", milp)
    least = sums(made, solve(made, 22).choice)[1]
    choice, gap = solve(made, 22, listed=0)
    tokens, loss, _ = sums(made, choice)
    assert tokens <= 22
    assert 0 < loss - gap * ONE <= least


@settings(max_examples=200)
@given(RANDOMS)
def test_the_relaxed_optimum_bounds_every_choice(rng: random.Random) -> None:
    made = menus(rng, tiers=4)
    total = total_for(rng, made)
    relaxed = relax(made, total)
    tokens, loss, _ = sums(made, relaxed.choice)
    assert tokens + relaxed.slack == total
    bound = relaxed.bound(made)
    assert bound == loss - relaxed.price * relaxed.slack
    for choice in itertools.product(*[range(len(menu.tokens)) for menu in made]):
        spent, lost, _ = sums(made, choice)
        assert lost + relaxed.price * (spent - total) >= bound - 1e-9 * ONE  # for any total, not only this


def test_the_hull_drops_points_on_or_above_its_segments() -> None:
    menu = Menu((1, 2, 3, 4, 5), (1, 2, 3, 4, 5), (90, 70, 50, 45, 60), (1, 4, 9, 16, 25))
    assert undominated(menu) == [0, 1, 2, 3]
    assert lower_hull(menu) == [0, 2, 3]


def every_exchange(menus: Sequence[Menu], choice: list[int], total: int) -> list[int]:
    """The gains of all exchanges, by trying: a step down of one tier or none, any raise of another that fits."""
    loss, gains = sums(menus, choice)[1], [0]
    for down, up in itertools.product(range(-1, len(menus)), range(len(menus))):
        if down == up or (down >= 0 and choice[down] == 0):
            continue
        for entry in range(choice[up] + 1, len(menus[up].tokens)):
            moved = [entry if t == up else i - (t == down) for t, i in enumerate(choice)]
            tokens, lost, _ = sums(menus, moved)
            if tokens <= total:
                gains.append(loss - lost)
    return gains


@settings(max_examples=500)
@given(RANDOMS)
def test_the_best_exchange_is_found_and_none_pays_at_an_optimum(rng: random.Random) -> None:
    made = menus(rng, tiers=4)
    choice = [rng.randrange(len(menu.tokens)) for menu in made]
    total = sums(made, choice)[0] + rng.randint(0, 3)
    tokens, loss, _ = sums(made, exchange(made, choice, total) or choice)
    assert tokens <= total
    assert sums(made, choice)[1] - loss == max(every_exchange(made, choice, total))
    optimum = brute_force(made, total)
    best = exchange(made, optimum, total)
    assert best is None or sums(made, optimum)[1] - sums(made, best)[1] <= TIE_LOSS


def test_an_exchange_lowers_one_tier_and_raises_another_as_far_as_it_can() -> None:
    menu = Menu((1, 2, 4), (1, 2, 4), (90, 80, 10), (1, 4, 16))
    result = exchange([menu, menu], [1, 1], 5)  # one token left, one freed: enough for 4
    assert result is not None
    assert sorted(result) == [0, 2]
    assert sums([menu, menu], result)[:2] == (5, 100)
    assert exchange([menu], [1], 3) is None  # a tier cannot pay for itself


def test_a_mixture_moves_as_many_samples_as_fit() -> None:
    menu = Menu.of([10, 20], [0.9, 0.1], count=7, share=1.0)
    mixture = best_mixture([menu], [[0]], 7 * 10 + 35)
    assert mixture.splits([menu]) == [{10: 4, 20: 3}]
    assert mixture.tokens == 100
    assert mixture.loss / ONE == pytest.approx((4 * 0.9 + 3 * 0.1) / 7)
    assert best_mixture([menu], [[0]], 1000).splits([menu]) == [{20: 7}]
