"""Which tasks need tokens: error with all tokens, a half and a quarter.

A task that is answered as well from a quarter of its tokens is saturated: no budget can help it. Paper, supplement
"Task-Level Sensitivity Diagnostics".
"""

from stakes.evaluation.statistics import discordant
from stakes.experiments.study import OFFLINE, Study
from stakes.experiments.table import EITHER_MECHANISM, Row, Table, discordant_cells
from stakes.experiments.tables.cross_task import PER_TASK, one_task
from stakes.models.identity import native_tokens
from stakes.published import figures

OPTIONS, DATASETS = EITHER_MECHANISM, tuple(OFFLINE)
SHARES = (1.0, 0.5, 0.25)
COLUMNS = ("source", "data", "questions", "error, all tokens", "half", "a quarter", "b:c, quarter to all", "p")


def answers(study: Study) -> int:
    """The number of answers."""
    return len(DATASETS) * len(SHARES) * min(PER_TASK, study.per_tier)


def table(study: Study) -> Table:
    """Every data set at three shares of its native tokens."""
    rows: list[Row] = []
    saturated: list[str] = []
    sensitive: list[str] = []
    for source in map(study.source, DATASETS):
        samples = one_task(study, source, min(PER_TASK, study.per_tier))
        native = [native_tokens(study.model, *sample.size, study.mechanism) for sample in samples]
        budgets = [[max(1, int(share * tokens)) for tokens in native] for share in SHARES]
        outcomes = study.answers(source, samples, budgets)
        right = [[outcomes[s.id, b].correct for s, b in zip(samples, each, strict=True)] for each in budgets]
        pair = discordant(right[2], right[0], [sample.document for sample in samples])
        (saturated if pair.p >= 0.05 else sensitive).append(source)
        errors = [1 - sum(each) / len(each) for each in right]
        rows.append((study.name, source, len(samples), *errors, *discordant_cells(pair)))
    printed = figures()["diagnostics"]
    quarter, full = printed["docvqa_quarter_tokens_high_error"], printed["docvqa_full_high_error"]
    rows.append(("published", "docvqa (high tier)", None, full, None, quarter, None, None))
    return Table(
        name="diagnostics",
        title=f"Task-level sensitivity: {study.name}, by {study.mechanism}",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=(
            f"a quarter of the tokens costs accuracy on {', '.join(sensitive) or 'none'}; no loss can be shown on "
            f"{', '.join(saturated) or 'none'} (published: solid colors saturate at 25-50 %, TextVQA is weakly "
            "sensitive, DocVQA is not saturated)",
        ),
        meta={"model": study.name, "shares": SHARES, "data": {d: study.source(d) for d in DATASETS}},
    )
