"""What does legibility alone say on real pages? Three sets and a mixed workload, beside the published VLM figures.

    stakes reproduce legibility --data DIR -o docs/results/legibility.json

Nothing is asked of a VLM: an answer counts as lost when the print at its place no longer reads the same
(``models.ocr``). So the curves bound what a reader can do, and show how much of the published effect is physical.
The three sets share their readings; stop it anywhere and start it again. Results: docs/legibility.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import PAPER_MEAN
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.calibration.holdout import HeldOut, held_out
from stakes.evaluation.answerable import answerable
from stakes.evaluation.fingerprint import save_json
from stakes.evaluation.progress import Progress
from stakes.experiments.legibility.arms import RealArms, real_arms
from stakes.experiments.legibility.datasets import SETS, SetResult, measure_set, real_set
from stakes.experiments.study import Study
from stakes.legibility.model import BASIS, Legibility

MIXED_TIERS = {"sroie": "high", "docvqa": "medium", "chartqa": "low"}
MIXED_COSTS = {"high": 5.0, "medium": 3.0, "low": 1.0}
MIXED_BUDGETS = {"high": 512, "medium": 256, "low": 96}


@dataclass(frozen=True)
class Mixed:
    """Receipts, forms and charts in one stream, tiers by task, the same number of questions of each."""

    each: int
    arms: RealArms
    chosen: dict[str, int]
    """What the curves say is best at a mean of 304."""
    held_out: HeldOut

    def record(self) -> dict[str, object]:
        """As JSON."""
        return {**asdict(self), "arms": self.arms.record()}


@dataclass(frozen=True)
class Findings:
    """All of it."""

    identity: dict[str, str]
    sets: tuple[SetResult, ...]
    mixed: Mixed | None

    def record(self) -> dict[str, object]:
        """As JSON; no text of a page, question or answer, and no timings."""
        return {
            "basis": BASIS,
            "note": "legibility, not a VLM's error",
            "model": self.identity,
            "sets": {found.name: found.record() for found in self.sets},
            "mixed": None if self.mixed is None else self.mixed.record(),
        }


def run_legibility(
    folder: Path,
    out: Path,
    *,
    sets: Sequence[str] = SETS,
    model: Legibility | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> Findings:
    """Measure every set in ``folder``; answers are logged in ``out`` and a later call goes on there."""
    model = model or Legibility()
    study = Study(model, BASIS, out, mechanism="resolution", progress=None)
    found = []
    for name in sets:
        asked = real_set(folder, name)
        kept, apart = answerable(model, asked.asked)
        save_json(out / f"{name}.apart.json", {"asked": len(kept), "too_small": list(asked.small), **apart.record()})
        told = replace(study, progress=None if progress is None else progress(name))
        found.append(measure_set(told, model, name, kept, apart, len(asked.small)))
    mixed = None
    if set(MIXED_TIERS) <= set(sets):
        told = replace(study, progress=None if progress is None else progress("mixed"))
        mixed = mixed_workload(told, model, found)
    return Findings(model.identity(), tuple(found), mixed)


def mixed_workload(study: Study, model: Legibility, sets: Sequence[SetResult]) -> Mixed:
    """The first questions of each set, as many as the smallest has; the arms, and a choice from the curves."""
    each = min(len(found.kept) for found in sets)
    taken = {one.id: MIXED_TIERS[found.name] for found in sets for one in found.kept[:each]}
    asked = [replace(one, tier=taken[one.id]) for found in sets for one in found.kept[:each]]
    outcomes = [
        replace(outcome, tier=taken[outcome.sample], run="mixed")
        for found in sets
        for outcome in found.outcomes
        if outcome.sample in taken
    ]
    curves = curves_from_outcomes(outcomes)
    counts = dict.fromkeys(MIXED_COSTS, each)
    best = allocate({tier: curves[tier] for tier in MIXED_COSTS}, MIXED_COSTS, counts, PAPER_MEAN * 3 * each)
    return Mixed(
        each=each,
        arms=real_arms(study, model, "mixed", asked, MIXED_BUDGETS, MIXED_COSTS),
        chosen=dict(best.budgets),
        held_out=held_out(outcomes, MIXED_COSTS, PAPER_MEAN),
    )
