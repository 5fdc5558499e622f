import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stakes.budgets.allocate import best_exchange
from stakes.budgets.solver import (
    ONE,
    TIE_LOSS,
    Menu,
    Solution,
    best_mixture,
    lower_hull,
    relax,
    segments,
    solve,
    undominated,
)

RANDOMS = st.randoms(use_true_random=True)  # hypothesis chooses the seed: quicker than to choose every number


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
        made.append(menu.take(undominated(menu)))
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
def test_listing_and_core_equal_brute_force_to_the_last_tie(rng: random.Random) -> None:
    made = menus(rng)
    total = total_for(rng, made)
    truth = brute_force(made, total)
    assert solve(made, segments(made), total) == Solution(truth, 0.0)
    assert solve(made, segments(made), total, listed=0) == Solution(truth, 0.0)


@settings(max_examples=200)
@given(RANDOMS)
def test_a_starved_search_is_feasible_and_its_gap_is_true(rng: random.Random) -> None:
    made = menus(rng, tiers=7)
    total = total_for(rng, made)
    least = sums(made, brute_force(made, total))[1]
    found, gap = solve(made, segments(made), total, listed=0, work=1)
    tokens, loss, _ = sums(made, found)
    assert tokens <= total
    assert loss - gap * ONE <= least + TIE_LOSS
    if gap == 0:
        assert loss <= least + TIE_LOSS


def test_a_starved_search_does_report_a_gap() -> None:
    """Even tokens, an odd rest, and one odd entry that gains too little: the bound cannot be met."""
    even = [
        Menu.of([2 * b for b in range(1, 65, 1 + i % 3)], [1 - b / 70 for b in range(1, 65, 1 + i % 3)], 1, 0.01)
        for i in range(40)
    ]
    odd = Menu.of([1, 2], [0.5, 0.4999], 1, 0.01)
    made = [*even, odd]
    _, gap = solve(made, segments(made), 2000, work=1)
    assert 0 < gap < 1e-3


@settings(max_examples=200)
@given(RANDOMS)
def test_the_relaxed_optimum_bounds_every_choice(rng: random.Random) -> None:
    made = menus(rng, tiers=4)
    total = total_for(rng, made)
    relaxed = relax(made, segments(made), total)
    tokens, loss, _ = sums(made, relaxed.choice)
    assert tokens + relaxed.slack == total
    bound = loss - relaxed.price * relaxed.slack
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
    found = best_exchange(made, choice, total)
    assert (found.gain if found else 0) == max(every_exchange(made, choice, total))
    if found:
        tokens, loss, _ = sums(made, found.apply(choice))
        assert tokens <= total
        assert loss == sums(made, choice)[1] - found.gain
    best = best_exchange(made, brute_force(made, total), total)
    assert best is None or best.gain <= TIE_LOSS


def test_an_exchange_lowers_one_tier_and_raises_another_as_far_as_it_can() -> None:
    menu = Menu((1, 2, 4), (1, 2, 4), (90, 80, 10), (1, 4, 16))
    found = best_exchange([menu, menu], [1, 1], 5)  # one token left, one freed: enough for 4
    assert found is not None
    assert (found.gain, found.entry, abs(found.lowered - found.raised)) == (60, 2, 1)
    assert sums([menu, menu], found.apply([1, 1]))[:2] == (5, 100)
    assert best_exchange([menu], [1], 3) is None  # a tier cannot pay for itself


def test_a_mixture_moves_as_many_samples_as_fit() -> None:
    menu = Menu.of([10, 20], [0.9, 0.1], count=7, share=1.0)
    mixture = best_mixture([menu], [[0]], 7 * 10 + 35)
    assert mixture.splits([menu]) == [{10: 4, 20: 3}]
    assert mixture.tokens == 100
    assert mixture.loss / ONE == pytest.approx((4 * 0.9 + 3 * 0.1) / 7)
    assert best_mixture([menu], [[0]], 1000).splits([menu]) == [{20: 7}]
