"""One change at a time of mechanism, scale, architecture or selector.

Uniform 304 against (512, 96), high tier. Paper, tables "Invariance study" and "Full selector robustness". The budgets
of an AnyRes model are those of the table ``models``. The selectors are the paper's six, or those that the study names,
of which some have no published row. Zero-masking is a control: the tokens that deletion drops stay as zero vectors,
which "collapses generation" (paper, "Two Allocation Mechanisms").
"""

from collections.abc import Callable, Iterator, Sequence

from stakes.calibration.arms.plan import plan_arms
from stakes.errors import BadInput, InfeasibleBudget, StakesError
from stakes.evaluation.fingerprint import Setting
from stakes.experiments.estimate import Ask, arm_asks, how
from stakes.experiments.study import Arms, Study, fixed_policy
from stakes.experiments.table import MEASURED, Row, Table, discordant_cells, published_pair
from stakes.experiments.tables import models
from stakes.experiments.tables.within_task import BUDGETS, COSTS
from stakes.models.identity import family_of
from stakes.published import figures

OPTIONS, DATASETS = MEASURED | {"--selector", "--scale-model", "--architecture-model"}, ("docvqa",)
SELECTORS = ("redundancy", "random", "saliency", "fastv", "sparsevlm", "visionzip")
ARMS = ("uniform", "cost")
ZERO_MASK = "zero-masking, redundancy"
PUBLISHED = {
    "resolution": ("mechanism", "resolution"),
    "qwen25vl_3b_resolution": ("scale", "resolution"),
    "llava_onevision_7b": ("architecture", "resolution"),
}
COLUMNS = (
    "source", "axis", "setting", "high: uniform", "cost", "low: uniform", "cost", "CWE (r = 5): uniform", "cost",
    "b:c", "p",
)  # fmt: skip


def asks(study: Study) -> set[Ask]:
    """Two arms in every setting."""
    source = study.source("docvqa")
    counts = dict.fromkeys(BUDGETS, study.count(source))
    settings = ["resolution", "zero-mask", *(how("deletion", name) for name in study.selectors or SELECTORS)]
    own = {ask for by in settings for ask in arm_asks(source, counts, BUDGETS, ARMS, by)}
    return own | models.asks(study, ARMS)


def table(study: Study) -> Table:
    """Ours above the published rows."""
    selectors = study.selectors or SELECTORS
    rows: list[Row] = []
    missing, averaged = [], []

    def add(of: Study, axis: str, name: str, measure: Callable[[], Arms]) -> None:
        try:
            arms = measure()
        except (BadInput, InfeasibleBudget) as error:  # few pages may not have sizes of the very same total
            missing.append(f"{axis} {name}: {error}")
            return
        rows.append((of.name, axis, name, *_cells(arms)))
        if arms.plan.rounding is not None:
            forced = f"and whole tokens may force {arms.plan.rounding:.3%}"
            averaged.append(f"{name}: arms differ by {arms.deviation:.3%} in {arms.plan.counted}, {forced}")

    add(study, "mechanism", "resolution", lambda: _arms(study, Setting("resolution", None, study.metric)))
    for name in selectors:
        setting = Setting("deletion", name, study.metric)
        add(study, "selector", name, lambda setting=setting: _arms(study, setting))  # type: ignore[misc]
    add(study, "mechanism", ZERO_MASK, lambda: _zero_masked(study))
    for axis in models.AXES:
        if axis not in study.others:
            missing.append(f"{axis}: give {models.OPTION[axis]} NAME")
            continue
        try:
            with study.other(axis) as other:
                add(other, axis, "resolution", lambda other=other: models.measure(other, ARMS))  # type: ignore[misc]
        except StakesError as error:
            missing.append(f"{axis}: {error}")
    compared = [row for row in rows if row[2] != ZERO_MASK]
    lower = sum(float(row[4] or 0) < float(row[3] or 0) for row in compared)
    return Table(
        name="invariance",
        title=f"Invariance: {study.name} on {study.source('docvqa')}",
        columns=COLUMNS,
        rows=(*rows, *_published(selectors)),
        findings=(
            f"high-tier error falls in {lower} of {len(compared)} settings (published: in all)",
            *_collapse(rows),
            *averaged,
            *(f"not measured: {why}" for why in missing),
        ),
        meta={"model": study.name, "data": study.source("docvqa"), "budgets": BUDGETS, "split": study.split},
    )


def _cells(arms: Arms) -> Row:
    uniform, cost = arms.rows["uniform"], arms.rows["cost"]
    errors = [row.errors[tier] for tier in ("high", "low") for row in (uniform, cost)]
    return (*errors, uniform.cwe, cost.cwe, *discordant_cells(cost.high_cost))


def _arms(study: Study, setting: Setting) -> Arms:
    source = study.source("docvqa")
    return study.arms(source, study.questions(source), BUDGETS, COSTS, ARMS, setting)


def _zero_masked(study: Study) -> Arms:
    """The same budgets and the same tokens as by deletion; only what happens to the others differs."""
    source = study.source("docvqa")
    samples = study.questions(source)
    setting = Setting("deletion", None, study.metric, zero_mask=True)
    tiers = [sample.tier for sample in samples]
    policy = fixed_policy(family_of(study.model), "deletion", BUDGETS, COSTS, tiers)
    return study.compared(source, samples, plan_arms(samples, policy, study.model, setting, ARMS), COSTS, setting)


def _collapse(rows: Sequence[Row]) -> Iterator[str]:
    """What zero vectors in place of the deleted tokens do to the error under uniform."""
    errors = {row[2]: row[3] for row in rows}
    if ZERO_MASK in errors and "redundancy" in errors:
        yield (
            f"zero vectors in place of the deleted tokens: high-tier error {errors[ZERO_MASK]:.3f} under uniform, by "
            f"deletion {errors['redundancy']:.3f} (published: zero-masking collapses generation)"
        )


def _published(selectors: Sequence[str]) -> Iterator[Row]:
    for key, (axis, name) in PUBLISHED.items():
        row = figures()["invariance_docvqa_high_error"][key]
        low, cwe = (None, None), (None, None)
        if axis in models.AXES:
            arms = figures()[models.AXES[axis][0]]["arms"]
            low, cwe = ((arms["uniform"][i], arms["cost"][i]) for i in (1, 3))
        yield "published", axis, name, row["uniform"], row["cost"], *low, *cwe, *published_pair(row["mcnemar"])
    published = figures()["selectors_docvqa"]
    for name in (name for name in selectors if name in published):
        cells = [value for pair in zip(*(published[name][arm] for arm in ARMS), strict=True) for value in pair]
        yield "published", "selector", name, *cells, *published_pair(published[name]["mcnemar"])
