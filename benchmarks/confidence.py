"""Which statistic of an answer's token probabilities tells right from wrong, and what the reader's warning catches.

    python benchmarks/confidence.py --data DIR --out docs/results/confidence.json     # DIR holds docvqa, chartqa, sroie

Synthetic test pages at three budgets and with all tokens, real pages with all tokens. An answer is right by the
metric ``fields``. AUC: the chance that a right answer has a higher value than a wrong one. No text of a page, question
or answer is written to the results.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import about

from stakes.commands.output import as_markdown
from stakes.data.sample import Sample, read_samples
from stakes.evaluation.grading import grade, is_correct
from stakes.evaluation.samples import draw_samples, prepare_samples
from stakes.models import load
from stakes.models.base import CONFIDENCE, VLM, Request, confidence_of
from stakes.models.embedded import UNSURE_BELOW
from stakes.models.local import generate, vlm
from stakes.models.local.generate import token_logprobs

FAMILIES = ("forms", "charts", "infographics", "signs", "shapes")
REAL = {"sroie": 160, "docvqa": 240, "chartqa": 200}  # questions of each; four on a receipt
BUDGETS = (96, 224, 448, None)
STATISTICS: dict[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    CONFIDENCE: lambda first, _: math.exp(sum(first) / len(first)),
    "smallest token probability": lambda first, _: math.exp(min(first)),
    "product of token probabilities": lambda first, _: math.exp(sum(first)),
    "first token's probability": lambda first, _: math.exp(first[0]),
    "mean margin": lambda first, second: float(np.mean(np.exp(first) - np.exp(second))),
    "smallest margin": lambda first, second: float(np.min(np.exp(first) - np.exp(second))),
}
"""By the log-probabilities of each token and of the one that came second."""
Pairs = Sequence[tuple[float, float]]
FEWEST = 5  # right answers, and wrong ones, below which no AUC is given
BATCH = 16


class Answered(NamedTuple):
    """One answer: where it is from, whether it was right, and for each token the two largest log-probabilities."""

    group: str
    full: bool
    right: bool
    logprobs: Pairs

    def value(self, statistic: str) -> float:
        """A statistic of this answer."""
        first, second = zip(*self.logprobs, strict=True)
        return STATISTICS[statistic](first, second)


@contextmanager
def recorded() -> Iterator[list[Pairs]]:
    """The log-probabilities of every answer of a local model, whose confidence is then its index in this list."""
    kept: list[Pairs] = []

    def record(logprobs: Pairs) -> float:
        kept.append(logprobs)
        return len(kept) - 1

    def largest_two(logits: Any, _: Any) -> Any:
        return logits.topk(2, dim=1).values - logits.logsumexp(1, keepdim=True)

    vars(vlm)["confidence_of"], vars(generate)["token_logprobs"] = record, largest_two
    try:
        yield kept
    finally:
        vars(vlm)["confidence_of"], vars(generate)["token_logprobs"] = confidence_of, token_logprobs


def answered(
    model: VLM, group: str, samples: Sequence[Sample], budgets: Sequence[int | None], kept: list[Pairs]
) -> Iterator[Answered]:
    """Every sample at every budget; None: with all tokens in the checkpoint's own bounds."""
    for budget in budgets:
        for start in range(0, len(samples), BATCH):
            part = samples[start : start + BATCH]
            answers = model.answer([Request(sample.load(), sample.question, budget) for sample in part])
            for sample, answer in zip(part, answers, strict=True):
                score = grade(answer.text, sample.answers, "fields", truncated=answer.truncated)
                yield Answered(group, budget is None, is_correct(score), kept[int(answer.confidence or 0)])
    print(f"{group}: {len(samples)} questions at {len(budgets)} budgets", file=sys.stderr, flush=True)


def real_samples(folder: Path, name: str) -> list[Sample]:
    """Questions of one real set, evenly over the file; of the receipts, the first ones."""
    path = folder / name / "questions.jsonl"
    rows, count = read_samples(path), REAL[name]
    chosen = rows[:count] if name == "sroie" else rows[:: max(1, len(rows) // count)][:count]
    return prepare_samples(chosen, path.parent)


def auc(right: Sequence[float], wrong: Sequence[float]) -> float | None:
    """The chance that a right answer has a higher value than a wrong one; a tie counts half."""
    if min(len(right), len(wrong)) < FEWEST:
        return None
    first, second = np.array(right)[:, None], np.array(wrong)
    return round(float((first > second).mean() + (first == second).mean() / 2), 3)


def tables(found: Sequence[Answered]) -> dict[str, dict[str, list[Any]]]:
    """AUC of each statistic by group, and what the warning marks."""
    groups: dict[str, list[Answered]] = {"synthetic, all budgets": [one for one in found if one.group in FAMILIES]}
    groups["synthetic, all tokens"] = [one for one in found if one.group in FAMILIES and one.full]
    groups |= {f"{name}, all tokens": [one for one in found if one.group == name and one.full] for name in REAL}
    groups["real, all tokens"] = [one for one in found if one.group in REAL and one.full]
    by_statistic, warnings = [], []
    for name, group in groups.items():
        if not group:
            continue
        parts = [[one for one in group if one.right is right] for right in (True, False)]
        values = [[[one.value(name) for one in part] for part in parts] for name in STATISTICS]
        by_statistic.append([name, len(group), len(parts[0]) / len(group), *(auc(*each) for each in values)])
        marked = [sum(value < UNSURE_BELOW for value in part) for part in values[0]]
        shares = [count / len(part) if part else None for count, part in zip(marked, parts, strict=True)]
        warnings.append([name, len(parts[0]), len(parts[1]), *shares])
    measured = ["pages", "answers", "right", *(f"AUC: {name}" for name in STATISTICS)]
    marks = ["pages", "right answers", "wrong answers", "of the right ones warned", "of the wrong ones warned"]
    return {
        "confidence": {"columns": measured, "rows": by_statistic},
        "confidence-warnings": {"columns": marks, "rows": warnings},
    }


def main() -> None:
    """Measure, print the tables, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, help="a folder with docvqa/, chartqa/ and sroie/; without it, no real page"
    )
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--per-tier", type=int, default=40, help="synthetic questions of each tier and family")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    model, found = load(given.model), list[Answered]()
    with recorded() as kept:
        for family in FAMILIES:
            found += answered(model, family, draw_samples(family, "test", given.per_tier), BUDGETS, kept)
        for name in REAL if given.data else ():
            found += answered(model, name, real_samples(given.data, name), (None,), kept)
    made = tables(found)
    for table in made.values():
        print(as_markdown(table["columns"], table["rows"]))
    if given.out is not None:
        record = {"statistic": CONFIDENCE, "unsure_below": UNSURE_BELOW, "about": about("torch", "transformers")}
        given.out.write_text(json.dumps({**record, "tables": made}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
