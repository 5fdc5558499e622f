"""Credit moves between processes and their ledger; whatever is killed, no prefix of the images exceeds the total."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stakes.budgets.allowance import Allowance, MemoryLedger

MEAN = 100

_ACTION = st.one_of(
    st.tuples(st.just("grant"), st.integers(0, 2), st.integers(1, 900)),
    st.tuples(st.just("settle"), st.integers(0, 2), st.floats(0, 1)),
    st.tuples(st.just("cancel"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("kill"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("close"), st.integers(0, 2), st.just(0)),
)


class Process:
    """One process: its allowance and its outstanding budgets, by their place in the order of admission."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self.allowance = Allowance(ledger)
        self.outstanding: list[tuple[int, int]] = []


@given(st.integers(0, 3000), st.lists(_ACTION, max_size=120))
@settings(max_examples=300)
def test_no_prefix_over_three_processes_that_are_killed_at_any_time_exceeds_the_total(
    burst: int, actions: list[tuple[str, int, float]]
) -> None:
    ledger = MemoryLedger(burst)
    fleet = [Process(ledger) for _ in range(3)]
    taken: list[int | None] = []  # by order of admission: the budget, then what was spent; None where cancelled
    for kind, number, value in actions:
        process = fleet[number]
        if kind == "grant":
            process.allowance.rebalance(int(value) - MEAN)
            (budget,) = process.allowance.cut([int(value)], MEAN)
            process.allowance.reserve([budget], MEAN)
            process.outstanding.append((len(taken), budget))
            taken.append(budget)
        elif kind in ("kill", "close"):
            if kind == "close" and not process.outstanding:
                process.allowance.close()
            fleet[number] = Process(ledger)  # what was outstanding was sent and counts in full
        elif process.outstanding:
            place, budget = process.outstanding.pop()
            if kind == "cancel":
                process.allowance.reserve([budget], MEAN, undo=True)
                taken[place] = None
            else:
                taken[place] = int(value * budget)
                process.allowance.settle([budget], MEAN, int(value * budget))
        total = images = 0
        for tokens in taken:
            if tokens is not None:
                total, images = total + tokens, images + 1
            assert total <= MEAN * images + burst


@given(st.lists(st.integers(-300, 900), min_size=1))
def test_a_process_holds_what_the_next_request_may_need_and_no_more(wanted: list[int]) -> None:
    ledger = MemoryLedger(8000)
    allowance = Allowance(ledger)
    for tokens in wanted:
        allowance.rebalance(tokens)
        assert allowance.in_hand == max(0, tokens)
        allowance.reserve([20], MEAN)
        allowance.settle([20], MEAN, 20)  # saves 80 tokens each time
    assert ledger.credit + allowance.in_hand == 8000 + 80 * len(wanted)


def test_savings_return_to_the_ledger() -> None:
    ledger = MemoryLedger(800)
    allowance = Allowance(ledger)
    for _ in range(1000):
        allowance.rebalance(0)
        allowance.reserve([10], MEAN)
        allowance.settle([10], MEAN, 10)
    allowance.close()
    assert ledger.credit == 800 + 1000 * 90


def test_a_smaller_burst_is_paid_back_before_anything_is_withdrawn() -> None:
    ledger = MemoryLedger(1000)
    assert ledger.withdraw(900) == 900
    ledger.burst = 100
    assert ledger.credit == -800
    assert ledger.withdraw(50) == 0
    ledger.deposit(900)
    assert ledger.withdraw(500) == 100
