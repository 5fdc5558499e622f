"""How does a race ask a real model? In batches of whole lots, each on disk before the next is chosen.

The log is that of any calibration: stopped and started again, a race asks what it had not asked yet and comes to the
same decision; a calibration without ``race`` goes on from the same log and asks the rest.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stakes.calibration.adaptive.race import Raced, race
from stakes.calibration.adaptive.rows import Cells, slices
from stakes.calibration.by_document import ByDocument
from stakes.calibration.estimators.choose import Terms
from stakes.evaluation.batching import Answering
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.items import Asked
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.progress import Progress
from stakes.evaluation.runner import Key, Run, run
from stakes.models.base import VLM


def raced_run(
    model: VLM,
    asked: Sequence[Asked],
    budgets: Sequence[int],
    terms: Terms,
    setting: Setting,
    log: str | Path,
    *,
    estimator: str,
    confidence: float,
    passes: int | None = None,
    progress: Progress | None = None,
    spread: Answering | None = None,
) -> tuple[Run, Raced]:
    """Race the budgets with this model: all outcomes that were asked for, and the decision."""
    place = slices((one.id, one.document, one.tier) for one in asked)
    names = sorted({(one.document, place[one.id]) for one in asked})
    row = {name: i for i, name in enumerate(names)}
    sizes = {tier: np.zeros((len(names), len(budgets)), dtype=np.int64) for tier in terms.costs}
    mine: dict[tuple[int, str], str] = {}
    for one in asked:
        at = row[one.document, place[one.id]]
        sizes[one.tier][at] += 1
        mine[at, one.tier] = one.id
    lanes = [[budget] * len(asked) for budget in budgets]
    found: dict[Key, Outcome] = {}
    last: Run | None = None
    seconds, answered, changed = 0.0, 0, 0

    def ask(rows: Sequence[int], cells: Cells) -> dict[str, NDArray[np.int64]]:
        nonlocal last, seconds, answered, changed
        only = {
            (mine[r, tier], budgets[j])
            for tier, columns in cells.items()
            for r in rows
            if (r, tier) in mine
            for j in columns
        }
        last = run(model, asked, lanes, setting, log, progress=progress, spread=spread, only=only)
        found.update(last.outcomes)
        seconds, answered, changed = seconds + last.seconds, answered + last.answered, changed + last.changed
        wrong = {}
        for tier, columns in cells.items():
            table = np.zeros((len(rows), len(columns)), dtype=np.int64)
            for i, r in enumerate(rows):
                if (r, tier) in mine:
                    table[i] = [not found[mine[r, tier], budgets[j]].correct for j in columns]
            wrong[tier] = table
        return wrong

    table = ByDocument(tuple(f"{d}#{k}" for d, k in names), tuple(budgets), sizes, sizes)
    owners = [document for document, _ in names]
    raced = race(table, terms, ask, estimator=estimator, confidence=confidence, passes=passes, owners=owners)
    assert last is not None
    ordered = {key: found[key] for one in asked for b in budgets if (key := (one.id, b)) in found}
    return replace(last, outcomes=ordered, answered=answered, seconds=seconds, changed=changed), raced
