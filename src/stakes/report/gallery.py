"""The gallery of a report: a few answers as filmstrips, and their pages at every budget.

For each tier it picks a question that the policy's budget wins against the uniform one, one that it loses, one that is
never right and one that is always right, as far as there are any. With resizing, each budget shows its own pixels;
with deletion, the page with the deleted tokens darkened. ``best_strips`` picks the answers that show best why budgets
should differ, for one image.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome
from stakes.report.data import MeasuredRun
from stakes.report.filmstrip import Filmstrip, mark_of
from stakes.report.seen_pages import NO_PLACE, see, uniform_budget
from stakes.tiers import extremes

CARDS = 8
FRAMES = 5  # of a filmstrip in one image
TRIED = 20  # answers of a tier that are looked for on their pages
LONGEST = 560  # pixels of a thumbnail's longer side; 8 pages at 7 budgets then take about 1 MB
CATEGORIES = {
    "win": "A win for the policy: wrong at the uniform budget, right at the policy's.",
    "loss": "A loss for the policy: right at the uniform budget, wrong at the policy's.",
    "never right": "Wrong at every measured budget.",
    "always right": "Right at every measured budget.",
    "other": "Right at some budgets, wrong at others, and alike at the uniform budget and the policy's.",
}


def samples_from_file(path: str | Path, run: MeasuredRun) -> dict[str, Sample]:
    """The run's samples in a samples file, by id, ready to load their images."""
    from stakes.data.sample import read_samples

    samples = {
        sample.id: replace(sample, load=partial(_open, sample, Path(path).parent))
        for sample in read_samples(path)
        if sample.id in run.by_sample
    }
    return _not_empty(samples, run, str(path))


def _open(sample: Sample, folder: Path) -> Any:
    from stakes.data.images import image_source
    from stakes.vision.image.decode import open_image

    return open_image(image_source(sample, folder))


def samples_from_pages(family: str, run: MeasuredRun) -> dict[str, Sample]:
    """The run's samples on synthetic pages, drawn again: a sample's id is FAMILY/SPLIT/SEED/QUESTION."""
    from stakes.data.synthetic import draw

    samples: dict[str, Sample] = {}
    questions: dict[str, Any] = {}
    for sample in run.by_sample:
        document, _, number = sample.rpartition("/")
        parts = document.split("/")
        if len(parts) != 3 or parts[0] != family or not (parts[2].isdigit() and number.isdigit()):
            continue
        page = partial(draw, family, int(parts[2]), parts[1])
        if document not in questions:
            questions[document] = page().questions
        if int(number) < len(questions[document]):
            question = questions[document][int(number)]
            load = partial(lambda page: page().image, page)
            samples[sample] = Sample(
                sample, question.text, question.answers, tier=question.tier, load=load, box=question.box
            )
    return _not_empty(samples, run, f"{family} pages")


def _not_empty(samples: dict[str, Sample], run: MeasuredRun, where: str) -> dict[str, Sample]:
    if run.by_sample and not samples:
        first = next(iter(run.by_sample))
        raise BadInput(
            f"none of the run's {len(run.by_sample)} samples is in {where}; the first is {first!r}. Give the file or "
            "the page family that the run was made with"
        )
    return samples


def make_gallery(
    run: MeasuredRun, samples: Mapping[str, Sample], model: Any = None, selectors: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], list[str]]:
    """Cards of up to ``CARDS`` questions, and notes on what could not be shown.

    For deletion, ``model`` and ``selectors`` compute again which tokens are kept.
    """
    made, notes = [], dict[str, None]()
    deletion = run.policy.mechanism == "deletion"
    for name, category in _choose(run, samples):
        seen = see(run, samples[name], run.by_sample[name], model, selectors)
        notes.update(dict.fromkeys(seen.notes))
        strip = seen.strip
        views = [
            {
                "budget": row.budget,
                "prediction": row.prediction,
                "mark": mark_of(row, seen.sample.answers),
                "truncated": row.truncated and run.policy.basis != "legibility",  # of OCR it means: not all was read
                "image": None if deletion else thumbnail(fitted.image),
                "crop": None if frame is None else data_url(frame.image, lossless=True),
                "kept": seen.masks.get(row.budget) or None,
            }
            for row, fitted, frame in zip(
                seen.rows, seen.fitted, strip.frames if strip else [None] * len(seen.rows), strict=True
            )
        ]
        made.append(
            {
                "sample": name,
                "tier": seen.rows[0].tier,
                "question": seen.sample.question,
                "answers": list(seen.sample.answers),
                "why": CATEGORIES[category],
                "size": seen.image.size,
                "uniform": seen.uniform,
                "places": 0 if seen.place is None else seen.place.of,
                "grid": seen.grid,
                "image": thumbnail(seen.image) if deletion else None,
                "views": views,
            }
        )
    if deletion and model is None and made:
        notes["the kept tokens are not drawn, since they need the model; give it with --model"] = None
    return made, list(notes)


