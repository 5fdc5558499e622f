"""Every (sample, budget) answered once, graded, and on disk before the next batch is asked.

    ran = run(model, asked, [[32] * len(asked), [304] * len(asked)], Setting(), "outcomes.jsonl")
    ran.outcomes["q17", 304].correct

Stop it anywhere, kill -9 included, and start it again: what the log holds is not asked again, except that a batch
which was written in part is redone whole (``batches``), of which only the missing outcomes are added. Whatever would
make the run worthless is refused before the first answer: budgets above an image's native tokens or below what its
family can take, answers that the metric cannot grade, a log of another experiment (``fingerprint``).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach, StakesError, UnreadableImage
from stakes.evaluation.asked import Asked
from stakes.evaluation.batches import BATCH, Pair, plan_batches
from stakes.evaluation.fingerprint import Fingerprint, Setting, admit, take
from stakes.evaluation.grading import grade, is_correct
from stakes.evaluation.outcomes import Outcome, OutcomeLog
from stakes.evaluation.progress import Progress, Silent
from stakes.models.about import family_of, native_tokens
from stakes.models.base import VLM, Answer, Request
from stakes.vision.sizes import fitted_size

Lanes = Sequence[Sequence[int]]  # each gives every sample one budget
Key = tuple[str, int]  # (sample, budget)


@dataclass(frozen=True)
class Run:
    """The outcomes that were asked for, by (sample, budget) in the samples' order, and what this call added."""

    outcomes: Mapping[Key, Outcome]
    fingerprint: Fingerprint
    answered: int
    seconds: float
    changed: int
    """Outcomes of a redone batch whose answer is not the one in the log: above 0, the model is not deterministic."""


def run(
    model: VLM,
    asked: Sequence[Asked],
    lanes: Lanes,
    setting: Setting,
    log: str | Path,
    *,
    batch_size: int = BATCH,
    progress: Progress | None = None,
) -> Run:
    """Answer what the log lacks, and return all of it."""
    lanes = [list(lane) for lane in lanes]
    batches = plan_batches([one.digest for one in asked], lanes, batch_size)
    check(model, asked, lanes, setting)
    mark, watch, began = take(asked, model, setting), progress or Silent(), time.monotonic()
    answered = changed = 0
    with OutcomeLog(log) as book:
        done = {(outcome.sample, outcome.budget): outcome for outcome in reversed(admit(book.path, mark))}
        wanted = [(asked[i].id, budget) for batch in batches for i, budget in batch]
        watch.start(len(wanted), sum(key in done for key in wanted))
        images = _Images(asked)
        try:
            for batch in batches:
                if all((asked[i].id, budget) in done for i, budget in batch):
                    continue
                outcomes = {
                    (outcome.sample, outcome.budget): outcome
                    for outcome in _answer(model, asked, batch, setting, mark.run, images)
                }
                changed += sum(key in done and done[key].prediction != o.prediction for key, o in outcomes.items())
                new = {key: outcome for key, outcome in outcomes.items() if key not in done}
                book.append(new.values())
                done |= new
                answered += len(new)
                watch.advance(len(new), sum(outcome.realised for outcome in new.values()))
        finally:
            watch.finish()
    budgets = sorted({budget for lane in lanes for budget in lane})
    wanted_set = set(wanted)
    ordered = {key: done[key] for one in asked for budget in budgets if (key := (one.id, budget)) in wanted_set}
    return Run(ordered, mark, answered, time.monotonic() - began, changed)


def check(model: Any, asked: Sequence[Asked], lanes: Lanes, setting: Setting) -> None:
    """Refuse, by the sample's name and before any answer is paid for, what could not be answered or graded."""
    if not asked or not lanes:
        raise BadInput("there is nothing to answer; give at least one sample and one budget")
    seen: set[str] = set()
    for one in asked:
        if one.id in seen:
            raise BadInput(f"two samples are called {one.id!r}; make ids unique")
        seen.add(one.id)
        try:
            grade("?", one.answers, setting.metric)
        except BadInput as error:
            raise BadInput(f"sample {one.id!r}: {error}") from None
    _check_native(model, asked, lanes, setting)
    if setting.mechanism == "resolution":
        family, fits = family_of(model), set[tuple[tuple[int, int], int]]()
        for i, one in enumerate(asked):
            for budget in {lane[i] for lane in lanes}:
                if (one.size, budget) not in fits:
                    try:
                        fitted_size(*one.size, budget, family)
                    except InfeasibleBudget as error:
                        raise InfeasibleBudget(f"sample {one.id!r}: {error}") from None
                    fits.add((one.size, budget))


