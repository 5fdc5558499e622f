"""What does the model see, and what does it answer? A few pages at every budget, chosen to tell the story.

For each tier: an answer that the policy mends, one that it breaks, one always right and one never right, as far as
there are any. By resizing, each budget's own pixels; by deletion, the page and the kept tokens over it.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome
from stakes.report.run import Asking, Run

CARDS = 8
BUDGETS = 7
LONGEST = 560  # pixels of a thumbnail's longer side; 8 pages at 7 budgets then take about 1 MB
STORIES = ("mended", "broken", "never right", "always right")


@dataclass(frozen=True)
class Gallery:
    """Cards for the page, and what could not be shown."""

    cards: list[dict[str, Any]]
    notes: list[str]


def make_gallery(
    run: Run,
    source: Mapping[str, Asking],
    model: Any = None,
    selectors: Sequence[str] = (),
    cards: int = CARDS,
) -> Gallery:
    """Up to ``cards`` questions; ``model`` and ``selectors``: who to ask which tokens deletion keeps."""
    from stakes.vision.image.decode import open_image

    made, notes = [], dict[str, None]()
    deletion = run.policy.mechanism == "deletion"
    for sample, story in _chosen(run, source, cards):
        asked, rows = source[sample], run.by_sample[sample]
        image = open_image(asked.load())
        uniform = _uniform(rows, run.policy.mean_budget)
        shown = _spread(rows, {uniform, run.policy.budgets[rows[0].tier]})
        grid, masks = (0, 0), dict[int, dict[str, str]]()
        if deletion and model is not None:
            budgets = [row.budget for row in shown]
            grid, masks, why = kept_masks(model, image, asked.question, sample, rows[0].native, selectors, budgets)
            notes.update(dict.fromkeys(why))
        made.append(
            {
                "sample": sample,
                "tier": rows[0].tier,
                "question": asked.question,
                "answers": list(asked.answers),
                "why": story,
                "size": image.size,
                "uniform": uniform,
                "grid": grid,
                "image": thumbnail(image) if deletion else None,
                "views": [
                    {
                        "budget": row.budget,
                        "prediction": row.prediction,
                        "correct": row.correct,
                        "truncated": row.truncated,
                        "image": None if deletion else _fitted(image, row.budget, run.policy.family),
                        "kept": masks.get(row.budget) or None,
                    }
                    for row in shown
                ],
            }
        )
    if deletion and model is None and made:
        notes["the kept tokens are not drawn, since they need the model; give it with --model"] = None
    return Gallery(made, list(notes))


def story_of(rows: Sequence[Outcome], budget: int, uniform: int) -> str:
    """What the policy's budget does to one question, beside the uniform one."""
    right = {row.budget: row.correct for row in rows}
    if budget in right and uniform in right and right[budget] != right[uniform]:
        return "mended" if right[budget] else "broken"
    if not any(right.values()):
        return "never right"
    return "always right" if all(right.values()) else "other"


def _chosen(run: Run, source: Mapping[str, Asking], cards: int) -> list[tuple[str, str]]:
    """(sample, why it is here): by turns over tiers and stories, another document each time where there is one."""
    told = {
        "mended": "The policy mends this: wrong at the uniform budget, right at its own.",
        "broken": "The policy breaks this: right at the uniform budget, wrong at its own.",
        "never right": "Wrong at every measured budget.",
        "always right": "Right at every measured budget.",
        "other": "Right at some budgets, wrong at others; the policy changes nothing.",
    }
    piles: dict[tuple[str, str], list[str]] = {}
    for sample, rows in run.by_sample.items():
        if sample in source and rows[0].tier in run.policy.tiers:
            tier = rows[0].tier
            story = story_of(rows, run.policy.budgets[tier], _uniform(rows, run.policy.mean_budget))
            piles.setdefault((story, tier), []).append(sample)
    order = [(story, tier) for story in (*STORIES, "other") for tier in run.policy.tiers if (story, tier) in piles]
    documents: set[str] = set()
    picked: list[tuple[str, str]] = []
    while len(picked) < cards and any(piles.values()):
        for key in order:
            pile = piles[key]
            if pile and len(picked) < cards:
                fresh = [s for s in pile if run.by_sample[s][0].document not in documents]
                sample = (fresh or pile)[0]
                pile.remove(sample)
                documents.add(run.by_sample[sample][0].document)
                picked.append((sample, told[key[0]]))
    return picked


