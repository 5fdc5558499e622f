"""What the model sees of a page at each budget: resized pages, kept tokens, and the filmstrip of the answer."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stakes.data.sample import Sample
from stakes.data.trim import has_size, trim_sample
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome
from stakes.report.data import MeasuredRun
from stakes.report.filmstrip import Filmstrip, Frame, Place, dimmed, mark_of, place_of, seen
from stakes.vision.geometry import count_tokens
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import Fitted, fit

BUDGETS = 7
CROP = 240  # pixels of a crop's width
NO_PLACE = (
    "where an answer is printed is not known, so its crop is not shown; give samples a box, or install stakes[ocr], "
    "which finds printed answers"
)


@dataclass(frozen=True)
class SeenPage:
    """A sample's page at the budgets that are shown: ``fitted`` by row, and ``strip`` where the answer is located."""

    sample: Sample
    image: Any
    rows: list[Outcome]
    uniform: int
    fitted: list[Fitted]
    place: Place | None
    strip: Filmstrip | None
    grid: tuple[int, int]
    masks: Mapping[int, Mapping[str, str]]
    notes: tuple[str, ...]


def see(
    run: MeasuredRun,
    sample: Sample,
    rows: Sequence[Outcome],
    model: Any = None,
    selectors: Sequence[str] = (),
    most: int = BUDGETS,
) -> SeenPage:
    """What the model sees of a sample's page at up to ``most`` of its budgets."""
    policy = run.policy
    if policy.trim:
        least = min(min(plan.known_budgets) for plan in policy.tiers.values())
        sample = trim_sample(
            sample,
            lambda x, y: (
                count_tokens(policy.family, x, y) >= policy.trims_above
                and (policy.mechanism != "resolution" or has_size(x, y, least, policy.family))
            ),
        )
    image = open_image(sample.load())
    chosen, uniform = policy.budgets[rows[0].tier], uniform_budget(rows, policy.mean_budget)
    shown = _spread(rows, {uniform, chosen}, most)
    grid, masks, notes = (0, 0), dict[int, dict[str, str]](), list[str]()
    if policy.mechanism == "resolution":
        fitted = [fit(image, row.budget, policy.family) for row in shown]
    else:
        whole = fit(image, rows[0].native, policy.family)
        fitted = [whole] * len(shown)
        if model is not None:
            budgets = [row.budget for row in shown]
            grid, masks, notes = kept_masks(model, image, sample, rows[0].native, selectors, budgets)
        if grid != (0, 0):
            kept = [next(iter(masks[row.budget].values())) for row in shown]
            fitted = [dimmed(whole, grid, indices(bits)) for bits in kept]
    place = None
    if policy.mechanism == "resolution" or grid != (0, 0):
        place = place_of(sample, image)
        if place is None:
            notes.append(NO_PLACE)
    strip = None
    if place is not None:
        window = place.window(image.size)
        frames = [
            Frame(row.budget, seen(one, window, CROP), row.prediction, mark_of(row, sample.answers))
            for row, one in zip(shown, fitted, strict=True)
        ]
        strip = Filmstrip(sample.question, sample.answers[0], rows[0].tier, tuple(frames), chosen, uniform)
    return SeenPage(sample, image, shown, uniform, fitted, place, strip, grid, masks, tuple(notes))


def uniform_budget(rows: Sequence[Outcome], mean: int) -> int:
    """The largest budget of these within the mean: what every question would get."""
    return max((row.budget for row in rows if row.budget <= mean), default=rows[0].budget)


def _spread(rows: Sequence[Outcome], always: set[int], most: int) -> list[Outcome]:
    """At most ``most`` of the rows, evenly over the budgets, the first, the last and ``always`` among them."""
    if len(rows) <= most:
        return list(rows)
    keep = {0, len(rows) - 1} | {i for i, row in enumerate(rows) if row.budget in always}
    for k in range(1, most - 1):
        if len(keep) < most:
            keep.add(round(k * (len(rows) - 1) / (most - 1)))
    return [rows[i] for i in sorted(keep)]


def kept_masks(
    model: Any, image: Any, sample: Sample, native: int, selectors: Sequence[str], budgets: Sequence[int]
) -> tuple[tuple[int, int], dict[int, dict[str, str]], list[str]]:
    """(rows, columns) of the token grid, bit masks by budget and selector, and why a selector is left out.

    Only selectors that act before the first decoder layer, on a model whose tokens form one grid, can be drawn without
    answering. ``native``: the image's tokens in the run; a model with another count is not the run's model. Bit i of
    a mask (lowest bit of a byte first) is the token at row i // columns, column i % columns.
    """
    import torch

    from stakes.vision.deletion.blank import InkFilter
    from stakes.vision.selectors import make
    from stakes.vision.selectors.base import Scene, Selector

    masks: dict[int, dict[str, str]] = {budget: {} for budget in budgets}
    left_out: list[str] = []
    grid = (0, 0)
    with torch.inference_mode():
        words = model.processor.question_ids(sample.question).to(model.device)
        question = model.model.get_input_embeddings()(words)
        encoded: dict[tuple[bool, InkFilter | None], Any] = {}  # the slow part: once for all that need the same
        for spec in selectors:
            selector = make(spec)
            if not isinstance(selector, Selector):
                left_out.append(f"{spec} drops tokens inside the model, layer by layer, so there is no one set to draw")
                continue
            for budget in budgets:
                ink = None if selector.blank is None else InkFilter(selector.blank, budget)
                what = selector.needs_encoder_attention, ink
                if what not in encoded:
                    encoded[what] = model.encode(image, exact=False, attention=what[0], ink=ink)
                seen = encoded[what]
                if seen.grid is None:
                    left_out.append(f"the tokens of {model.family} do not form one grid, so they are not drawn")
                    break
                if seen.count != native:
                    raise BadInput(
                        f"this model makes {seen.count} tokens of the page of sample {sample.id!r}, and the run's "
                        f"model made {native}; give the model that the run was made with"
                    )
                merge = round((seen.grid[1] * seen.grid[2] / native) ** 0.5)
                grid = (seen.grid[1] // merge, seen.grid[2] // merge)
                scene = Scene(seen.features, question, sample.id, seen.received, seen.keys, seen.rankings)
                chosen = selector.select(scene, budget).indices
                kept = chosen if seen.indices is None else seen.indices[chosen]
                masks[budget][spec] = bits(kept.tolist(), native)
    return grid, masks, left_out


def bits(tokens: Sequence[int], count: int) -> str:
    """Indices as base64 of ``count`` bits, the lowest bit of each byte first."""
    packed = sum(1 << i for i in tokens).to_bytes((count + 7) // 8, "little")
    return base64.b64encode(packed).decode()


def indices(text: str) -> list[int]:
    """The indices that ``bits`` packed."""
    packed = int.from_bytes(base64.b64decode(text), "little")
    return [i for i in range(packed.bit_length()) if packed >> i & 1]