def _check_native(model: Any, asked: Sequence[Asked], lanes: Lanes, setting: Setting) -> None:
    small: list[tuple[int, Asked, int]] = []
    for i, one in enumerate(asked):
        budgets = [lane[i] for lane in lanes]
        if min(budgets) < 1:
            raise BadInput(f"sample {one.id!r}: a budget is at least one visual token, not {min(budgets)}")
        native = native_tokens(model, *one.size, setting.mechanism)
        if max(budgets) > native:
            small.append((native, one, max(budgets)))
    if small:
        native, one, budget = small[0]
        least = min(count for count, _, _ in small)
        others = f" ({len(small)} of {len(asked)} samples are too small)" if len(small) > 1 else ""
        raise LedgerBreach(
            f"sample {one.id!r}: a budget of {budget} exceeds the image's {native} native tokens "
            f"({one.size[0]}x{one.size[1]} pixels){others}; give budgets of at most {least}, or leave such samples out"
        )


class _Images:
    """The images of the batch at hand; what it shares with the batch before, as within a block, is not read again."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self.asked = asked
        self.held: dict[str, Any] = {}

    def of(self, batch: Sequence[Pair]) -> list[Any]:
        """One image for each pair."""
        needed: dict[str, Asked] = {}
        for i, _ in batch:
            needed.setdefault(self.asked[i].digest, self.asked[i])
        self.held = {name: self.held[name] if name in self.held else one.load() for name, one in needed.items()}
        return [self.held[self.asked[i].digest] for i, _ in batch]


def _answer(
    model: VLM, asked: Sequence[Asked], batch: Sequence[Pair], setting: Setting, run: str, images: _Images
) -> list[Outcome]:
    pixels = images.of(batch)
    requests = [
        Request(image, asked[i].question, budget, setting.mechanism, setting.selector, asked[i].id)
        for (i, budget), image in zip(batch, pixels, strict=True)
    ]
    try:
        answers = model.answer(requests)
    except StakesError as error:
        raise type(error)(f"{_culprit([asked[i] for i, _ in batch], pixels)}: {error}") from error
    if len(answers) != len(requests):
        raise LedgerBreach(f"the model gave {len(answers)} answers to {len(requests)} requests")
    return [
        _outcome(asked[i], budget, answer, setting, run)
        for (i, budget), answer in zip(batch, answers, strict=True)
    ]  # fmt: skip


def _outcome(one: Asked, budget: int, answer: Answer, setting: Setting, run: str) -> Outcome:
    spent = answer.realised_tokens
    exact = setting.mechanism == "deletion"
    if answer.budget != budget or not 1 <= spent <= budget <= answer.native_tokens or (exact and spent != budget):
        raise LedgerBreach(
            f"sample {one.id!r}: {spent} tokens were realised of {answer.native_tokens} native ones for a budget of "
            f"{budget} (the answer says {answer.budget}) by {setting.mechanism}"
        )
    score = grade(answer.text, one.answers, setting.metric, truncated=answer.truncated)
    return Outcome(
        sample=one.id,
        document=one.document,
        tier=one.tier,
        mechanism=setting.mechanism,
        selector=setting.selector,
        budget=budget,
        native=answer.native_tokens,
        realised=spent,
        prediction=answer.text,
        truncated=answer.truncated,
        score=score,
        correct=is_correct(score),
        metric=setting.metric,
        ms=round(sum(answer.timings.values()), 3),
        run=run,
    )


def _culprit(batch: Sequence[Asked], pixels: Sequence[Any]) -> str:
    """The sample whose image cannot be decoded, or else all that were asked together."""
    from stakes.vision.decode import open_image

    for one, image in zip(batch, pixels, strict=True):
        try:
            open_image(image)
        except UnreadableImage:
            return f"sample {one.id!r}"
    return f"sample {batch[0].id!r}" if len(batch) == 1 else f"samples {batch[0].id!r} to {batch[-1].id!r}"
