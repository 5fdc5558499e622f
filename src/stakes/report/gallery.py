"""The gallery of a report: a few pages at every budget, with what the model answered there.

For each tier it picks a question that the policy's budget wins against the uniform one, one that it loses, one that is
never right and one that is always right, as far as there are any. With resizing, each budget shows its own pixels;
with deletion, the page with the deleted tokens darkened.
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

CARDS = 8
BUDGETS = 7
LONGEST = 560  # pixels of a thumbnail's longer side; 8 pages at 7 budgets then take about 1 MB
CATEGORIES = {
    "win": "A win for the policy: wrong at the uniform budget, right at the policy's.",
    "loss": "A loss for the policy: right at the uniform budget, wrong at the policy's.",
    "never right": "Wrong at every measured budget.",
    "always right": "Right at every measured budget.",
    "other": "Right at some budgets, wrong at others; the policy changes nothing.",
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
            samples[sample] = Sample(sample, question.text, question.answers, tier=question.tier, load=load)
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
    from stakes.vision.image.decode import open_image
    from stakes.vision.image.resize import fit

    made, notes = [], dict[str, None]()
    deletion, family = run.policy.mechanism == "deletion", run.policy.family
    for name, category in _choose(run, samples):
        sample, rows = samples[name], run.by_sample[name]
        image = open_image(sample.load())
        uniform = _uniform(rows, run.policy.mean_budget)
        shown = _spread(rows, {uniform, run.policy.budgets[rows[0].tier]})
        grid, masks = (0, 0), dict[int, dict[str, str]]()
        if deletion and model is not None:
            budgets = [row.budget for row in shown]
            grid, masks, left_out = kept_masks(model, image, sample, rows[0].native, selectors, budgets)
            notes.update(dict.fromkeys(left_out))
        views = [
            {
                "budget": row.budget,
                "prediction": row.prediction,
                "correct": row.correct,
                "truncated": row.truncated,
                "image": None if deletion else thumbnail(fit(image, row.budget, family).image),
                "kept": masks.get(row.budget) or None,
            }
            for row in shown
        ]
        made.append(
            {
                "sample": name,
                "tier": rows[0].tier,
                "question": sample.question,
                "answers": list(sample.answers),
                "why": CATEGORIES[category],
                "size": image.size,
                "uniform": uniform,
                "grid": grid,
                "image": thumbnail(image) if deletion else None,
                "views": views,
            }
        )
    if deletion and model is None and made:
        notes["the kept tokens are not drawn, since they need the model; give it with --model"] = None
    return made, list(notes)


def _choose(run: MeasuredRun, samples: Mapping[str, Sample]) -> list[tuple[str, str]]:
    """(sample, category) in turn over categories and tiers, from another document each time where possible."""
    groups: dict[tuple[str, str], list[str]] = {(c, tier): [] for c in CATEGORIES for tier in run.policy.tiers}
    for name, rows in run.by_sample.items():
        if name in samples and (tier := rows[0].tier) in run.policy.tiers:
            groups[_category(rows, run.policy.budgets[tier], run.policy.mean_budget), tier].append(name)
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
    right, uniform = {row.budget: row.correct for row in rows}, _uniform(rows, mean)
    if budget in right and right[budget] != right[uniform]:
        return "win" if right[budget] else "loss"
    if not any(right.values()):
        return "never right"
    return "always right" if all(right.values()) else "other"


def _uniform(rows: Sequence[Outcome], mean: int) -> int:
    return max((row.budget for row in rows if row.budget <= mean), default=rows[0].budget)


def _spread(rows: Sequence[Outcome], always: set[int]) -> list[Outcome]:
    """At most ``BUDGETS`` of the rows, evenly over the budgets, the first, the last and ``always`` among them."""
    if len(rows) <= BUDGETS:
        return list(rows)
    keep = {0, len(rows) - 1} | {i for i, row in enumerate(rows) if row.budget in always}
    for k in range(1, BUDGETS - 1):
        if len(keep) < BUDGETS:
            keep.add(round(k * (len(rows) - 1) / (BUDGETS - 1)))
    return [rows[i] for i in sorted(keep)]


def thumbnail(image: Any) -> str:
    """A small WebP as a data URL."""
    small = image.convert("RGB")
    small.thumbnail((LONGEST, LONGEST))
    buffer = io.BytesIO()
    small.save(buffer, "WEBP", quality=55, method=4)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def kept_masks(
    model: Any, image: Any, sample: Sample, native: int, selectors: Sequence[str], budgets: Sequence[int]
) -> tuple[tuple[int, int], dict[int, dict[str, str]], list[str]]:
    """(rows, columns) of the token grid, bit masks by budget and selector, and why a selector is left out.

    Only selectors that act before the first decoder layer, on a model whose tokens form one grid, can be drawn without
    answering. ``native``: the image's tokens in the run; a model with another count is not the run's model. Bit i of
    a mask (lowest bit of a byte first) is the token at row i // columns, column i % columns.
    """
    import torch

    from stakes.vision.selectors import make
    from stakes.vision.selectors.base import Scene, Selector

    masks: dict[int, dict[str, str]] = {budget: {} for budget in budgets}
    left_out: list[str] = []
    grid = (0, 0)
    with torch.inference_mode():
        words = model.processor.question_ids(sample.question).to(model.device)
        question = model.model.get_input_embeddings()(words)
        encoded: dict[bool, Any] = {}  # encoding is the slow part: once for all selectors that need the same
        for spec in selectors:
            selector = make(spec)
            if not isinstance(selector, Selector):
                left_out.append(f"{spec} drops tokens inside the model, layer by layer, so there is no one set to draw")
                continue
            attention = selector.needs_encoder_attention
            if attention not in encoded:
                encoded[attention] = model.encode(image, exact=False, attention=attention)
            seen = encoded[attention]
            if seen.grid is None:
                left_out.append(f"the tokens of {model.family} do not form one grid, so they are not drawn")
                continue
            count = len(seen.features)
            if count != native:
                raise BadInput(
                    f"this model makes {count} tokens of the page of sample {sample.id!r}, and the run's model made "
                    f"{native}; give the model that the run was made with"
                )
            merge = round((seen.grid[1] * seen.grid[2] / count) ** 0.5)
            grid = (seen.grid[1] // merge, seen.grid[2] // merge)
            scene = Scene(seen.features, question=question, sample=sample.id, received=seen.received, keys=seen.keys)
            for budget in budgets:
                masks[budget][spec] = bits(selector.select(scene, budget).indices.tolist(), count)
    return grid, masks, left_out


def bits(indices: Sequence[int], count: int) -> str:
    """Indices as base64 of ``count`` bits, the lowest bit of each byte first."""
    packed = sum(1 << i for i in indices).to_bytes((count + 7) // 8, "little")
    return base64.b64encode(packed).decode()
