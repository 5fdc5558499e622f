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
from stakes.data.synthetic import draw
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.progress import Progress
from stakes.evaluation.samples import answerable, draw_samples, prepare_samples
from stakes.experiments.study import Study, enlarged
from stakes.models import load

BUDGET, CEILING, LEVEL, COST = 576, 0.02, 0.95, 10.0
METRIC = "fields"


def totals(count: int) -> list[Sample]:
    """Synthetic receipts, each with the question for its total."""
    found: dict[str, Sample] = {}
    for sample in draw_samples("receipts", "test", 4 * count):
        document, number = sample.id.rsplit("/", 1)
        if document not in found and len(found) < count:
            page = draw("receipts", int(document.rsplit("/", 1)[1]), "test")
            if page.questions[int(number)].field == "total":
                found[document] = sample
    return list(found.values())


def synthetic(study: Study, count: int) -> dict[str, Any]:
    """The share flagged at the certified ceiling."""
    samples = totals(count)
    outcomes = _answers(study, "receipts-totals", [replace(sample, tier="total") for sample in samples])
    table, measured = answer_table(outcomes, {"total": COST}), by_document(outcomes, {"total": COST})
    own, other = table.divide(measured.split()[0].documents)
    found = review_ceiling("total", own.tiers["total"], other.tiers["total"], TierOption(BUDGET), CEILING, LEVEL)
    plain = _rates(other.tiers["total"], TierOption(BUDGET))
    return {
        "receipts": len(table.tiers["total"]),
        "ceiling": CEILING,
        "certified": found.below is not None,
        "review below": found.below,
        "all": plain,
        "unflagged": None
        if found.below is None
        else _rates(other.tiers["total"], TierOption(BUDGET, None, found.below)),
    }


def real(study: Study, samples: Sequence[Sample]) -> dict[str, Any]:
    """Each half flagged by the other half's threshold: all fields together, and totals alone."""
    asked, excluded = answerable(study.model, samples)
    outcomes = _answers(study, "sroie", asked)
    groups = {"all fields": outcomes, "totals": [o for o in outcomes if o.sample.endswith("_total")]}
    return {"excluded": len(excluded), **{name: _halves(found) for name, found in groups.items()}}


def _halves(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    same = [replace(outcome, tier="all") for outcome in outcomes]
    documents = list(dict.fromkeys(outcome.document for outcome in same))
    table = answer_table(same, {"all": COST})
    one, two = (part.tiers["all"] for part in table.divide(documents[::2]))
    parts = []
    for own, other in ((one, two), (two, one)):
        curves = by_document([o for o in same if o.document in set(own.documents.tolist())]).curves()
        terms = Terms({"all": COST}, {"all": len(own)}, BUDGET * len(own))
        chosen = choose_options(AnswerTable({"all": own}), curves, terms, OptionRules(escalate=False, review_cost=1.0))
        parts.append((other, chosen.options["all"]))
    served = [answers.serve(option) for answers, option in parts]
    counts = [by_document_counts(answers, one)[:2] for (answers, _), one in zip(parts, served, strict=True)]
    wrong, passed = (np.concatenate([count[i] for count in counts]) for i in (0, 1))
    flagged = np.concatenate([one.flagged for one in served])
    return {
        "questions": len(flagged),
        "receipts": len(documents),
        "error of all": float(np.concatenate([one.wrong for one in served]).mean()),
        "flagged": float(flagged.mean()),
        "error of unflagged": float(wrong.sum() / passed.sum()) if passed.any() else None,
        "at most": upper_error(wrong, passed, LEVEL) if passed.any() else None,
        "thresholds": [option.review_below for _, option in parts],
    }


def _rates(answers: TierAnswers, option: TierOption) -> dict[str, Any]:
    served = answers.serve(option)
    wrong, passed, documents = by_document_counts(answers, served)
    return {
        "receipts": documents,
        "flagged": float(served.flagged.mean()),
        "error": float(wrong.sum() / passed.sum()),
        "at most": upper_error(wrong, passed, LEVEL),
    }


def _answers(study: Study, source: str, samples: Sequence[Sample]) -> list[Outcome]:
    found = study.answers(source, samples, [[BUDGET] * len(samples)], Setting("resolution", None, METRIC))
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
    progress = Progress(sys.stderr, "receipts")
    if given.receipts:
        study = Study(load("embedded"), "embedded", given.folder, mechanism="resolution", progress=progress)
        kept["synthetic totals, embedded"] = synthetic(study, given.receipts)
    for name in given.model or ("embedded", "ocr"):
        if given.data is None:
            break
        study = Study(load(name), name, given.folder, mechanism="resolution", progress=progress)
        samples = prepare_samples(read_samples(given.data / "questions.jsonl"), given.data)
        kept[f"real receipts, {name}"] = real(study, [enlarged(sample, "qwen2.5-vl") for sample in samples])
    kept["about"] = about()
    print(json.dumps(kept, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
