"""Answer and grade every (sample, budget) once; each batch is on disk before the next one is answered.

    ran = run(model, samples, [[32] * len(samples), [304] * len(samples)], Setting(), "outcomes.jsonl")
    ran.outcomes["q17", 304].correct

Stop it anywhere, kill -9 included, and start it again: what the log holds is not answered again, except that a batch
which was written in part is redone whole (``batching``), of which only the missing outcomes are added. A model behind a
server, whose answers do not depend on their batch, is asked only for the missing ones, and each is logged as it comes.
What would make the run worthless is refused before the first answer: budgets above an image's native tokens or below
what its family can take, answers that the metric cannot grade, a log of another experiment (``fingerprint``).

Many workers on many machines may answer (``ray``); the log is written by this process only.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stakes.data.sample import Sample
from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach
from stakes.evaluation.batching import (
    BATCH,
    Batch,
    BatchAnswerer,
    answer_locally,
    answers_independently,
    plan_batches,
)
from stakes.evaluation.fingerprint import (
    OTHER_LOG,
    Fingerprint,
    Setting,
    fingerprint_of,
    relabel,
    resumable_outcomes,
)
from stakes.evaluation.grading import grade, is_correct
from stakes.evaluation.layer_budgets import LayerBudgets, layer_budgets
from stakes.evaluation.outcome_log import Outcome, OutcomeLog
from stakes.evaluation.progress import Progress
from stakes.models.base import VLM, Answer
from stakes.models.identity import family_of, menu_of, native_tokens
from stakes.vision.image.resize import fitted_size

Assignments = Sequence[Sequence[int]]  # each gives every sample one budget
Key = tuple[str, int]  # (sample, budget)


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out; none of it changes an answer's grade."""

    progress: Progress | None = None
    workers: BatchAnswerer | None = None
    """Answers in place of the model itself, such as copies of it on a cluster (``ray.OverRay``)."""
    batch_size: int = BATCH
    other_log: str = OTHER_LOG
    """What to do about a log of another experiment, in the caller's options."""


@dataclass(frozen=True)
class Run:
    """The requested outcomes by (sample, budget) in the samples' order, and what this call added."""

    outcomes: Mapping[Key, Outcome]
    fingerprint: Fingerprint
    answered: int
    seconds: float
    changed: int
    """Outcomes of a redone batch whose answer is not the one in the log: above 0, the model is not deterministic."""
    retiered: int = 0
    """Samples that the log had in another tier, by another signal; their answers are kept under the current tier."""


def run(
    model: VLM,
    samples: Sequence[Sample],
    assignments: Assignments,
    setting: Setting,
    log: str | Path,
    options: RunOptions | None = None,
    *,
    only: Collection[Key] | None = None,
) -> Run:
    """Answer what the log lacks, and return all of it; ``only``: these pairs and no others of the assignments."""
    options, began = options or RunOptions(), time.monotonic()
    progress = options.progress or Progress()
    chosen = None
    if only is not None:
        chosen = {(i, row[i]) for row in assignments for i, sample in enumerate(samples) if (sample.id, row[i]) in only}
    batches = plan_batches([sample.digest for sample in samples], assignments, options.batch_size, chosen)
    check(model, samples, assignments, setting)
    fingerprint = fingerprint_of(samples, model, setting)
    retiered = relabel(Path(log), fingerprint)
    planned = [(samples[i].id, budget) for batch in batches for i, budget in batch]
    with OutcomeLog(log) as outcome_log:
        earlier = resumable_outcomes(outcome_log.path, fingerprint, options.other_log)
        done = {(outcome.sample, outcome.budget): outcome for outcome in reversed(earlier)}
        progress.start(len(planned), sum(key in done for key in planned))
        missing = _missing(model, samples, batches, done)
        layers = layer_budgets(model, setting)
        answers = (options.workers or partial(answer_locally, model))(samples, missing, setting)
        answered = changed = 0
        try:
            for batch, replies in answers:
                outcomes = {
                    (samples[i].id, budget): _outcome(samples[i], budget, reply, setting, fingerprint.run, layers)
                    for (i, budget), reply in zip(batch, replies, strict=True)
                }
                changed += sum(key in done and done[key].prediction != o.prediction for key, o in outcomes.items())
                new = {key: outcome for key, outcome in outcomes.items() if key not in done}
                outcome_log.append(new.values())
                done |= new
                answered += len(new)
                progress.advance(len(new), round(sum(outcome.spent for outcome in new.values())))
        finally:
            answers.close()  # remote workers would go on after an error here
            progress.finish()
    budgets, requested = sorted({budget for row in assignments for budget in row}), set(planned)
    ordered = {key: done[key] for sample in samples for budget in budgets if (key := (sample.id, budget)) in requested}
    return Run(ordered, fingerprint, answered, time.monotonic() - began, changed, retiered)


