"""How far does a reader go on real pages? Its error on DocVQA, ChartQA and SROIE at full size, whatever it is.

    PYTHONPATH=src:. python -m training.real --data DIR --model embedded --per-set 100

DIR holds ``docvqa/``, ``chartqa/`` and ``sroie/`` as ``stakes reproduce legibility`` takes them. The reader was never
shown a real page; this is a stated limit of its model card, not a bar.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

from stakes.evaluation.grading import grade, is_correct
from stakes.experiments.legibility.real_pages import SETS, real_set
from stakes.models import load
from stakes.models.base import Request

METRICS = ("relaxed", "exact")


def main() -> None:
    """One line a set: questions, error by metric, and by tier under the first."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", type=Path, required=True)
    p.add_argument("--model", default="embedded")
    p.add_argument("--per-set", type=int, default=100, help="questions of each set, the first ones")
    p.add_argument("--out", type=Path)
    a = p.parse_args()
    model, found = load(a.model), {}
    for name in SETS:
        samples = real_set(a.data, name)[0][: a.per_set]
        right: dict[str, list[bool]] = defaultdict(list)
        for sample in samples:
            (answer,) = model.answer([Request(sample.load(), sample.question)])
            scores = [is_correct(grade(answer.text, sample.answers, metric)) for metric in METRICS]
            for metric, score in zip(METRICS, scores, strict=True):
                right[metric].append(score)
            right[sample.tier].append(scores[0])
        found[name] = {"questions": len(samples)} | {k: round(1 - sum(v) / len(v), 4) for k, v in sorted(right.items())}
        print(name, json.dumps(found[name]), flush=True)
    if a.out:
        a.out.write_text(json.dumps({"model": a.model, "error": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
