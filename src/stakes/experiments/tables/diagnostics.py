"""Which tasks need tokens: error with all tokens, a half and a quarter.

A task that is answered as well from a quarter of its tokens is saturated: no budget can help it. Beside it, what a
shift of shares does there: every image keeps half of its tokens, or the high tier 0.65 of them and the low tier the
rest. Paper, supplement "Task-Level Sensitivity Diagnostics", which does not say how its tiers were drawn. Here they are
the samples' own, which are the keyword rule's on benchmarks; where all are of one tier (solid colors), high and low by
turns.
"""

from collections.abc import Sequence
from dataclasses import replace

from stakes.calibration.arms import proportional
from stakes.calibration.arms.comparison import compare
from stakes.data.sample import Sample
from stakes.data.synthetic import FAMILIES
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.statistics import discordant
from stakes.experiments.estimate import NATIVE, Ask, how
from stakes.experiments.study import OFFLINE, Study
from stakes.experiments.table import EITHER_MECHANISM, Cell, Row, Table, discordant_cells
from stakes.experiments.tables.cross_task import PER_TASK
from stakes.experiments.tables.within_task import COSTS
from stakes.models.identity import native_tokens
from stakes.published import figures

OPTIONS, DATASETS = EITHER_MECHANISM, tuple(OFFLINE)
SHARES = (1.0, 0.5, 0.25)
HIGH_SHARE = 0.65  # the larger of the paper's two
COLUMNS = (
    "source", "data", "questions", "error, all tokens", "half", "a quarter", "b:c, quarter to all", "p",
    "CWE (r = 5): uniform", "cost",
)  # fmt: skip


def asks(study: Study) -> set[Ask]:
    """Every data set at three shares of its native tokens, and once more with shares by tier."""
    count = min(PER_TASK, study.per_tier)
    return {
        Ask(f"{study.source(dataset)} first", count, how(study.mechanism), f"{share}", round(share * NATIVE))
        for dataset in DATASETS
        for share in (*SHARES, 0.5001, HIGH_SHARE)  # equal totals may move some halves by a token
    }


def table(study: Study) -> Table:
    """Every data set at three shares of its native tokens."""
    rows: list[Row] = []
    saturated: list[str] = []
    sensitive: list[str] = []
    findings = []
    for source in map(study.source, DATASETS):
        samples = _with_both_tiers(study.first(source, min(PER_TASK, study.per_tier), "cross_task"))
        native = [native_tokens(study.model, *sample.size, study.mechanism) for sample in samples]
        budgets = [[max(1, int(share * tokens)) for tokens in native] for share in SHARES]
        log = source if source in FAMILIES else f"{source}-first"  # not the tiered questions of the same benchmark
        outcomes = study.answers(log, samples, budgets)
        right = [[outcomes[s.id, b].correct for s, b in zip(samples, each, strict=True)] for each in budgets]
        pair = discordant(right[2], right[0], [sample.document for sample in samples])
        (saturated if pair.p >= 0.05 else sensitive).append(source)
        errors = [1 - sum(each) / len(each) for each in right]
        try:
            shifted: tuple[Cell, Cell] = _shifted(study, log, samples, native)
        except (BadInput, InfeasibleBudget) as error:
            shifted = None, None
            findings.append(f"{source}: no shares by tier: {error}")
        rows.append((study.name, source, len(samples), *errors, *discordant_cells(pair), *shifted))
    return Table(
        name="diagnostics",
        title=f"Task-level sensitivity: {study.name}, by {study.mechanism}",
        columns=COLUMNS,
        rows=(*rows, *_published()),
        findings=(
            f"a quarter of the tokens costs accuracy on {', '.join(sensitive) or 'none'}; no loss can be shown on "
            f"{', '.join(saturated) or 'none'} (published: solid colors saturate at 25-50 %, TextVQA is weakly "
            "sensitive, DocVQA is not saturated)",
            *findings,
        ),
        meta={
            "model": study.name,
            "shares": SHARES,
            "high_share": HIGH_SHARE,
            "data": {d: study.source(d) for d in DATASETS},
        },
    )


def _with_both_tiers(samples: Sequence[Sample]) -> list[Sample]:
    """The samples in two tiers: their own, or by turns where all are of one."""
    if {sample.tier for sample in samples} == set(COSTS):
        return list(samples)
    return [replace(sample, tier=("high", "low")[i % 2]) for i, sample in enumerate(samples)]


def _shifted(study: Study, source: str, samples: Sequence[Sample], native: Sequence[int]) -> tuple[float, float]:
    """CWE where all keep half of their tokens, and where the high tier keeps more at the same total."""
    tiers = [sample.tier for sample in samples]
    arms = {
        "uniform": proportional(tiers, native, "high", SHARES[1], SHARES[1]),
        "cost": proportional(tiers, native, "high", HIGH_SHARE, SHARES[1]),
    }
    outcomes = study.answer_arms(source, samples, arms, Setting(study.mechanism, None, study.metric))
    uniform, cost = compare(outcomes, COSTS).rows
    return uniform.cwe, cost.cwe


def _published() -> list[Row]:
    printed, none = figures()["diagnostics"], [None] * 5
    quarter, full = printed["docvqa_quarter_tokens_high_error"], printed["docvqa_full_high_error"]
    rows: list[Row] = [("published", "docvqa (high tier)", None, full, None, quarter, None, None, None, None)]
    for dataset in ("textvqa", "solid_color"):
        cwe = printed[f"{dataset}_cwe"]
        rows.append(("published", dataset, None, *none, cwe["uniform"], cwe["cost"]))
    return rows
