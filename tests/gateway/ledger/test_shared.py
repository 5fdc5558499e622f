"""Many processes on one ledger: one total, one mix of tiers and one share for each key, whatever fails."""

import logging
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budgets.controllers import MEAN, PAGE, policy, spend
from tests.gateway.ledger.stores import MemoryStore

from stakes.budgets.allowance import Allowance
from stakes.budgets.controller import Controller
from stakes.gateway.accounts import Accounts
from stakes.gateway.ledger.shared import SharedLedger
from stakes.gateway.monitoring.logs import LOGGER

BURST = 32 * MEAN


def controller_of(ledger: SharedLedger) -> Controller:
    return Controller.from_policy(policy(), ledger.burst, ledger=lambda _: ledger.common)


def fleet(store: MemoryStore, count: int, local: bool = False) -> tuple[list[SharedLedger], list[Controller]]:
    ledgers = [store.ledger(BURST, local) for _ in range(count)]
    return ledgers, [controller_of(one) for one in ledgers]


_STEP = st.tuples(
    st.sampled_from(["image"] * 8 + ["exchange"] * 4 + ["tick"] * 3 + ["kill", "failover", "cut", "lose", "forget"]),
    st.integers(0, 2),
    st.integers(1, 900),
)


@given(st.integers(0, 3000), st.sampled_from([0.0, 2.0]), st.lists(_STEP, max_size=150))
@settings(max_examples=150, deadline=None)
def test_no_prefix_over_the_fleet_exceeds_the_total(
    burst: int, loss_s: float, steps: list[tuple[str, int, int]]
) -> None:
    store = MemoryStore(loss_s)
    processes = [Allowance(store.ledger(burst).common) for _ in range(3)]
    ledgers = [one.ledger._ledger for one in processes]  # type: ignore[attr-defined]
    spent = 0
    for kind, number, value in steps:
        if kind == "image":
            process = processes[number]
            process.rebalance(value - 100)
            (budget,) = process.cut([value], 100)
            process.reserve([budget], 100)
            process.settle([budget], 100, budget)
            spent += budget - 100
            assert spent <= burst
        elif kind == "exchange":
            ledgers[number].exchange()
        elif kind == "tick":
            store.now += value / 400
        elif kind == "kill":
            store.reachable = store.replies = True
            ledgers[number] = store.ledger(burst)
            processes[number] = Allowance(ledgers[number].common)
        elif kind == "failover":
            store.fail_over(number + 1)
        elif kind == "cut":
            store.reachable = not store.reachable
        elif kind == "lose":
            store.replies = not store.replies
        elif store.state["processes"]:
            store.now += 0 if value % 2 else 1e6  # a clock that jumps: all others are forgotten
            ledgers[number].exchange()


@pytest.mark.parametrize("loss_s", [0.0, 2.0])
def test_a_busy_fleet_uses_its_budget(loss_s: float) -> None:
    """Four processes with unlike traffic: all of the high-cost requests come to the first two."""
    store, dice = MemoryStore(loss_s), random.Random(5)
    ledgers, controllers = fleet(store, 4)
    spent = images = 0
    for _ in range(8000):
        number = dice.randrange(4)
        spent += spend(controllers[number], "high" if number < 2 else "low", PAGE)
        images += 1
        assert spent <= MEAN * images + BURST
        store.now += 0.01
        if images % 25 == 0:
            for ledger in ledgers:
                ledger.exchange()
    assert spent >= 0.97 * (MEAN * images + BURST)


def test_every_process_follows_the_mix_of_the_whole_fleet() -> None:
    store = MemoryStore()
    ledgers, controllers = fleet(store, 2)
    for _ in range(600):
        spend(controllers[0], "high")
        spend(controllers[1], "low")
        store.run(*ledgers, seconds=0.25)
    one, other = (controller.state() for controller in controllers)
    assert one["mix_high"] == pytest.approx(0.5, abs=0.01)
    assert other["mix_high"] == pytest.approx(0.5, abs=0.01)
    alone = Controller.from_policy(policy(), BURST)
    for n in range(1200):
        spend(alone, ("high", "low")[n % 2])
    assert one["budget_high"] == pytest.approx(alone.state()["budget_high"], rel=0.05)
    joined = store.ledger(BURST)
    late = controller_of(joined)
    joined.exchange()
    assert late.state()["mix_high"] == pytest.approx(0.5, abs=0.01)  # a new process begins with what the fleet knows


def test_four_processes_spend_like_one_and_not_like_four() -> None:
    store = MemoryStore()
    ledgers, controllers = fleet(store, 4)
    alone = Controller.from_policy(policy(), BURST)
    ahead, ahead_alone = [0], [0]
    for n in range(400):
        ahead.append(ahead[-1] + spend(controllers[n % 4], "high") - MEAN)
        ahead_alone.append(ahead_alone[-1] + spend(alone, "high") - MEAN)
        if n % 8 == 0:
            store.run(*ledgers, seconds=0.25)
    assert 0.7 * max(ahead_alone) < max(ahead) < 1.1 * max(ahead_alone)  # 3072 and 3744 tokens, of a burst of 9728
    assert 0.9 * alone.state()["allowance"] < controllers[0].state()["allowance"] < 1.1 * alone.state()["allowance"]


