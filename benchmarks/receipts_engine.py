"""Real receipts through a stock vLLM: the same answers as transformers at every budget, and the same curve.

    python benchmarks/receipts_engine.py --data DIR/sroie --engine /path/to/vllm-cpu --out receipts-engine.json

``--engine``: a command that serves CHECKPOINT on PORT; ``--url``: a server that runs already, over the weights of
``--model``. Both read in float32; images are resized here and sent as PNG. No text of a receipt is written.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import about

from stakes.commands.output import as_markdown
from stakes.commands.reproduce.options import parse_data
from stakes.data.sample import Sample
from stakes.evaluation.grading import grade, is_correct
from stakes.experiments.study import RECEIPTS, RECEIPTS_METRIC, Study
from stakes.models import load
from stakes.models.base import VLM, Answer, Request

BUDGETS = (64, 96, 160, 224, 304, 448, 576)
TIERS = ("high", "low")
COLUMNS = ("budget", *(f"{tier}: {reader}" for tier in TIERS for reader in ("transformers", "vLLM")), "same answers",
           "largest difference in confidence")  # fmt: skip


def ask(model: VLM, samples: Sequence[Sample], budget: int) -> list[Answer]:
    """Every sample at one budget."""
    return model.answer([Request(sample.load(), sample.question, budget) for sample in samples])


def table(local: VLM, behind: VLM, samples: Sequence[Sample]) -> dict[str, Any]:
    """One row per budget."""
    rows, same = [], 0
    for budget in BUDGETS:
        both = ask(local, samples, budget), ask(behind, samples, budget)
        pairs = list(zip(*both, strict=True))
        if any(ours.realised_tokens != theirs.realised_tokens for ours, theirs in pairs):
            raise SystemExit(f"the server counted other tokens than predicted at a budget of {budget}")
        errors = [_error(samples, answers, tier) for tier in TIERS for answers in both]
        alike = sum(ours.text == theirs.text for ours, theirs in pairs)
        gaps = [
            abs(ours.confidence - theirs.confidence)
            for ours, theirs in pairs
            if ours.text == theirs.text and ours.confidence is not None and theirs.confidence is not None
        ]
        same += alike
        rows.append([budget, *errors, f"{alike} of {len(samples)}", max(gaps, default=None)])
        print(*rows[-1], file=sys.stderr, flush=True)
    findings = [
        f"{same} of {len(BUDGETS) * len(samples)} answers are the same, to the letter",
        f"the server's token count equals the predicted one in all {len(BUDGETS) * len(samples)} requests",
        f"{len(samples)} questions on {len({sample.document for sample in samples})} different receipts, graded by "
        f"{RECEIPTS_METRIC}",
    ]
    return {"columns": list(COLUMNS), "rows": rows, "findings": findings}


def _error(samples: Sequence[Sample], answers: Sequence[Answer], tier: str) -> float:
    wrong = [
        not is_correct(grade(answer.text, sample.answers, RECEIPTS_METRIC, truncated=answer.truncated))
        for sample, answer in zip(samples, answers, strict=True)
        if sample.tier == tier
    ]
    return sum(wrong) / len(wrong)


def main() -> None:
    """Ask both, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder with questions.jsonl, or that file")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--engine", help="a command that serves CHECKPOINT PORT; for the embedded reader")
    parser.add_argument("--url", help="instead: the address of a server, such as http://127.0.0.1:8000/v1")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if (given.engine is None) == (given.url is None):
        parser.error("give --engine or --url")
    local = load(given.model)
    study = Study(local, given.model, Path(), data=parse_data([f"{RECEIPTS}={given.data}"]))
    with ExitStack() as stack:
        url = given.url
        if url is None:
            from tests.gateway.engines import vllm

            with socket.socket() as one:
                one.bind(("127.0.0.1", 0))
                port = int(one.getsockname()[1])
            log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
            url = stack.enter_context(vllm(given.engine, port, log))
        options = {"max_new_tokens": local.max_new_tokens, "concurrency": 4, "empty": "answer", "logprobs": True}
        behind = stack.enter_context(load(url, **options))
        made = table(local, behind, study.questions(RECEIPTS))
    print(as_markdown(made["columns"], made["rows"]))
    if given.out is not None:
        record = {"model": given.model, "about": about("torch", "transformers"), "tables": {"receipts-engine": made}}
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
