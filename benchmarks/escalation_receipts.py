"""How many totals of receipts must a person see so that few of the others are wrong?

    python benchmarks/escalation_receipts.py --data DIR/sroie --folder RUNS --out docs/results/escalation-receipts.json

Synthetic receipts, one total each: a ceiling of 2 % on the error among unflagged totals is certified with 95 %
confidence; a quarter of the receipts orders the thresholds, the others certify. Real receipts, all fields and totals
alone, by the reader and by OCR: each half is flagged by a threshold that the other half chose, at a review cost of a
tenth of a mistake. No text of a page, question or answer is written to the results.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import about

from stakes.budgets.options.tier_plan import TierOption
from stakes.calibration.by_document import by_document
from stakes.calibration.certify.ceiling import upper_error
from stakes.calibration.certify.options import review_ceiling
from stakes.calibration.escalation.answers import AnswerTable, TierAnswers, answer_table
from stakes.calibration.escalation.choose import OptionRules, choose_options
from stakes.calibration.escalation.judge import by_document_counts
from stakes.calibration.estimators import Terms
from stakes.data.sample import Sample, read_samples
from stakes.data.synthetic import Page, draw
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.progress import Progress
from stakes.evaluation.samples import answerable, digest, prepare_samples
from stakes.experiments.study import Study, enlarged
from stakes.models import load

BUDGET, CEILING, LEVEL, COST = 576, 0.02, 0.95, 10.0
FEW = 224  # tokens at which some totals of synthetic receipts are wrong; at 576 none is
METRIC, NAME = "fields", "escalation-receipts"
COLUMNS = ["pages", "model", "review", "receipts", "questions", "flagged", "error of unflagged", "at most"]


def totals(count: int) -> list[Sample]:
    """Synthetic receipts, each with the question for its total."""
    found: list[Sample] = []
    seed = 0
    while len(found) < count:
        page = draw("receipts", seed, "test")
        for number, question in enumerate(page.questions):
            if question.field == "total":
                found.append(_sample(page, number, seed))
                break
        seed += 1
    return found


def _sample(page: Page, number: int, seed: int) -> Sample:
    question = page.questions[number]
    return Sample(
        id=f"{page.document}/{number}",
        question=question.text,
        answers=question.answers,
        tier="total",
        label="total",
        document=page.document,
        size=page.image.size,
        digest=digest(page.image.tobytes()),
        load=lambda: draw("receipts", seed, "test").image,
    )


def synthetic(study: Study, count: int, budget: int) -> list[list[Any]]:
    """All totals at a budget, and those that are not flagged at the certified ceiling, where one is."""
    samples, name = totals(count), f"synthetic totals at {budget} tokens"
    outcomes = _answers(study, "receipts-totals", samples, budget)
    table, measured = answer_table(outcomes, {"total": COST}), by_document(outcomes, {"total": COST})
    own, other = (part.tiers["total"] for part in table.divide(measured.split()[0].documents))
    found = review_ceiling("total", own, other, TierOption(budget), CEILING, LEVEL)
    options = {"no review": TierOption(budget)}
    how = f"certified at most {CEILING:.0%}" if found.below else f"{CEILING:.0%} cannot be certified"
    options[how] = TierOption(budget, None, found.below)
    return [
        [name, study.name, how, *_rates([(other, option)])]
        for how, option in options.items()
        if how == "no review" or option.review_below is not None
    ] + ([] if found.below else [[name, study.name, how, *[None] * 5]])


def real(study: Study, samples: Sequence[Sample]) -> list[list[Any]]:
    """Each half flagged by the other half's threshold: all fields together, and totals alone."""
    asked, _ = answerable(study.model, samples)
    outcomes = _answers(study, "sroie", asked)
    groups = {"all fields": outcomes, "totals": [o for o in outcomes if o.sample.endswith("_total")]}
    return [row for name, found in groups.items() for row in _halves(f"real receipts, {name}", study.name, found)]


def _halves(name: str, model: str, outcomes: Sequence[Outcome]) -> list[list[Any]]:
    same = [replace(outcome, tier="all") for outcome in outcomes]
    documents = list(dict.fromkeys(outcome.document for outcome in same))
    table = answer_table(same, {"all": COST})
    one, two = (part.tiers["all"] for part in table.divide(documents[::2]))
    parts = []
    for own, other in ((one, two), (two, one)):
        curves = by_document([o for o in same if o.document in set(own.documents.tolist())]).curves()
        terms = Terms({"all": COST}, {"all": len(own)}, BUDGET * len(own))
        rules = OptionRules(escalate=False, review_cost=1.0)
        parts.append((other, choose_options(AnswerTable({"all": own}), curves, terms, rules).options["all"]))
    plain = [(answers, TierOption(BUDGET)) for answers, _ in parts]
    return [[name, model, "no review", *_rates(plain)], [name, model, "by the other half", *_rates(parts)]]


def _rates(parts: Sequence[tuple[TierAnswers, TierOption]]) -> list[Any]:
    """Receipts, questions, share flagged, error of the others, and its upper bound."""
    served = [answers.serve(option) for answers, option in parts]
    counts = [by_document_counts(answers, one) for (answers, _), one in zip(parts, served, strict=True)]
    wrong, passed = (np.concatenate([count[i] for count in counts]) for i in (0, 1))
    flagged = np.concatenate([one.flagged for one in served])
    rates = [round(float(wrong.sum() / passed.sum()), 4), round(upper_error(wrong, passed, LEVEL), 4)]
    return [sum(count[2] for count in counts), len(flagged), round(float(flagged.mean()), 4), *rates]


def _answers(study: Study, source: str, samples: Sequence[Sample], budget: int = BUDGET) -> list[Outcome]:
    found = study.answers(source, samples, [[budget] * len(samples)], Setting("resolution", None, METRIC))
    return list(found.values())


def main() -> None:
    """Measure what is asked for, and write it beside what the file holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder with questions.jsonl of real receipts")
    parser.add_argument("--folder", type=Path, required=True, help="where answers are kept")
    parser.add_argument("--receipts", type=int, default=400, help="synthetic receipts; 0: none")
    parser.add_argument("--model", action="append", choices=("embedded", "ocr"), help="for real receipts")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    kept = json.loads(given.out.read_text("utf-8")) if given.out is not None and given.out.exists() else {}
    rows = [tuple(row) for row in kept.get("tables", {}).get(NAME, {}).get("rows", [])]
    progress, new = Progress(sys.stderr, "receipts"), []
    if given.receipts:
        study = Study(load("embedded"), "embedded", given.folder, mechanism="resolution", progress=progress)
        new += [row for budget in (FEW, BUDGET) for row in synthetic(study, given.receipts, budget)]
    for name in (given.model or ("embedded", "ocr")) if given.data is not None else ():
        study = Study(load(name), name, given.folder, mechanism="resolution", progress=progress)
        samples = prepare_samples(read_samples(given.data / "questions.jsonl"), given.data)
        new += real(study, [enlarged(sample, "qwen2.5-vl") for sample in samples])
    again = {tuple(row[:2]) for row in new}
    table = {"columns": COLUMNS, "rows": [*(row for row in rows if row[:2] not in again), *new]}
    print(json.dumps(table, indent=1))
    if given.out is not None:
        record = {"about": about(), "tables": {NAME: table}}
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