def test_a_share_is_one_share_over_all_processes() -> None:
    store = MemoryStore()
    ledgers, _ = fleet(store, 3)
    keys = [Accounts(policy(), ledger.common).of("team", 0.25) for ledger in ledgers]
    spent = 0
    for n in range(300):
        spent += spend(keys[n % 3], "high")
        store.run(*ledgers, seconds=0.25)
        assert spent - MEAN * (n + 1) <= BURST // 4
    assert spent - MEAN * 300 > BURST // 8
    team = store.state["accounts"]["team"]
    assert team["withdrawn"] - team["deposited"] <= BURST // 4  # leases that are not used included


def test_a_lease_is_used_only_when_it_can_no_longer_be_lost() -> None:
    store = MemoryStore(loss_s=2.0)
    ledger = store.ledger(1000)
    assert ledger.common.withdraw(100) == 0
    store.run(ledger, seconds=1.75)
    assert ledger.common.withdraw(100) == 0
    store.run(ledger, seconds=0.75)
    assert ledger.common.withdraw(100) == 100


def test_a_killed_process_costs_its_lease_and_a_closed_one_nothing() -> None:
    store = MemoryStore()
    first, second = store.ledger(1000), store.ledger(1000)
    held = first.common.hand.tokens
    assert held > 0
    second.close()
    assert store.credit == -held
    store.now += 100
    third = store.ledger(1000)  # the first is forgotten
    assert list(store.state["processes"]) == [third._name]
    assert store.credit == -held - third.common.hand.tokens
    assert store.state["all"]["held"] == third.common.hand.tokens


def test_what_a_forgotten_process_deposited_is_not_entered_again() -> None:
    store = MemoryStore()
    ledger = store.ledger(1000)
    for _ in range(3):
        ledger.common.deposit(5000)  # savings
        ledger.exchange()
        left = store.credit + ledger.common.hand.tokens
        store.state["processes"].clear()
        ledger.exchange()
        assert store.credit + ledger.common.hand.tokens == left


def test_without_the_store_the_lease_is_used_up_then_images_get_their_mean(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    (ledger,), (controller,) = fleet(store, 1)
    for _ in range(4):
        spend(controller, "high")
        ledger.exchange()
    store.reachable, held = False, ledger.common.hand.tokens
    with caplog.at_level(logging.WARNING, LOGGER):
        assert not ledger.exchange()
        assert not ledger.exchange()
    assert len(caplog.records) == 1
    assert "images get at most the mean, and soon the smallest budgets" in caplog.text
    budgets = [spend(controller, "high") for _ in range(200)]
    assert max(budgets) > MEAN
    assert MEAN * 200 <= sum(budgets) <= MEAN * 200 + held + MEAN
    low = [spend(controller, "low") for _ in range(10)]
    assert max(low) < MEAN // 2  # the low-cost tier saves
    assert controller.grant("high", [9 * PAGE], wanted=9 * PAGE).budgets[0] < 2 * PAGE  # native sizes are not to be had
    store.reachable = True
    assert ledger.exchange()
    assert ledger.reachable


def test_local_goes_on_with_a_burst_of_its_own_and_pays_it_back(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    ledgers, controllers = fleet(store, 3, local=True)
    store.reachable = False
    with caplog.at_level(logging.ERROR, LOGGER):
        for ledger in ledgers:
            ledger.exchange()
    assert caplog.text.count("THE FLEET MAY EXCEED ITS TOTAL") == 3
    spent = sum(spend(controllers[n % 3], "high") for n in range(300))
    assert BURST < spent - 300 * MEAN <= 4 * BURST
    store.reachable = True
    for ledger in ledgers:
        ledger.exchange()
    assert store.credit + BURST < 0
    assert all(ledger.common.withdraw(1000) < 1000 for ledger in ledgers)
    saved = [spend(controllers[n % 3], "low") for n in range(600)]
    assert max(saved[50:]) < MEAN  # until the fleet is within its total again


def test_an_emptied_ledger_charges_what_living_processes_took(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    ledger = store.ledger(1000)
    taken = ledger.common.withdraw(50)
    left = store.credit
    store.state = {}
    ledger.exchange()
    assert taken == 50
    assert "the ledger was emptied or is another one" in caplog.text
    assert store.credit <= left


def test_more_lost_than_promised_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()  # promises to lose nothing
    ledger = store.ledger(1000)
    before = store.state["processes"][ledger._name]["accounts"][""]
    ledger.common.withdraw(10)
    before["withdrawn"] -= 40
    ledger.exchange()
    assert "the ledger lost more than the last 0 s of writes, so that the total may be exceeded" in caplog.text
    assert ledger.state()["ledger_lost"] == 40
    assert before["withdrawn"] >= ledger.common.hand.usable  # and entered again
