"""One change at a time of mechanism, scale, architecture or selector.

Uniform 304 against (512, 96), high tier. Paper, tables "Invariance study" and "Full selector robustness". The sizes of
an AnyRes model do not go so low; it gets the shares of its largest size that the paper's LLaVA-OneVision had. The
selectors are the paper's six, or those that the study names, of which some have no published row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stakes.errors import BadInput, InfeasibleBudget, StakesError
from stakes.evaluation.fingerprint import Setting
from stakes.experiments.study import Arms, Study
from stakes.experiments.table import MEASURED, Row, Table, discordant_cells
from stakes.experiments.tables.within_task import BUDGETS, COSTS
from stakes.models import load
from stakes.models.identity import family_of, native_tokens
from stakes.published import figures
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.tiles import AnyRes

OPTIONS, DATASETS = MEASURED | {"--selector"}, ("docvqa",)
SELECTORS = ("redundancy", "random", "saliency", "fastv", "sparsevlm", "visionzip")
OTHERS = {"scale": "embedded-small", "architecture": "embedded-llava"}  # in place of Qwen 3B and LLaVA-OneVision
PUBLISHED = {
    "resolution": ("mechanism", "resolution"),
    "qwen25vl_3b_resolution": ("scale", "Qwen2.5-VL-3B, resolution"),
    "llava_onevision_7b": ("architecture", "LLaVA-OneVision-7B, resolution"),
}
COLUMNS = ("source", "axis", "setting", "high: uniform", "cost", "low: uniform", "cost", "b:c", "p")


def answers(study: Study) -> int:
    """The number of answers."""
    return (len(study.selectors or SELECTORS) + 1 + len(OTHERS)) * 2 * 2 * study.per_tier


def table(study: Study) -> Table:
    """Ours above the published rows."""
    selectors = study.selectors or SELECTORS
    rows: list[Row] = []
    missing, averaged, lower = [], [], 0

    def measure(of: Study, axis: str, name: str, setting: Setting) -> Arms:
        arms = _arms(of, setting)
        uniform, cost = arms.rows["uniform"], arms.rows["cost"]
        errors = [row.errors[tier] for tier in ("high", "low") for row in (uniform, cost)]
        rows.append((of.name, axis, name, *errors, *discordant_cells(cost.high_cost)))
        nonlocal lower
        lower += errors[1] < errors[0]
        return arms

    settings = [("mechanism", "resolution", Setting("resolution", None, study.metric))]
    settings += [("selector", name, Setting("deletion", name, study.metric)) for name in selectors]
    for axis, name, setting in settings:
        try:
            arms = measure(study, axis, name, setting)
            if arms.plan.rounding is not None:
                forced = f"and whole tokens may force {arms.plan.rounding:.3%}"
                averaged.append(f"{name}: arms differ by {arms.deviation:.3%} in {arms.plan.counted}, {forced}")
        except (BadInput, InfeasibleBudget) as error:  # few pages may not have sizes of the very same total
            missing.append(f"{axis} {name}: {error}")
    for axis, name in OTHERS.items() if study.name == "embedded" else ():
        try:
            other = replace(study, model=load(name), name=name)
            spent = ", ".join(str(tokens) for _, tokens in sorted(budgets(other).items()))
            measure(other, axis, f"{name}, resolution ({spent})", Setting("resolution", None, study.metric))
        except StakesError as error:
            missing.append(f"{axis}: {error}")
    return Table(
        name="invariance",
        title=f"Invariance: {study.name} on {study.source('docvqa')}",
        columns=COLUMNS,
        rows=(*rows, *_published(selectors)),
        findings=(
            f"high-tier error falls in {lower} of {len(rows)} settings (published: in all)",
            *averaged,
            *(f"not measured: {why}" for why in missing),
        ),
        meta={"model": study.name, "data": study.source("docvqa"), "budgets": BUDGETS, "split": study.split},
    )


def _arms(study: Study, setting: Setting) -> Arms:
    source = study.source("docvqa")
    return study.arms(source, study.questions(source), budgets(study), COSTS, ("uniform", "cost"), setting)


def budgets(study: Study) -> Mapping[str, int]:
    """(512, 96); of an AnyRes model as large a part of the least native count as the paper's tiers had of theirs."""
    if not isinstance(named_family(family_of(study.model)).formula, AnyRes):
        return BUDGETS
    published = figures()["llava_onevision"]
    samples = study.questions(study.source("docvqa"))
    native = min(native_tokens(study.model, *sample.size, "resolution") for sample in samples)
    return {tier: tokens * native // max(published["rungs"]) for tier, tokens in published["realised"].items()}


def _published(selectors: Sequence[str]) -> Iterator[Row]:
    for key, (axis, name) in PUBLISHED.items():
        row = figures()["invariance_docvqa_high_error"][key]
        yield "published", axis, name, row["uniform"], row["cost"], None, None, *discordant_cells(row["mcnemar"])
    published = figures()["selectors_docvqa"]
    for name in (name for name in selectors if name in published):
        (high, low, *_), (cost_high, cost_low, *_) = published[name]["uniform"], published[name]["cost"]
        cells = discordant_cells(published[name]["mcnemar"])
        yield "published", "selector", name, high, cost_high, low, cost_low, *cells
