"""What misread tiers cost: labels, rules and learned signals on the same pages.

Every signal reads the tier of each question, and the budgets follow what it read. All spend one total: that of the
labels at (512, 96), shared in the ratio 512 : 96. A mistake costs by its label, 5 or 1. So the table shows what is left
of the gain when tiers are read and not known, which the paper did not measure. Learned signals are trained on labeled
questions of other synthetic pages. By deletion, where totals are exact.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from stakes.calibration.arms import anti, by_tier, content, uniform
from stakes.calibration.arms.comparison import Comparison, EqualTotals, compare
from stakes.data import synthetic
from stakes.data.sample import Sample
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.samples import draw_samples
from stakes.experiments.estimate import Ask, arm_asks, how
from stakes.experiments.study import FLOOR, Study
from stakes.experiments.table import MEASURED, Row, Table, discordant_cells, gain_cell
from stakes.experiments.tables.within_task import BUDGETS, COSTS
from stakes.models.identity import native_tokens
from stakes.signals import KeywordRule, LearnedSignal, RequestSignal, Signal

OPTIONS, DATASETS = MEASURED - {"--signal"}, ("docvqa",)
HIGH_LOW = ("high", "low")
TRAINING_SPLIT = "calibration"
LABELED = (100, 600)  # questions that a learned signal is trained on
COLUMNS = (
    "source", "tiers by", "read as high", "high read as low", "low read as high", "high: error", "low: error",
    "CWE (r = 5)", "b:c", "p", "CWE gain",
)  # fmt: skip


def asks(study: Study) -> set[Ask]:
    """Uniform, the labels and their reverse, and every signal with budgets of its own."""
    source, by = study.source("docvqa"), how("deletion")
    counts = dict.fromkeys(BUDGETS, study.count(source))
    read = {
        Ask(f"{source} {tier}", counts[tier], by, f"read by {name}", sum(BUDGETS.values()) // 2)
        for name in ("requests", "keywords", *(f"learned {count}" for count in LABELED if source in synthetic.FAMILIES))
        for tier in counts
    }
    return arm_asks(source, counts, BUDGETS, ("uniform", "cost", "anti"), by) | read


def table(study: Study) -> Table:
    """One row for each signal, under uniform and the labels."""
    source = study.source("docvqa")
    samples = study.questions(source)
    labels = [sample.tier for sample in samples]
    readings = {"labels": labels} | {
        name: [signal(sample.prompt).tier for sample in samples] for name, signal in _signals(source)
    }
    arms = plan(study, samples, readings)
    outcomes = study.answer_arms(source, samples, arms, Setting("deletion", None, study.metric))
    compared = compare(outcomes, COSTS)
    rows: list[Row] = []
    for row in compared.rows:
        read = readings.get(row.arm)
        shown = (None, None, None) if read is None else _confused(labels, read)
        errors = row.errors["high"], row.errors["low"], row.cwe
        rows.append((study.name, row.arm, *shown, *errors, *discordant_cells(row.high_cost), gain_cell(row)))
    return Table(
        name="signals",
        title=f"Tiers by label, rule and learned signal: {study.name} on {source}, by deletion",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=tuple(_findings(source, compared)),
        meta={
            "model": study.name,
            "data": source,
            "split": study.split,
            "questions": dict(compared.counts),
            "documents": compared.documents,
            "total": sum(arms["uniform"]),
        },
    )


def _signals(source: str) -> Iterator[tuple[str, Signal]]:
    yield "requests", RequestSignal()
    yield "keywords", KeywordRule()
    if source in synthetic.FAMILIES:
        drawn = draw_samples(source, TRAINING_SPLIT, max(LABELED) // 2)
        texts, tiers, documents = zip(*((s.question, s.tier, s.document) for s in drawn), strict=True)
        for count in LABELED:
            learned = LearnedSignal(most_expensive="high")
            yield f"learned from {count}", learned.fit(texts[:count], tiers[:count], documents[:count])


def plan(study: Study, samples: Sequence[Sample], readings: Mapping[str, Sequence[str]]) -> dict[str, Sequence[int]]:
    """The arms, all of the total that the labels spend at ``BUDGETS``: uniform, anti, and one for each reading."""
    labels = readings["labels"]
    total = sum(by_tier(labels, BUDGETS))
    native = [native_tokens(study.model, *sample.size, "deletion") for sample in samples]
    arms: dict[str, Sequence[int]] = {"uniform": uniform(len(samples), total)}
    for name, read in readings.items():
        arms[name] = content(by_tier(read, BUDGETS), total, native=native, floor=FLOOR)
    arms["all misread"] = anti(labels, BUDGETS, COSTS, native=native)
    EqualTotals(tuple(sample.id for sample in samples), native, "deletion").check_planned(arms)
    return arms


def _confused(labels: Sequence[str], read: Sequence[str]) -> tuple[int, float, float]:
    """How many questions are read as high; the share of high ones read as low, and of low ones read as high."""
    pairs = Counter(zip(labels, read, strict=True))
    missed, raised = (pairs[tier, other] / max(1, labels.count(tier)) for tier, other in (HIGH_LOW, HIGH_LOW[::-1]))
    return list(read).count("high"), missed, raised


def _findings(source: str, compared: Comparison) -> Iterator[str]:
    rows = {row.arm: row for row in compared.rows}
    known, all_wrong, uniform_cwe = rows["labels"].cwe, rows["all misread"].cwe, rows["uniform"].cwe
    if known < uniform_cwe:
        for name in (name for name in rows if name not in ("uniform", "labels", "all misread")):
            kept = (uniform_cwe - rows[name].cwe) / (uniform_cwe - known)
            yield f"{name} keeps {kept:.0%} of the labels' gain in CWE"
        if all_wrong > uniform_cwe:
            limit = (uniform_cwe - known) / (all_wrong - known)
            yield (
                f"misread at random and equally often in both tiers, the gain is gone at {limit:.0%} on average: "
                f"CWE is {known:.3f} at none and {all_wrong:.3f} at all, and on a line between them"
            )
    else:
        yield "the labels gain nothing here, so nothing can be lost to misread tiers"
    if source not in synthetic.FAMILIES:
        yield f"no learned signal: {source} has no second set of labeled pages to train on"