def best_strips(
    run: MeasuredRun, samples: Mapping[str, Sample], model: Any = None, selectors: Sequence[str] = ()
) -> list[Filmstrip]:
    """A filmstrip for the most expensive tier and one for the cheapest: a win, and an answer that few tokens keep.

    They illustrate what budgets do and prove nothing: the gallery of a report shows losses beside wins.
    """
    strips = []
    for tier in dict.fromkeys(extremes(run.policy.costs)):
        mine = [name for name, rows in run.by_sample.items() if name in samples and rows[0].tier == tier]
        for name in sorted(mine, key=lambda name: _dullness(run, samples[name], run.by_sample[name]))[:TRIED]:
            strip = see(run, samples[name], run.by_sample[name], model, selectors, FRAMES).strip
            if strip is not None:
                strips.append(strip)
                break
    if not strips:
        raise BadInput(f"there is no filmstrip to draw: {NO_PLACE}")
    return strips


def _dullness(run: MeasuredRun, sample: Sample, rows: Sequence[Outcome]) -> tuple[bool, bool, int, bool, float]:
    """Smaller for an answer that shows more: of its label's tier, right at the policy's budget, just wrong below."""
    from rapidfuzz.distance import Levenshtein

    chosen, answer = run.policy.budgets[rows[0].tier], sample.answers[0]
    right = {row.budget: mark_of(row, sample.answers) == "right" for row in rows}
    unclear = sum(now != (budget >= chosen) for budget, now in right.items())
    uniform = next(row for row in rows if row.budget == uniform_budget(rows, run.policy.mean_budget))
    near = Levenshtein.normalized_similarity(uniform.prediction, answer)
    win = _category(rows, chosen, run.policy.mean_budget) == "win"
    other = sample.tier not in ("", rows[0].tier)
    return other, not right.get(chosen, False), unclear, not win, -near


def _choose(run: MeasuredRun, samples: Mapping[str, Sample]) -> list[tuple[str, str]]:
    """(sample, category) in turn over categories and tiers, from another document each time where possible."""
    groups: dict[tuple[str, str], list[str]] = {(c, tier): [] for c in CATEGORIES for tier in run.policy.tiers}
    for name, rows in run.by_sample.items():
        if name in samples and (tier := rows[0].tier) in run.policy.tiers:
            groups[_category(rows, run.policy.budgets[tier], run.policy.mean_budget), tier].append(name)
    for names in groups.values():  # those that show most come first
        names.sort(key=lambda name: _dullness(run, samples[name], run.by_sample[name]))
    documents: set[str] = set()
    chosen: list[tuple[str, str]] = []
    while len(chosen) < CARDS and any(groups.values()):
        for (category, _), names in groups.items():
            if names and len(chosen) < CARDS:
                fresh = [name for name in names if run.by_sample[name][0].document not in documents]
                name = (fresh or names)[0]
                names.remove(name)
                documents.add(run.by_sample[name][0].document)
                chosen.append((name, category))
    return chosen


def _category(rows: Sequence[Outcome], budget: int, mean: int) -> str:
    """What the policy's budget does to one question, compared with the uniform one."""
    right, uniform = {row.budget: row.correct for row in rows}, uniform_budget(rows, mean)
    if budget in right and right[budget] != right[uniform]:
        return "win" if right[budget] else "loss"
    if not any(right.values()):
        return "never right"
    return "always right" if all(right.values()) else "other"


def thumbnail(image: Any) -> str:
    """A small WebP as a data URL."""
    small = image.convert("RGB")
    small.thumbnail((LONGEST, LONGEST))
    return data_url(small)


def data_url(image: Any, *, lossless: bool = False) -> str:
    """An image as WebP in a data URL."""
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=55, method=4, lossless=lossless)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
