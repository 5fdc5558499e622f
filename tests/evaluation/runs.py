"""How the tests run a log, and what two logs must agree in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.items import Asked
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.runner import Run, run

GRID = (32, 96, 304)


def go(model: Any, asked: Sequence[Asked], log: Path, grid: Sequence[int] = GRID, **more: Any) -> Run:
    setting = more.pop("setting", Setting())
    return run(model, asked, [[budget] * len(asked) for budget in grid], setting, log, batch_size=8, **more)


def facts(log: Path) -> list[tuple[Any, ...]]:
    """What a log says, whatever the order and the time taken; a line twice stays twice."""
    return sorted(tuple(replace(outcome, ms=0.0).__dict__.items()) for outcome in read_outcomes(log))
