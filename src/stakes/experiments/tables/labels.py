"""Do the tiers track real consequence, and can they be learnt? The rule on real question texts.

Rule against the gold answer's content, and a learned signal that predicts the tier from the question alone. With a
judge (``--judge`` a labels file or an address) also rule against judge, and a signal learnt from the judge's labels.
Needs a samples file with real questions (``--data docvqa=FILE``); no image is opened. Paper, tables
"Label validation" and "Automatic consequence prediction".
"""

from pathlib import Path

from stakes.data.sample import Sample, read_samples
from stakes.errors import BadInput
from stakes.experiments.study import Study
from stakes.experiments.table import Cell, Table
from stakes.published import figures
from stakes.signals import KeywordRule
from stakes.signals.agreement import Confusion, count_kinds, gold_check, is_quantitative
from stakes.signals.crossval import score_folds
from stakes.signals.validation import predict_judge, validate_with_judge

OURS = "stakes"  # no model is asked
JUDGED = 100  # questions of each tier that the judge is asked about, as in the paper
COLUMNS = ("source", "check", "questions", "agreement", "kappa", "H/H", "L/L", "H/L", "L/H")


def answers(_study: Study) -> int:
    """How many answers it takes: none, only texts are read."""
    return 0


def table(study: Study) -> Table:
    """The rule and the learned signal on the questions of the samples file."""
    source = study.data.get("docvqa", "")
    if not Path(source).is_file():
        raise BadInput("labels are validated on real question texts; give a samples file: --data docvqa=FILE")
    read, rule = read_samples(source), KeywordRule()
    tiers = [rule(sample.question).tier for sample in read]
    gold = gold_check(sample.answers for sample in read)
    found = Confusion.of(tiers, gold, ("high", "low"))
    shares = {
        tier: sum(is_quantitative(s.answers) for s, t in zip(read, tiers, strict=True) if t == tier)
        / max(1, tiers.count(tier))
        for tier in ("high", "low")
    }
    documents = [sample.document or sample.id for sample in read]
    learnt = score_folds([s.question for s in read], tiers, documents, dearest="high", repeats=2)
    rows: list[tuple[Cell, ...]] = [
        (OURS, "gold answer", len(read), found.agreement, found.kappa, *_cells(found)),
        (OURS, "learned signal, documents held out", len(read), learnt.accuracy, learnt.kappa, *[None] * 4),
    ]
    said, told = _by_judge(study, read)
    rows += said
    printed, predicted = figures()["label_validation"], figures()["predictor"]["rule_tier"]
    check = printed["gold_answer"]
    rows += [
        ("published", "gold answer", check["n"], check["agree"], check["kappa"],
         *(check[key] for key in ("HH", "LL", "HL", "LH"))),
        ("published", "learned signal", predicted["n"], predicted["acc"], predicted["kappa"], *[None] * 4),
        ("published", "LLM judge", printed["llm_judge"]["n"], printed["llm_judge"]["agree"],
         printed["llm_judge"]["kappa"], *(printed["llm_judge"][key] for key in ("HH", "LL", "HL", "LH"))),
    ]  # fmt: skip
    return Table(
        name="labels",
        title="Label validation and prediction on real questions",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=(
            f"quantitative answers: {shares['high']:.1%} of high and {shares['low']:.1%} of low questions (published "
            "90.3 % and 32.0 %)",
            *told,
        ),
        meta={"questions": len(read), "rule": "keywords"},
    )


def _by_judge(study: Study, read: list[Sample]) -> tuple[list[tuple[Cell, ...]], list[str]]:
    """Rows and findings of rule against judge; that it was not asked where there is none."""
    judge = study.judge
    if judge is None:
        return [], ["the LLM judge was not asked: give its labels file or its address with --judge"]
    if judge.offline:  # a labels file may cover a part; whoever is asked is asked about the sample alone
        verdicts = judge.read([s.question for s in read], [s.id for s in read])
        read = [sample for sample, verdict in zip(read, verdicts, strict=True) if verdict.decided]
    rule = KeywordRule()
    tiers = [rule(sample.question).tier for sample in read]
    each = min(JUDGED, tiers.count("high"), tiers.count("low"))
    if not each:
        raise BadInput(f"{judge.name} has no label of questions that the rule calls high and low; check their ids")
    seen = validate_with_judge([s.question for s in read], judge, ids=[s.id for s in read], per_tier=each)
    assert seen.confusion is not None  # there is a judge
    rows: list[tuple[Cell, ...]] = [
        (OURS, f"LLM judge ({judge.name})", seen.confusion.n, seen.agreement, seen.kappa, *_cells(seen.confusion))
    ]
    kinds = ", ".join(f"{count} {kind}" for kind, count in count_kinds(seen.disagreements).items() if count)
    told = [f"judge: {seen.unjudged} of {len(seen.sampled)} undecided; disagreements: {kinds or 'none'}"]
    picked = [read[i] for i in seen.judged]  # an undecided one would be asked again
    try:
        learnt = predict_judge(
            [s.question for s in picked],
            judge,
            ids=[s.id for s in picked],
            groups=[s.document or s.id for s in picked],
            repeats=2,
        )
    except BadInput as error:
        return rows, [*told, f"no signal was learnt from the judge's labels: {error}"]
    assert learnt.report is not None  # there is a judge
    scores = learnt.report.grouped
    assert scores is not None  # there are documents
    name = "learned signal on the judge's labels, documents held out"
    rows.append((OURS, name, len(picked), scores.accuracy, scores.kappa, *[None] * 4))
    return rows, told


def _cells(found: Confusion) -> tuple[int, int, int, int]:
    """H/H, L/L, H/L, L/H."""
    (hh, hl), (lh, ll) = found.counts
    return hh, ll, hl, lh
