"""The paper's judge experiments with small language models that run on this machine.

    make judge DATA=/path/to/docvqa/questions.jsonl       # writes docs/results/judge.json

Paper, tables "Label validation" and "Automatic consequence prediction": the keyword rule against an LLM judge on a
seed-fixed sample of 100 + 100 questions, and a signal learned from the judge's labels. Here each judge is also compared
with the gold-answer check on the same questions, and asked again with the ratings in the other order. Verdicts are
cached in ``--folder``: a run that was killed continues. No question is written to the results.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import about

from stakes.commands.output import as_markdown
from stakes.data.sample import Sample, read_samples
from stakes.errors import BadInput
from stakes.experiments.table import Row
from stakes.published import figures
from stakes.signals import Judge, KeywordRule
from stakes.signals.agreement import NAVIGATIONAL, TRIVIAL_TIME, Confusion, gold_check, kind_of
from stakes.signals.judge import RUBRIC
from stakes.signals.validation import predict_judge, stratified_sample

ROOT = Path(__file__).resolve().parents[1]
NAMES = {"qwen": "Qwen2.5-Coder-1.5B-Instruct Q4_K_M", "smollm2": "SmolLM2-135M-Instruct Q4_1"}
TIERS = ("high", "low")
COLUMNS = ("source", "raters", "questions", "undecided", "agreement", "kappa", "95 %", "H/H", "L/L", "H/L", "L/H")
MAX_TOKENS = 32  # a reply that counts has about 15
PER_TIER, SEED, REPEATS, RESAMPLES = 100, 0, 10, 4000


class Run(NamedTuple):
    """What one model gives: rows of the table and findings."""

    rows: list[Row]
    findings: list[str]


@contextmanager
def served(model: str, python: Path, threads: int, log: Path) -> Iterator[str]:
    """The address of a model that is served in its own process and environment."""
    command = [str(python), str(ROOT / "benchmarks" / "judge_server.py"), model, "--threads", str(threads)]
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            if not address:
                raise SystemExit(f"the model {model} is not served; the reason is at the end of {log}")
            yield f"{address}/v1"
        finally:
            process.stdin.close()  # the server ends with its input
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def draw(samples: Sequence[Sample]) -> list[Sample]:
    """The sample that ``validate_with_judge`` and ``reproduce labels`` draw."""
    rule = KeywordRule()
    tiers = [rule(sample.question).tier for sample in samples]
    return [samples[i] for i in stratified_sample(tiers, [sample.id for sample in samples], PER_TIER, SEED)]


def interval(confusion: Confusion) -> str:
    """95 % of kappa over resampled questions."""
    counts = np.array(confusion.counts)
    drawn = np.random.default_rng(SEED).multinomial(confusion.n, (counts / counts.sum()).ravel(), size=RESAMPLES)
    kappas = [Confusion(confusion.tiers, tuple(map(tuple, one.reshape(counts.shape).tolist()))).kappa for one in drawn]
    low, high = np.nanquantile(kappas, [0.025, 0.975])
    return f"[{low:.3f}, {high:.3f}]"


def confusion_row(source: str, raters: str, confusion: Confusion, undecided: int | None) -> Row:
    """One row of the table; the first rater's tier is the first letter of a cell."""
    (hh, hl), (lh, ll) = confusion.counts
    cells = (hh, ll, hl, lh)
    return source, raters, confusion.n, undecided, confusion.agreement, confusion.kappa, interval(confusion), *cells


def ask(judge: Judge, samples: Sequence[Sample]) -> dict[str, str]:
    """The judge's tiers by sample id, without the undecided; progress is printed."""
    found: dict[str, str] = {}
    for start in range(0, len(samples), 20):
        part = samples[start : start + 20]
        readings = judge.read([sample.question for sample in part], workers=2)
        found |= {s.id: reading.tier for s, reading in zip(part, readings, strict=True) if reading.decided}
        print(f"{judge.name}: {start + len(part)} of {len(samples)}, {len(found)} decided", file=sys.stderr, flush=True)
    return found


