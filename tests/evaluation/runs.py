"""Run a log in tests, and compare two logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from stakes.data.sample import Sample
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.runner import Run, RunOptions, run

GRID = (32, 96, 304)


def go(model: Any, samples: Sequence[Sample], log: Path, grid: Sequence[int] = GRID, **more: Any) -> Run:
    setting = more.pop("setting", Setting())
    options = RunOptions(batch_size=8, **more)
    return run(model, samples, [[budget] * len(samples) for budget in grid], setting, log, options)


def facts(log: Path) -> list[tuple[Any, ...]]:
    """What a log says, whatever the order and the time taken; a line twice stays twice."""
    return sorted(tuple(asdict(replace(outcome, ms=0.0)).items()) for outcome in read_outcomes(log))
