"""Legibility on real pages: three data sets and a mixed workload, beside the published VLM figures.

    stakes reproduce legibility --data DIR -o docs/results/legibility.json       # --trim: without margins
    stakes reproduce legibility-check --data DIR

No VLM is asked: an answer counts as lost when the text at its location no longer reads as at native size
(``stakes.legibility``). So the curves bound what a reader can do, and show how much of the published effect is
physical. Results: docs/results.md and docs/appendix.md. Readings are cached; an interrupted run can be started again.

    real_pages.py    load one data set; measure its curves, arms and choices
    agreement.py     compare legibility with the answers of a model on synthetic forms
    tables.py        the results as tables beside the published figures
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import PAPER_MEAN
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.calibration.holdout import HeldOut, held_out
from stakes.data.sample import Sample
from stakes.evaluation.fingerprint import save_json
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.progress import Progress
from stakes.evaluation.samples import answerable
from stakes.experiments.legibility.real_pages import SETS, RealArms, SetResult, measure_set, real_arms, real_set
from stakes.experiments.study import Study
from stakes.legibility.answer_locations import read_at
from stakes.legibility.model import BASIS, Legibility
from stakes.legibility.page_cache import as_pixels
from stakes.legibility.text_match import normalize
from stakes.models.base import Request
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fit

MIXED_TIERS = {"sroie": "high", "docvqa": "medium", "chartqa": "low"}
MIXED_COSTS = {"high": 5.0, "medium": 3.0, "low": 1.0}
MIXED_BUDGETS = {"high": 512, "medium": 256, "low": 96}


@dataclass(frozen=True)
class MixedWorkload:
    """Receipts, forms and charts in one stream, tiers by task, ``each`` questions of every task."""

    each: int
    arms: RealArms
    chosen: dict[str, int]
    """The best budgets at a mean of 304, by the curves."""
    held_out: HeldOut


@dataclass(frozen=True)
class LegibilityResults:
    """The results of all sets; ``mixed`` is None where a set is missing."""

    identity: dict[str, str]
    sets: tuple[SetResult, ...]
    mixed: MixedWorkload | None
    trim: bool = False
    """Whether the margins of pages were cut off."""

    def record(self) -> dict[str, object]:
        """As JSON; contains no text of a page, question or answer, and no timings."""
        return {
            "basis": BASIS,
            "note": "legibility, not a VLM's error",
            "model": self.identity,
            **({"trim": True} if self.trim else {}),
            "sets": {result.name: result.record() for result in self.sets},
            "mixed": None if self.mixed is None else asdict(self.mixed),
        }


def run_legibility(
    folder: Path,
    out: Path,
    *,
    sets: Sequence[str] = SETS,
    model: Legibility | None = None,
    progress: Callable[[str], Progress | None] = lambda _: None,
    trim: bool = False,
) -> LegibilityResults:
    """Measure every set in ``folder``. Answers are logged in ``out``, where a later call continues."""
    model = model or Legibility()
    study = Study(model, BASIS, out, mechanism="resolution", progress=None, trim=trim)
    results: list[SetResult] = []
    measured: dict[str, tuple[list[Sample], list[Outcome]]] = {}
    for name in sets:
        large, small = real_set(folder, name, trim)
        samples, excluded = answerable(model, large)
        apart = out / f"{name}{'-trimmed' if trim else ''}.apart.json"
        save_json(apart, {"asked": len(samples), "too_small": small, **excluded.record()})
        set_study = replace(study, progress=progress(name))
        result, outcomes = measure_set(set_study, model, name, samples, excluded.by_tier, len(small))
        results.append(result)
        measured[name] = samples, outcomes
    mixed = None
    if set(MIXED_TIERS) <= set(sets):
        mixed = mixed_workload(replace(study, progress=progress("mixed")), model, measured)
    return LegibilityResults(model.identity(), tuple(results), mixed, trim)


def mixed_workload(
    study: Study, model: Legibility, measured: Mapping[str, tuple[Sequence[Sample], Sequence[Outcome]]]
) -> MixedWorkload:
    """The first questions of each set, as many as the smallest has: the arms, and the best budgets by the curves."""
    each = min(len(samples) for samples, _ in measured.values())
    samples = [replace(one, tier=MIXED_TIERS[name]) for name, (rows, _) in measured.items() for one in rows[:each]]
    tiers = {sample.id: sample.tier for sample in samples}
    outcomes = [
        replace(outcome, tier=tiers[outcome.sample], run="mixed")
        for _, rows in measured.values()
        for outcome in rows
        if outcome.sample in tiers
    ]
    curves = curves_from_outcomes(outcomes)
    counts = dict.fromkeys(MIXED_COSTS, each)
    best = allocate({tier: curves[tier] for tier in MIXED_COSTS}, MIXED_COSTS, counts, PAPER_MEAN * 3 * each)
    return MixedWorkload(
        each=each,
        arms=real_arms(study, model, "mixed", samples, MIXED_BUDGETS, MIXED_COSTS),
        chosen=dict(best.budgets),
        held_out=held_out(outcomes, MIXED_COSTS, PAPER_MEAN),
    )


def check_readings(model: Legibility, samples: Sequence[Sample], budgets: Sequence[int]) -> list[dict[str, int]]:
    """For each budget, the number of answers that are legible by each of three readings, and by only one of two.

    location   what ``stakes.legibility`` does: lines are detected on the whole image and read at the answers
    page       the engine's own call for a whole page; an answer is legible when its words are anywhere in the text
    strip      no detection: the line's native box, scaled, is cut out and read

    Against ``page``, ``location`` loses what is found elsewhere by chance. Against ``strip``, it loses what detection
    no longer finds: the advantage that knowing the location would give. The model must have located the samples.
    """
    from rapidocr import RapidOCR

    whole_page = RapidOCR(params={"Global.log_level": "critical", "EngineConfig.onnxruntime.intra_op_num_threads": 1})
    pages: dict[str, list[Sample]] = {}
    for sample in samples:
        pages.setdefault(sample.digest, []).append(sample)
    rows = []
    for budget in budgets:
        answers = model.answer([Request(s.load(), s.question, budget, sample=s.id) for s in samples])
        location = {s.id for s, answer in zip(samples, answers, strict=True) if not answer.truncated}
        with ThreadPoolExecutor(model.threads) as pool:
            others = list(pool.map(partial(_other_readings, model, whole_page, budget), pages.values()))
        page, strip = (set().union(*found) for found in zip(*others, strict=True))
        legible: dict[str, set[str]] = {"location": location, "page": page, "strip": strip}
        for one, other in (("location", "page"), ("page", "location"), ("location", "strip"), ("strip", "location")):
            legible[f"{one}_not_{other}"] = legible[one] - legible[other]
        counts = {name: len(found) for name, found in legible.items()}
        rows.append({"budget": budget, "pages": len(pages), "questions": len(samples), **counts})
    return rows


def _other_readings(
    model: Legibility, whole_page: Any, budget: int, samples: Sequence[Sample]
) -> tuple[set[str], set[str]]:
    """The samples of one page that are legible anywhere on the page, and in a strip at the known location."""
    fitted = fit(open_image(samples[0].load()), budget, model.family)
    pixels = as_pixels(fitted.image)
    text = normalize(" ".join(whole_page(pixels).txts or ()))
    x, y = fitted.scale
    boxes = [box for one in samples for location in model.locations[one.id] for box in location.boxes]
    strips = [
        model.pages.engine.recognize(pixels, np.asarray(line.scaled(x, y).quad, np.float32)).scaled(1 / x, 1 / y)
        for line in model.native_lines(samples[0])
        if any(_contains_center(line.quad, box) for box in boxes)
    ]
    on_page = {s.id for s in samples if any(text.find(normalize(a).key, lost_spaces=True) for a in s.answers)}
    return on_page, {s.id for s in samples if read_at(model.locations[s.id], strips).legible}


def _contains_center(quad: Sequence[tuple[float, float]], box: tuple[float, float, float, float]) -> bool:
    """Whether the center of a box is within a line's bounds."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    xs, ys = zip(*quad, strict=True)
    return bool(min(xs) <= x <= max(xs) and min(ys) <= y <= max(ys))