def _uniform(rows: Sequence[Outcome], mean: int) -> int:
    return max((row.budget for row in rows if row.budget <= mean), default=rows[0].budget)


def _spread(rows: Sequence[Outcome], always: set[int], most: int = BUDGETS) -> list[Outcome]:
    """At most ``most`` of the rows, evenly over the budgets, the first, the last and ``always`` among them."""
    if len(rows) <= most:
        return list(rows)
    keep = {0, len(rows) - 1} | {i for i, row in enumerate(rows) if row.budget in always}
    for k in range(1, most - 1):
        if len(keep) < most:
            keep.add(round(k * (len(rows) - 1) / (most - 1)))
    return [rows[i] for i in sorted(keep)]


def thumbnail(image: Any, longest: int = LONGEST) -> str:
    """A small WebP as a data URL."""
    small = image.convert("RGB")
    small.thumbnail((longest, longest))
    buffer = io.BytesIO()
    small.save(buffer, "WEBP", quality=55, method=4)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def _fitted(image: Any, budget: int, family: str) -> str:
    from stakes.vision.image.resize import fit

    return thumbnail(fit(image, budget, family).image)


# Which tokens did deletion keep? The selector asked again on the page, as a grid of bits for drawing.
#
# Only where that can be known without answering: selectors before the first decoder layer, of models whose tokens form
# one grid. Others are left out with the reason.


def kept_masks(
    model: Any, image: Any, question: str, sample: str, native: int, selectors: Sequence[str], budgets: Sequence[int]
) -> tuple[tuple[int, int], dict[int, dict[str, str]], list[str]]:
    """(rows, columns) of the token grid, bits by budget and selector, and why a selector is left out.

    ``native``: the page's tokens in the run; a model that makes another number of them is not the run's.
    Bit i of a mask (lowest bit of a byte first) is the token at row i // columns, column i % columns.
    """
    import torch

    from stakes.vision.selectors import make
    from stakes.vision.selectors.base import Scene, Selector

    masks: dict[int, dict[str, str]] = {budget: {} for budget in budgets}
    left_out: list[str] = []
    grid = (0, 0)
    with torch.inference_mode():
        words = model.processor.question_ids(question).to(model.device)
        asked = model.model.get_input_embeddings()(words)
        seen_by: dict[bool, Any] = {}  # encoding is the slow part: once for all selectors that need the same of it
        for spec in selectors:
            selector = make(spec)
            if not isinstance(selector, Selector):
                left_out.append(f"{spec} drops tokens inside the model, layer by layer, so there is no one set to draw")
                continue
            attention = selector.needs_encoder_attention
            if attention not in seen_by:
                seen_by[attention] = model.encode(image, exact=False, attention=attention)
            seen = seen_by[attention]
            if seen.grid is None:
                left_out.append(f"the tokens of {model.family} do not form one grid, so they are not drawn")
                continue
            count = len(seen.features)
            if count != native:
                raise BadInput(
                    f"this model makes {count} tokens of the page of sample {sample!r}, and the run's made {native}; "
                    "give the model that the run was made with"
                )
            merge = round((seen.grid[1] * seen.grid[2] / count) ** 0.5)
            grid = (seen.grid[1] // merge, seen.grid[2] // merge)
            scene = Scene(features=seen.features, question=asked, sample=sample, received=seen.received, keys=seen.keys)
            for budget in budgets:
                masks[budget][spec] = bits(selector.select(scene, budget).indices.tolist(), count)
    return grid, masks, left_out


def bits(indices: Sequence[int], count: int) -> str:
    """Indices as base64 of ``count`` bits, the lowest bit of each byte first."""
    packed = bytearray((count + 7) // 8)
    for i in indices:
        packed[i >> 3] |= 1 << (i & 7)
    return base64.b64encode(bytes(packed)).decode()
