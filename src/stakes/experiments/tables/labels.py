"""The rule and the learned signal on real questions.

Do the tiers track real consequence, and can they be learned? The rule against the content of the gold answer, and a
learned signal that predicts the tier from the question alone, scored with whole documents held out. With a judge
(``--judge``, a labels file or an address) also the rule against the judge, and a signal learned from the judge's
labels. Needs real questions: a benchmark of the hub or a samples file (``--data docvqa``, ``--data docvqa=FILE``); no
model is asked. Paper, tables "Label validation" and "Automatic consequence prediction".
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stakes.data.hub.sources import SOURCES
from stakes.data.sample import Sample, read_samples
from stakes.errors import BadInput
from stakes.experiments.estimate import Ask
from stakes.experiments.study import Study
from stakes.experiments.table import Row, Table
from stakes.published import figures
from stakes.signals import Judge, KeywordRule
from stakes.signals.agreement import KINDS, Confusion, gold_check
from stakes.signals.crossval import Scores, score_folds
from stakes.signals.validation import predict_judge, validate_with_judge

# the model only names the file's tables; it answers nothing
OPTIONS = frozenset({"--model", "--data", "--folder", "-o", "--judge", "--judge-model", "--judge-key-env"})
DATASETS = ("docvqa",)
SOURCE = "stakes"
JUDGED = 100  # questions of each tier that the judge labels, as in the paper
CELLS = ("HH", "LL", "HL", "LH")
COLUMNS = ("source", "check", "questions", "agreement", "F1", "kappa", "H/H", "L/L", "H/L", "L/H")
NEEDS = "labels are validated on real question texts; give --data docvqa, or a samples file: --data docvqa=FILE"


def asks(_study: Study) -> set[Ask]:
    """No answers: only texts are read."""
    return set()


def table(study: Study) -> Table:
    """The rule and the learned signal on the questions of the samples file."""
    samples, rule = _texts(study), KeywordRule()
    tiers = [rule(sample.question).tier for sample in samples]
    gold = Confusion.of(tiers, gold_check(sample.answers for sample in samples), ("high", "low"))
    high, low = (quantitative / max(1, quantitative + other) for quantitative, other in gold.counts)
    documents = [sample.group or sample.document or sample.id for sample in samples]
    learned, findings = _learned([s.question for s in samples], tiers, documents)
    judge_rows, judge_findings = _by_judge(study.judge, samples)
    printed, predicted = figures()["label_validation"], figures()["predictor"]
    shares = (printed["gold_answer"][f"quantitative_{tier}"] for tier in ("high", "low"))
    return Table(
        name="labels",
        title="Label validation and prediction on real questions",
        columns=COLUMNS,
        rows=(
            _confusion_row("gold answer", gold),
            *learned,
            *judge_rows,
            _published_row("gold answer", printed["gold_answer"]),
            _published_scores("learned signal", predicted["rule_tier"]),
            _published_row("LLM judge", printed["llm_judge"]),
            _published_scores("learned signal on the judge's labels", predicted["llm_judge"]),
        ),
        findings=(
            f"quantitative answers: {high:.1%} of high and {low:.1%} of low questions (published "
            f"{' and '.join(f'{share:.1%}' for share in shares)})",
            *findings,
            *judge_findings,
        ),
        meta={"questions": len(samples), "rule": "keywords"},
    )


def _texts(study: Study) -> list[Sample]:
    """The questions: those of the benchmark's sample, or all of a file."""
    source = study.source("docvqa")
    if source in SOURCES:
        return study.questions(source)
    if not Path(source).is_file():
        raise BadInput(NEEDS)
    return read_samples(source)


def _learned(questions: Sequence[str], tiers: Sequence[str], documents: Sequence[str]) -> tuple[list[Row], list[str]]:
    """The row of a signal learned from the rule's tiers; a finding where there are too few questions for one."""
    try:
        scores = score_folds(questions, tiers, documents, most_expensive="high", repeats=2)
    except BadInput as error:
        return [], [f"no signal was learned from the rule's tiers: {error}"]
    return [_scores_row("learned signal", len(questions), scores)], []


def _by_judge(judge: Judge | None, samples: list[Sample]) -> tuple[list[Row], list[str]]:
    """Rows and findings of the rule against the judge."""
    if judge is None:
        return [], ["the LLM judge was not asked: give its labels file or its address with --judge"]
    if judge.offline:  # a labels file may cover a part; a served judge reads the drawn sample only
        verdicts = judge.read([s.question for s in samples], [s.id for s in samples])
        samples = [sample for sample, verdict in zip(samples, verdicts, strict=True) if verdict.decided]
    rule = KeywordRule()
    tiers = [rule(sample.question).tier for sample in samples]
    each = min(JUDGED, tiers.count("high"), tiers.count("low"))
    if not each:
        raise BadInput(f"{judge.name} has no label of questions that the rule calls high and low; check their ids")
    validated = validate_with_judge([s.question for s in samples], judge, ids=[s.id for s in samples], per_tier=each)
    rows = [_confusion_row(f"LLM judge ({judge.name})", validated.confusion)]
    counts = Counter(kind for _, kind in validated.disagreements)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if kind in counts)
    judged = [samples[i] for i in validated.judged]  # an undecided one would be judged again
    undecided = f"{len(validated.sampled) - len(judged)} of {len(validated.sampled)} undecided"
    findings = [f"judge: {undecided}; disagreements: {kinds or 'none'}"]
    try:
        scores = predict_judge(
            [s.question for s in judged],
            judge,
            ids=[s.id for s in judged],
            groups=[s.group or s.document or s.id for s in judged],
            repeats=2,
        )
    except BadInput as error:
        return rows, [*findings, f"no signal was learned from the judge's labels: {error}"]
    return [*rows, _scores_row("learned signal on the judge's labels", len(judged), scores)], findings


def _confusion_row(check: str, confusion: Confusion) -> Row:
    (hh, hl), (lh, ll) = confusion.counts
    return SOURCE, check, confusion.n, confusion.agreement, None, confusion.kappa, hh, ll, hl, lh


def _scores_row(check: str, count: int, scores: Scores) -> Row:
    return SOURCE, check, count, scores.accuracy, scores.f1, scores.kappa, None, None, None, None


def _published_row(check: str, printed: Mapping[str, Any]) -> Row:
    return "published", check, printed["n"], printed["agree"], None, printed["kappa"], *(printed[c] for c in CELLS)


def _published_scores(check: str, printed: Mapping[str, Any]) -> Row:
    return "published", check, printed["n"], printed["acc"], printed["f1"], printed["kappa"], *[None] * 4
