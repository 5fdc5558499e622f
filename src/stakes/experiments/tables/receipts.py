"""Real receipts field by field, at a few budgets and with all tokens.

The paper has no such table. Needs receipts (``--data sroie=FOLDER``): a samples file that asks every receipt for the
same fields, with ids that end in the field's name, such as ``sroie_017_total``. "All tokens" are those of the page in
the checkpoint's own bounds.
"""

from dataclasses import replace
from pathlib import Path

from stakes.budgets.curve import proportion_interval
from stakes.data.sample import Sample, read_samples
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.samples import prepare_samples
from stakes.experiments.estimate import NATIVE, Ask, grid_asks, how
from stakes.experiments.study import LEAST_TOKENS, RECEIPTS, Study
from stakes.experiments.table import EITHER_MECHANISM, Row, Table, format_interval
from stakes.experiments.tables import experiment
from stakes.models.base import CONFIDENCE
from stakes.models.embedded import UNSURE_BELOW
from stakes.models.identity import native_tokens

OPTIONS, DATASETS = EITHER_MECHANISM, ("docvqa",)  # which receipts replace
NAME = "receipts"
BUDGETS = (96, 224, 448)
COLUMNS = (
    "source", "field", "tier", "receipts", *(f"error at {budget}" for budget in BUDGETS), "all tokens", "right",
    "95 %", "cut off",
)  # fmt: skip


def asks(study: Study) -> set[Ask]:
    """Every receipt's fields at a few budgets and with all tokens."""
    budgets = grid_asks({RECEIPTS: 2 * study.per_tier}, how(study.mechanism), BUDGETS)
    return budgets | {Ask(RECEIPTS, 2 * study.per_tier, how("deletion"), "native", NATIVE)}


def table(study: Study) -> Table:
    """One row per field, in the file's order."""
    if RECEIPTS not in study.data:
        raise BadInput(f"receipts are real pages; give a folder or a samples file: --data {RECEIPTS}=FOLDER")
    samples = study.questions(RECEIPTS)
    native = [native_tokens(study.model, *sample.size, "deletion") for sample in samples]
    small = study.answers(RECEIPTS, samples, [[budget] * len(samples) for budget in BUDGETS])
    whole = study.answers(RECEIPTS, samples, [native], Setting("deletion", None, study.metric))
    full = {sample.id: whole[sample.id, tokens] for sample, tokens in zip(samples, native, strict=True)}
    rows: list[Row] = []
    for field in dict.fromkeys(map(_field, samples)):
        these = [sample for sample in samples if _field(sample) == field]
        right = [full[sample.id].correct for sample in these]
        errors = [sum(not small[sample.id, budget].correct for sample in these) / len(these) for budget in BUDGETS]
        count, correct = len(these), sum(right)
        rows.append((
            study.name, field, these[0].tier, count, *errors, (count - correct) / count, f"{correct} of {count}",
            format_interval(proportion_interval(correct / count, count)),
            sum(full[sample.id].truncated for sample in these),
        ))  # fmt: skip
    sure = [(outcome.correct, outcome.confidence) for outcome in full.values() if outcome.confidence is not None]
    marked = {right: [value < UNSURE_BELOW for was, value in sure if was is right] for right in (True, False)}
    return Table(
        name=NAME,
        title=f"Real receipts by field: {study.name}, by {study.mechanism}",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=(
            f"all tokens are {min(native)} to {max(native)} of a receipt, {sum(native) / len(native):.0f} on average",
            f"with all tokens, a confidence ({CONFIDENCE}) below {UNSURE_BELOW} marks {sum(marked[False])} of "
            f"{len(marked[False])} wrong and {sum(marked[True])} of {len(marked[True])} right answers",
        ),
        meta={"model": study.name, "data": RECEIPTS, "mechanism": study.mechanism, "budgets": BUDGETS},
    )


def _field(sample: Sample) -> str:
    return sample.id.rpartition("_")[2]


def of_receipts(measured: Table, study: Study) -> Table:
    """A table that was measured on receipts, under a name of its own, with a finding that says what they are."""
    samples, path = study.questions(RECEIPTS), Path(study.data[RECEIPTS])
    prepared = study.without_margins(prepare_samples(read_samples(path), path.parent, study.signal), 0)
    sizes = {sample.id: sample.size for sample in prepared}
    enlarged = {sample.document for sample in samples if sample.size != sizes[sample.id]}
    finding = (
        f"real receipts: {len(samples)} questions on {len({sample.document for sample in samples})} different "
        f"receipts, {len(enlarged)} of which were enlarged to {LEAST_TOKENS} tokens, and none was left out; tiers as "
        f"labelled; graded by {study.metric}"
    )
    by_resolution = study.mechanism == "resolution" and "--mechanism" in experiment(measured.name).OPTIONS
    return replace(
        measured,
        name="-".join(dict.fromkeys((NAME, measured.name))) + ("-resolution" if by_resolution else ""),
        findings=(*measured.findings, finding),
        meta={**measured.meta, "metric": study.metric},
    )
