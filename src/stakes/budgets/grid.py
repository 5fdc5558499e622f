"""Which budgets are measured? Those asked for, or the paper's scaled to the mean; what cannot work is said at once.

>>> budgets_to_measure([304, 32, 160], mean_budget=160, floor=None)
[32, 160, 304]
"""

from collections.abc import Sequence

from stakes.budgets.paper import PAPER_GRID, PAPER_MEAN
from stakes.budgets.policy import MOST_TOKENS
from stakes.errors import BadInput


def budgets_to_measure(grid: Sequence[int] | None, mean_budget: int, floor: int | None) -> list[int]:
    """The grid, sorted; refused where no choice from it can keep to the floor and to the mean."""
    if not 1 <= mean_budget <= MOST_TOKENS:
        raise BadInput(f"the mean budget is 1 to {MOST_TOKENS:,} tokens an image, not {mean_budget}")
    check_floor(floor)
    budgets = sorted(set(default_grid(mean_budget) if grid is None else grid))
    if not budgets or budgets[0] < 1:
        raise BadInput(f"a grid needs budgets of at least one token, not {list(grid or ())}")
    permitted = [budget for budget in budgets if budget >= (floor or 1)]
    if not permitted:
        raise BadInput(
            f"the floor of {floor} lies above every budget of the grid (at most {budgets[-1]}); lower it, or give "
            "larger budgets with --grid"
        )
    if permitted[0] > mean_budget:
        held = f" at or above the floor of {floor}" if permitted[0] > budgets[0] else ""
        raise BadInput(
            f"the smallest budget of the grid{held} is {permitted[0]}, above the mean budget of {mean_budget}"
        )
    return budgets


def check_floor(floor: int | None) -> None:
    """A floor is a budget; none permits the whole grid."""
    if floor is not None and floor < 1:
        raise BadInput(f"the floor is at least one token, not {floor}; leave it out to permit every budget")


def default_grid(mean_budget: int) -> tuple[int, ...]:
    """The paper's thirteen budgets, which pair up to twice its mean of 304, scaled to another mean."""
    if mean_budget < 1:
        raise BadInput(f"the mean budget is at least one token an image, not {mean_budget}")
    scaled = {max(1, round(budget * mean_budget / PAPER_MEAN)) for budget in PAPER_GRID}
    return tuple(sorted(scaled))
