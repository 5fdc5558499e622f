"""Do the tiers track real consequence, and can they be learnt? The rule on real question texts.

Rule against the gold answer's content, and a learned signal that predicts the tier from the question alone. Needs a
samples file with real questions (``--data docvqa=FILE``); no image is opened. Paper, tables "Label validation" and
"Automatic consequence prediction".
"""

from pathlib import Path

from stakes.data.jsonl import read_samples
from stakes.errors import BadInput
from stakes.experiments.study import Study
from stakes.experiments.table import Cell, Table
from stakes.published import figures
from stakes.signals import KeywordRule
from stakes.signals.agreement import Confusion, gold_check, is_quantitative
from stakes.signals.crossval import score_folds

OURS = "stakes"  # no model is asked
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
            "the LLM judge was not asked: it needs a served model (stakes.signals.judge)",
        ),
        meta={"questions": len(read), "rule": "keywords"},
    )


def _cells(found: Confusion) -> tuple[int, int, int, int]:
    """H/H, L/L, H/L, L/H."""
    (hh, hl), (lh, ll) = found.counts
    return hh, ll, hl, lh
