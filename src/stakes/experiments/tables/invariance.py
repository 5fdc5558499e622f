"""Invariance: one axis at a time from the main setting. Does the gain depend on mechanism, model, scale or selector?

Uniform 304 against (512, 96), high tier. Paper, tables "Invariance study" and "Full selector robustness". An AnyRes
model has no rung so low; it gets the shares of its largest rung that the paper's LLaVA-OneVision had. The selectors are
the paper's six, or those that the study names, of which some have no published row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stakes.errors import BadInput, InfeasibleBudget, StakesError
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.statistics import mcnemar
from stakes.experiments.study import Arms, Study
from stakes.experiments.table import Cell, Table, spell_p
from stakes.experiments.tables.within_task import BUDGETS, COSTS
from stakes.models import load
from stakes.models.identity import family_of, native_tokens
from stakes.published import figures
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.anyres import AnyRes

SELECTORS = ("redundancy", "random", "saliency", "fastv", "sparsevlm", "visionzip")
OTHERS = {"scale": "embedded-small", "architecture": "embedded-llava"}  # what stands for Qwen 3B and LLaVA-OneVision
COLUMNS = ("source", "axis", "setting", "high: uniform", "cost", "low: uniform", "cost", "b:c", "p")


def answers(study: Study) -> int:
    """How many answers it takes."""
    return (len(study.selectors or SELECTORS) + 1 + len(OTHERS)) * 2 * 2 * study.per_tier


def table(study: Study) -> Table:
    """Ours above the published ones."""
    rows, missing, averaged, selectors = [], [], [], study.selectors or SELECTORS
    ways = [("mechanism", "resolution", Setting("resolution", None, study.metric))]
    ways += [("selector", name, Setting("deletion", name, study.metric)) for name in selectors]
    for axis, name, setting in ways:
        try:
            found = _arms(study, setting)
            rows.append(_row(study, axis, name, found))
            if found.plan.rounding is not None:
                forced = f"and whole tokens may force {found.plan.rounding:.3%}"
                averaged.append(f"{name}: arms differ by {found.deviation:.3%} in {found.plan.counted}, {forced}")
        except (BadInput, InfeasibleBudget) as error:  # few pages may not have rungs of the very same total
            missing.append(f"{axis} {name}: {error}")
    for axis, name in OTHERS.items() if study.name == "embedded" else ():
        try:
            other = replace(study, model=load(name), name=name)
            spent = ", ".join(str(tokens) for _, tokens in sorted(budgets(other).items()))
            found = _arms(other, Setting("resolution", None, study.metric))
            rows.append(_row(other, axis, f"{name}, resolution ({spent})", found))
        except StakesError as error:
            missing.append(f"{axis}: {error}")
    lower = [row for row in rows if _falls(row)]
    return Table(
        name="invariance",
        title=f"Invariance: {study.name} on {study.source('docvqa')}",
        columns=COLUMNS,
        rows=(*rows, *_theirs(selectors)),
        findings=(
            f"high-tier error falls in {len(lower)} of {len(rows)} settings (published: in all)",
            *averaged,
            *(f"not measured: {why}" for why in missing),
        ),
        meta={"model": study.name, "data": study.source("docvqa"), "budgets": BUDGETS, "split": study.split},
    )


def _falls(row: tuple[Cell, ...]) -> bool:
    before, after = row[3], row[4]
    assert isinstance(before, float)
    assert isinstance(after, float)
    return after < before


def _arms(study: Study, setting: Setting) -> Arms:
    source = study.source("docvqa")
    return study.arms(source, study.questions(source), budgets(study), COSTS, ("uniform", "cost"), setting)


def _row(study: Study, axis: str, name: str, found: Arms) -> tuple[Cell, ...]:
    uniform, cost = found.comparison.rows
    assert cost.dear is not None
    return (
        study.name, axis, name, uniform.errors["high"], cost.errors["high"], uniform.errors["low"],
        cost.errors["low"], f"{cost.dear.b}:{cost.dear.c}", spell_p(cost.dear.p),
    )  # fmt: skip


def budgets(study: Study) -> Mapping[str, int]:
    """(512, 96); of an AnyRes model as large a part of the least native count as the paper's tiers had of theirs."""
    if not isinstance(named_family(family_of(study.model)).formula, AnyRes):
        return BUDGETS
    published = figures()["llava_onevision"]
    asked = study.questions(study.source("docvqa"))
    native = min(native_tokens(study.model, *one.size, "resolution") for one in asked)
    return {tier: tokens * native // max(published["rungs"]) for tier, tokens in published["realised"].items()}


def _theirs(selectors: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    names = {
        "resolution": ("mechanism", "resolution"),
        "qwen25vl_3b_resolution": ("scale", "Qwen2.5-VL-3B, resolution"),
        "llava_onevision_7b": ("architecture", "LLaVA-OneVision-7B, resolution"),
    }
    for key, (axis, name) in names.items():
        row = figures()["invariance_docvqa_high_error"][key]
        b, c = row["mcnemar"]
        yield (
            "published", axis, name, row["uniform"], row["cost"], None, None, f"{b}:{c}", spell_p(mcnemar(b, c)),
        )  # fmt: skip
    published = figures()["selectors_docvqa"]
    for name in (name for name in selectors if name in published):
        row = published[name]
        b, c = row["mcnemar"]
        before, after = row["uniform"], row["cost"]
        yield (
            "published", "selector", name, before[0], after[0], before[1], after[1], f"{b}:{c}", spell_p(mcnemar(b, c)),
        )  # fmt: skip
