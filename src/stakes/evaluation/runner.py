"""Every (sample, budget) answered once, graded, and on disk before the next batch is asked.

    ran = run(model, asked, [[32] * len(asked), [304] * len(asked)], Setting(), "outcomes.jsonl")
    ran.outcomes["q17", 304].correct

Stop it anywhere, kill -9 included, and start it again: what the log holds is not asked again, except that a batch
which was written in part is redone whole (``batches``), of which only the missing outcomes are added. A model behind a
server, whose answers do not depend on their batch, is asked only for those, and each is kept as it comes. What would
make the run worthless is refused before the first answer: budgets above an image's native tokens or below what its
family can take, answers that the metric cannot grade, a log of another experiment (``fingerprint``).

Who answers may be many workers on many machines (``spread``): the log is written here and nowhere else.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach
from stakes.evaluation.batching import BATCH, Answering, answers_alone, in_turn, plan_batches, plan_some
from stakes.evaluation.fingerprint import ELSEWHERE, Fingerprint, Setting, admit, relabel, take
from stakes.evaluation.grading import grade, is_correct
from stakes.evaluation.items import Asked
from stakes.evaluation.layered import Layered, layered
from stakes.evaluation.outcome_log import Outcome, OutcomeLog
from stakes.evaluation.progress import Progress, Silent
from stakes.models.base import VLM, Answer
from stakes.models.identity import family_of, native_tokens
from stakes.vision.image.resize import fitted_size

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
    retiered: int = 0
    """Samples that the log had in another tier, by another signal; their answers are kept, with the tier of now."""


def run(
    model: VLM,
    asked: Sequence[Asked],
    lanes: Lanes,
    setting: Setting,
    log: str | Path,
    *,
    batch_size: int = BATCH,
    progress: Progress | None = None,
    spread: Answering | None = None,
    only: Collection[Key] | None = None,
    elsewhere: str = ELSEWHERE,
) -> Run:
    """Answer what the log lacks, and return all of it.

    ``spread``: who answers in place of ``model`` itself, such as copies of it on a cluster. ``only``: of all samples in
    all lanes, these and no more. ``elsewhere``: what to do about a log of another experiment, in the caller's options.
    """
    lanes, images = [list(lane) for lane in lanes], [one.digest for one in asked]
    if only is None:
        batches = plan_batches(images, lanes, batch_size)
    else:
        some = {(i, lane[i]) for lane in lanes for i, one in enumerate(asked) if (one.id, lane[i]) in only}
        batches = plan_some(images, lanes, some, batch_size)
    check(model, asked, lanes, setting)
    layers = layered(model, setting)
    mark, watch, began = take(asked, model, setting), progress or Silent(), time.monotonic()
    answered = changed = 0
    retiered = relabel(Path(log), mark)
    with OutcomeLog(log) as book:
        done = {(outcome.sample, outcome.budget): outcome for outcome in reversed(admit(book.path, mark, elsewhere))}
        wanted = [(asked[i].id, budget) for batch in batches for i, budget in batch]
        watch.start(len(wanted), sum(key in done for key in wanted))
        missing = [batch for batch in batches if any((asked[i].id, budget) not in done for i, budget in batch)]
        if answers_alone(model):
            missing = [tuple(pair for pair in batch if (asked[pair[0]].id, pair[1]) not in done) for batch in missing]
        answering = (spread or in_turn(model))(asked, missing, setting)
        try:
            for batch, answers in answering:
                outcomes = {
                    (asked[i].id, budget): _outcome(asked[i], budget, answer, setting, mark.run, layers)
                    for (i, budget), answer in zip(batch, answers, strict=True)
                }
                changed += sum(key in done and done[key].prediction != o.prediction for key, o in outcomes.items())
                new = {key: outcome for key, outcome in outcomes.items() if key not in done}
                book.append(new.values())
                done |= new
                answered += len(new)
                watch.advance(len(new), round(sum(outcome.spent for outcome in new.values())))
        finally:
            answering.close()  # workers elsewhere would go on after an error here
            watch.finish()
    budgets = sorted({budget for lane in lanes for budget in lane})
    wanted_set = set(wanted)
    ordered = {key: done[key] for one in asked for budget in budgets if (key := (one.id, budget)) in wanted_set}
    return Run(ordered, mark, answered, time.monotonic() - began, changed, retiered)


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
    if (layers := layered(model, setting)) is not None:
        layers.check(asked, [native_tokens(model, *one.size, setting.mechanism) for one in asked], lanes)
    if setting.mechanism == "resolution":
        family, fits = family_of(model), set[tuple[tuple[int, int], int]]()
        for i, one in enumerate(asked):
            for budget in sorted({lane[i] for lane in lanes}):
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


def _outcome(
    one: Asked, budget: int, answer: Answer, setting: Setting, run: str, layers: Layered | None = None
) -> Outcome:
    spent, due = answer.realised_tokens, budget
    if layers is not None:
        due, average = layers.spent(answer.native_tokens, budget)
        if answer.layer_tokens != average:
            raise LedgerBreach(
                f"sample {one.id!r}: layers saw {answer.layer_tokens:g} tokens on average, and not the {average:g} "
                f"that a budget of {budget} comes to"
            )
    exact = setting.mechanism == "deletion"
    if answer.budget != budget or not 1 <= spent <= budget <= answer.native_tokens or (exact and spent != due):
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
        layers=None if layers is None else answer.layer_tokens,
    )
