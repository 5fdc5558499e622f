"""A known image keeps its size: while the plan allows it and the allowance pays, and never beyond the hard total."""

import random
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st
from tests.budgets.controllers import MEAN, PAGE, policy

from stakes.budgets.controller import RETURN, Controller, GrantedSize, KnownImage, share


class Client:
    """Asks for images by name, and remembers what each was granted."""

    def __init__(self, controller: Controller) -> None:
        self.controller, self.sizes = controller, dict[tuple[str, int], GrantedSize]()

    def ask(self, tier: str, *pages: int, native: int = PAGE) -> tuple[int, ...]:
        known = [KnownImage(random.Random(page).random(), self.sizes.get((tier, page))) for page in pages]
        grant = self.controller.grant(tier, [native] * len(pages), None, known)
        self.sizes |= {(tier, page): size for page, size in zip(pages, grant.sizes, strict=True)}
        self.controller.settle(grant, grant.budgets)
        return grant.budgets


def mixed_tier(controller: Controller) -> str:
    """The tier that gets two budgets at the moment."""
    state = controller.state()
    return next(name for name in ("high", "low") if state[f"budget_{name}"] % 16)


def test_a_repeated_image_gets_one_size_where_the_optimum_mixes_two() -> None:
    client, dice = Client(Controller.from_policy(policy(mean_budget=250))), random.Random(3)
    tier = mixed_tier(client.controller)
    again, others = set(), set()
    for page in range(1, 400):
        others.add(client.ask(tier, page))
        if page % 40 == 0:
            again.add(client.ask(tier, 0))
        client.ask(dice.choice(("high", "low")), 1000 + page)
    assert len(others) > 1
    assert len(again) == 1


def test_images_that_are_not_known_still_get_the_two_in_turn() -> None:
    controller = Controller.from_policy(policy(mean_budget=250))
    tier = mixed_tier(controller)
    assert len({controller.grant(tier, [PAGE]).budgets for _ in range(20)}) > 1


def test_a_cut_size_stays_until_the_allowance_pays_for_more_many_times() -> None:
    """Without that, what three requests leave over would enlarge the fourth."""
    client = Client(Controller.from_policy(policy(mean_budget=300, burst=2000)))
    while client.ask("high", 0)[0] > 300:
        pass
    assert {client.ask("high", 0)[0] for _ in range(50)} == {288}
    left = client.controller.state()["allowance"]
    while (tokens := client.ask("high", 0)[0]) == 288:
        left = client.controller.state()["allowance"]
    assert RETURN * (tokens - 300) <= left < RETURN * (tokens - 300) + 12


def test_a_size_is_dropped_when_the_plan_has_moved_away_from_it() -> None:
    client = Client(Controller.from_policy(policy(mean_budget=400)))
    first = client.ask("low", 0)
    for page in range(1, 3000):  # nothing but highs: low gives way
        client.ask("high", page)
    assert client.controller.state()["budget_low"] < first[0]
    assert client.ask("low", 0) < first


def test_a_kept_size_is_not_changed_by_new_images_beside_it() -> None:
    client = Client(Controller.from_policy(policy()))
    first = client.ask("high", 0)
    known = [KnownImage(0.5, client.sizes["high", 0]), KnownImage(0.5)]
    assert client.controller.grant("high", [PAGE, 40], None, known).budgets == (*first, 40)
    assert share([576, 576], [PAGE, 40], [True, False]) == [576, 40]
    assert share([576, 576], [PAGE, 40]) == [1112, 40]


def test_a_grant_tells_when_a_size_was_kept_that_others_would_not_get() -> None:
    controller = Controller.from_policy(policy())
    size = controller.grant("high", [PAGE], None, [KnownImage(0.1)]).sizes[0]
    kept = controller.grant("low", [PAGE], None, [KnownImage(0.1, size)])
    assert (kept.budgets, kept.sizes[0]) == ((size.budget,), size)
    assert kept.reason == "size kept from an earlier request"
    assert controller.grant("high", [PAGE], None, [KnownImage(0.1, size)]).reason == ""
    assert controller.state()["images_kept"] == 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["high", "low"]), st.lists(st.integers(0, 8), min_size=1, max_size=4), st.booleans()),
        max_size=60,
    ),
    st.integers(0, 3000),
)
def test_the_hard_total_holds_whatever_is_known(requests: list[tuple[str, list[int], bool]], burst: int) -> None:
    controller = Controller.from_policy(policy(), burst)
    sizes: dict[int, GrantedSize] = {}
    taken: list[int] = []
    for tier, pages, settled in requests:
        known = [KnownImage(page / 9, sizes.get(page)) for page in pages]
        grant = controller.grant(tier, [200 * (page + 1) for page in pages], None, known)
        sizes |= dict(zip(pages, grant.sizes, strict=True))
        if settled:
            controller.settle(grant, grant.budgets)
        taken += grant.budgets
        assert all(budget <= 200 * (page + 1) for page, budget in zip(pages, grant.budgets, strict=True))
    assert all(total <= MEAN * n + burst for n, total in enumerate(accumulate(taken), 1))