def measure(name: str, judge: Judge, swapped: Judge, samples: Sequence[Sample], repeats: int = REPEATS) -> Run:
    """The judge against the rule and the gold answers, the signal learned from it, and the order of the ratings."""
    verdicts = ask(judge, samples)
    undecided = len(samples) - len(verdicts)
    if not verdicts:
        found = f"{name} decides on none of {len(samples)} questions: no reply names a tier, so all stay undecided"
        return Run([(name, "rule and judge", 0, undecided, *[None] * 7)], [found])
    judged = [sample for sample in samples if sample.id in verdicts]
    theirs = [verdicts[sample.id] for sample in judged]
    rule = [KeywordRule()(sample.question).tier for sample in judged]
    gold = gold_check(sample.answers for sample in judged)
    by_rule, by_gold = Confusion.of(rule, theirs, TIERS), Confusion.of(gold, theirs, TIERS)
    rows = [
        confusion_row(name, "rule and judge", by_rule, undecided),
        confusion_row(name, "gold answer and judge", by_gold, undecided),
        confusion_row(name, "gold answer and rule, same questions", Confusion.of(gold, rule, TIERS), undecided),
    ]
    too_high = [
        kind_of(s.question, too_high=True)
        for s, r, v in zip(judged, rule, theirs, strict=True)
        if (r, v) == ("high", "low")
    ]
    trivial = sum(kind in (NAVIGATIONAL, TRIVIAL_TIME) for kind in too_high)
    other = ask(swapped, judged)
    both = [sample for sample in judged if sample.id in other]
    same = sum(verdicts[s.id] == other[s.id] for s in both)
    findings = [
        f"{name}: {trivial} of {len(too_high)} questions that the rule calls high and the judge low ask for "
        "navigational numbers or trivial times (published: about 60 %)",
        f"{name}: with the ratings listed in the other order {same} of {len(both)} verdicts stay the same",
    ]
    try:
        rows += learned(name, judge, judged, undecided, repeats)
    except BadInput as error:
        findings.append(f"{name}: no signal is learned from its labels: {error}")
    return Run(rows, findings)


def learned(name: str, judge: Judge, judged: Sequence[Sample], undecided: int, repeats: int) -> list[Row]:
    """A signal learned from the judge's labels, held out by question as in the paper, and by document."""
    texts, documents = [s.question for s in judged], [s.document or s.id for s in judged]
    rows: list[Row] = []
    for raters, groups in (("judge and learned signal", None), ("the same, documents held out", documents)):
        scores = predict_judge(texts, judge, groups=groups, repeats=repeats)
        rows.append((name, raters, len(judged), undecided, scores.accuracy, scores.kappa, *[None] * 5))
    return rows


def published() -> list[Row]:
    """The paper's two rows."""
    judge, predictor = figures()["label_validation"]["llm_judge"], figures()["predictor"]["llm_judge"]
    cells = [judge[cell] for cell in ("HH", "LL", "HL", "LH")]
    return [
        ("published", "rule and judge", judge["n"], None, judge["agree"], judge["kappa"], None, *cells),
        (
            "published",
            "judge and learned signal",
            predictor["n"],
            None,
            predictor["acc"],
            predictor["kappa"],
            *[None] * 5,
        ),
    ]


def main() -> None:
    """Ask every model, print the table and write the results file."""
    parser = argparse.ArgumentParser(description="Run the judge with small language models on this machine.")
    parser.add_argument("--data", type=Path, required=True, help="samples file of DocVQA questions")
    parser.add_argument("--models", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--python", type=Path, default=ROOT / ".venv-judge" / "bin" / "python")
    parser.add_argument("--threads", type=int, default=1, help="of the server; more only help on idle cores")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "judge", help="verdicts and logs")
    parser.add_argument("--out", type=Path, help="results file, such as docs/results/judge.json")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    samples = draw(read_samples(given.data))
    rows, findings = published(), []
    swapped = dict(reversed(RUBRIC.items()))
    for model in given.models:
        name = NAMES[model]
        with served(model, given.python, given.threads, given.folder / f"{model}.log") as url:
            options: dict[str, Any] = {"timeout_s": 600, "max_tokens": MAX_TOKENS}
            first = Judge(url, name, cache=given.folder / f"{model}.jsonl", **options)
            second = Judge(url, name, cache=given.folder / f"{model}-swapped.jsonl", rubric=swapped, **options)
            with first, second:
                run = measure(name, first, second, samples)
        rows += run.rows
        findings += run.findings
    table = {
        "command": "make judge DATA=docvqa/questions.jsonl",
        "columns": COLUMNS,
        "rows": rows,
        "findings": findings,
        "meta": {"questions": len(samples), "seed": SEED, "rubric": "paper", "wording": "kind of answer, then tier"},
    }
    print(as_markdown(COLUMNS, rows))
    print("\n".join(f"- {line}" for line in findings))
    if given.out is not None:
        results = {"machine": about("stakes", "scikit-learn"), "tables": {"judge": table}}
        given.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
