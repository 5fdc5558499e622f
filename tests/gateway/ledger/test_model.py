"""The protocol's guarantee, searched exhaustively: no order of crashes, lost messages and lost writes breaks it.

``python -m tests.gateway.ledger.model_search`` searches wider bounds.
"""

from typing import Any

import pytest
from tests.gateway.ledger.model import Left, Rules
from tests.gateway.ledger.model_search import search


@pytest.mark.parametrize(
    ("processes", "left", "states"),
    [
        (3, Left(crashes=1, failovers=1), 30_000),
        (3, Left(saves=1, crashes=1), 10_000),
        (3, Left(crashes=1, forgotten=1), 9_000),
        (2, Left(crashes=1, failovers=2), 15_000),
        (2, Left(failovers=1, late=1), 9_000),
    ],
)
def test_the_fleet_never_spends_more_than_the_burst_beyond_the_mean(processes: int, left: Left, states: int) -> None:
    seen, way = search(Rules(burst=1, writes=2), processes, left)
    assert way == []
    assert seen > states  # the search was not cut short


@pytest.mark.parametrize("broken", [{"wait": 0}, {"restart_wait": False}, {"notice_loss": False}])
def test_every_rule_is_needed(broken: dict[str, Any]) -> None:
    _, way = search(Rules(burst=1, writes=2)._replace(**broken), 2, Left(failovers=2))
    assert "failover" in way
    assert way[-1].endswith("spends")