def _missing(
    model: VLM, samples: Sequence[Sample], batches: Sequence[Batch], done: Mapping[Key, Outcome]
) -> list[Batch]:
    """Batches with an outcome that the log lacks: whole, or only the missing pairs where those do not depend on it."""

    def lacks(batch: Batch) -> Batch:
        return tuple((i, budget) for i, budget in batch if (samples[i].id, budget) not in done)

    if answers_independently(model):
        return [rest for batch in batches if (rest := lacks(batch))]
    return [batch for batch in batches if lacks(batch)]


def check(model: Any, samples: Sequence[Sample], assignments: Assignments, setting: Setting) -> None:
    """Refuse, by the sample's name and before any answer is paid for, what could not be answered or graded."""
    if not samples or not assignments:
        raise BadInput("there is nothing to answer; give at least one sample and one budget")
    seen: set[str] = set()
    for sample in samples:
        if sample.id in seen:
            raise BadInput(f"two samples are called {sample.id!r}; make ids unique")
        seen.add(sample.id)
        try:
            grade("?", sample.answers, setting.metric)
        except BadInput as error:
            raise BadInput(f"sample {sample.id!r}: {error}") from None
    budgets = [sorted({row[i] for row in assignments}) for i in range(len(samples))]
    native = [native_tokens(model, *sample.size, setting.mechanism) for sample in samples]
    _check_native(samples, budgets, native)
    if (layers := layer_budgets(model, setting)) is not None:
        layers.check(samples, native, assignments)
    if setting.mechanism == "resolution" and menu_of(model, "resolution") is None:  # entries of a menu fit every image
        _check_sizes(samples, budgets, family_of(model))


def _check_native(samples: Sequence[Sample], budgets: Sequence[Sequence[int]], native: Sequence[int]) -> None:
    for sample, row in zip(samples, budgets, strict=True):
        if row[0] < 1:
            raise BadInput(f"sample {sample.id!r}: a budget is at least one visual token, not {row[0]}")
    small = [i for i, row in enumerate(budgets) if row[-1] > native[i]]
    if small:
        first, least = small[0], min(native[i] for i in small)
        width, height = samples[first].size
        others = f" ({len(small)} of {len(samples)} samples are too small)" if len(small) > 1 else ""
        raise LedgerBreach(
            f"sample {samples[first].id!r}: a budget of {budgets[first][-1]} exceeds the image's {native[first]} "
            f"native tokens ({width}x{height} pixels){others}; give budgets of at most {least}, or leave such samples "
            "out"
        )


def _check_sizes(samples: Sequence[Sample], budgets: Sequence[Sequence[int]], family: str) -> None:
    """Every image can be resized to each of its budgets."""
    fits = set[tuple[tuple[int, int], int]]()
    for sample, row in zip(samples, budgets, strict=True):
        for budget in row:
            if (sample.size, budget) not in fits:
                try:
                    fitted_size(*sample.size, budget, family)
                except InfeasibleBudget as error:
                    raise InfeasibleBudget(f"sample {sample.id!r}: {error}") from None
                fits.add((sample.size, budget))


def _outcome(
    sample: Sample, budget: int, answer: Answer, setting: Setting, run: str, layers: LayerBudgets | None
) -> Outcome:
    """The graded answer; tokens that are not what the budget asks for are a ``LedgerBreach``."""
    spent, due = answer.realised_tokens, budget
    if layers is not None:
        due, average = layers.spent(answer.native_tokens, budget)
        if answer.layer_tokens != average:
            raise LedgerBreach(
                f"sample {sample.id!r}: layers saw {answer.layer_tokens:g} tokens on average, and not the {average:g} "
                f"that a budget of {budget} comes to"
            )
    exact = setting.mechanism == "deletion"
    if answer.budget != budget or not 1 <= spent <= budget <= answer.native_tokens or (exact and spent != due):
        raise LedgerBreach(
            f"sample {sample.id!r}: {spent} tokens were realised of {answer.native_tokens} native ones for a budget of "
            f"{budget} (the answer says {answer.budget}) by {setting.mechanism}"
        )
    score = grade(answer.text, sample.answers, setting.metric, truncated=answer.truncated)
    return Outcome(
        sample=sample.id,
        document=sample.document,
        tier=sample.tier,
        mechanism=setting.requested,
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
        layers=None if layers is None else answer.layer_tokens,
        confidence=answer.confidence,
    )
