"""Uniform, cost and anti on a smaller model and on another architecture.

Both by resolution, on the questions of the main result. Paper, tables "LLaVA-OneVision-7B" and "Qwen2.5-VL-3B". The
token counts of an AnyRes model are a few rungs for each image. As in the paper, its cost arm takes for each image the
rung nearest to the tier's published share of the largest one, and the other arms are aligned to the same total.
"""

from collections.abc import Sequence

from stakes.calibration.arms.comparison import EqualTotals
from stakes.calibration.arms.plan import ArmPlan
from stakes.data.sample import Sample
from stakes.errors import InfeasibleBudget
from stakes.evaluation.fingerprint import Setting
from stakes.experiments.estimate import Ask, arm_asks
from stakes.experiments.study import Arms, Study
from stakes.experiments.table import ARM_COLUMNS, MEASURED, Row, Table, arm_rows, format_interval, published_arm_rows
from stakes.experiments.tables.within_task import BUDGETS, COSTS
from stakes.models.identity import family_of
from stakes.published import figures
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.ladder import align_ladders, ladder
from stakes.vision.geometry.tiles import AnyRes

OPTIONS, DATASETS = MEASURED | {"--scale-model", "--architecture-model"}, ("docvqa",)
ARMS = ("uniform", "cost", "anti")
AXES = {"scale": ("qwen25vl_3b", "Qwen2.5-VL-3B"), "architecture": ("llava_onevision", "LLaVA-OneVision-7B")}
COLUMNS = ("source", "axis", *ARM_COLUMNS[1:])
OPTION = {axis: f"--{axis}-model" for axis in AXES}


def asks(study: Study, arms: Sequence[str] = ARMS) -> set[Ask]:
    """The arms of each other model."""
    source = study.source("docvqa")
    counts = dict.fromkeys(BUDGETS, study.count(source))
    realised = figures()["llava_onevision"]["realised"]
    budgets = {"scale": BUDGETS, "architecture": {tier: realised[tier] for tier in BUDGETS}}
    return {ask for axis in study.others for ask in arm_asks(source, counts, budgets[axis], arms, "resolution", axis)}


def measure(study: Study, names: Sequence[str] = ARMS) -> Arms:
    """The arms of one model, by resolution."""
    source, setting = study.source("docvqa"), Setting("resolution", None, study.metric)
    samples = study.questions(source)
    if isinstance(named_family(family_of(study.model)).formula, AnyRes):
        return study.compared(source, samples, plan_rungs(samples, family_of(study.model), names), COSTS, setting)
    return study.arms(source, samples, BUDGETS, COSTS, names, setting)


def plan_rungs(samples: Sequence[Sample], family: str, names: Sequence[str] = ARMS) -> ArmPlan:
    """Arms on the rungs of an AnyRes model: the cost arm fixes the total, the others are aligned to it."""
    published = figures()["llava_onevision"]
    shares = {tier: tokens / max(published["rungs"]) for tier, tokens in published["realised"].items()}
    ladders = [ladder(*sample.size, family) for sample in samples]
    native = [rungs[-1].tokens for rungs in ladders]

    def nearest(share: dict[str, float]) -> tuple[int, ...]:
        aims = [share[sample.tier] * tokens for sample, tokens in zip(samples, native, strict=True)]
        return tuple(
            min((rung.tokens for rung in rungs), key=lambda tokens: abs(tokens - aim))
            for rungs, aim in zip(ladders, aims, strict=True)
        )

    cost = nearest(shares)
    total = sum(cost)
    nominal = {
        "uniform": tuple([total // len(samples)] * len(samples)),
        "cost": cost,
        "anti": nearest({"high": shares["low"], "low": shares["high"]}),
    }
    budgets = {}
    for name in names:
        try:
            budgets[name] = tuple(rung.tokens for rung in align_ladders(ladders, total, nominal[name]))
        except InfeasibleBudget as error:
            raise InfeasibleBudget(f"arm {name!r} on {len(samples)} images: {error}; give more samples") from None
    ids = tuple(sample.id for sample in samples)
    EqualTotals(ids, native, "anyres").check_realised(budgets)
    return ArmPlan(ids, {name: nominal[name] for name in names}, budgets, total, "anyres", "")


def table(study: Study) -> Table:
    """Ours above the published rows."""
    rows: list[Row] = []
    findings = []
    for axis, (_, standing_for) in AXES.items():
        if axis not in study.others:
            findings.append(f"{axis} was not measured: give {OPTION[axis]} NAME")
            continue
        with study.other(axis) as other:
            arms = measure(other)
        rows += [(source, axis, *cells) for source, *cells in arm_rows(arms.comparison, other.name)]
        low, high = (arms.rows["cost"].errors["high"], arms.rows["anti"].errors["high"])
        means = {
            tier: sum(o.realised for o in arms.outcomes["cost"] if o.tier == tier) / arms.comparison.counts[tier]
            for tier in BUDGETS
        }
        findings.append(
            f"{other.name} in place of {standing_for}: high-tier error cost {low:.3f}, uniform "
            f"{arms.rows['uniform'].errors['high']:.3f}, anti {high:.3f}; cost spends "
            f"{', '.join(f'{mean:.0f} tokens on {tier}' for tier, mean in means.items())}; arms differ by "
            f"{arms.deviation:.3%} in tokens"
        )
    return Table(
        name="models",
        title=f"Other models, by resolution: {study.source('docvqa')}",
        columns=COLUMNS,
        rows=(*rows, *_published()),
        findings=tuple(findings),
        meta={
            "models": {axis: other.name for axis, other in study.others.items()},
            "data": study.source("docvqa"),
            "split": study.split,
            "per_tier": study.count(study.source("docvqa")),
        },
    )


def _published() -> list[Row]:
    rows: list[Row] = []
    for axis, (key, _) in AXES.items():
        printed = figures()[key]
        pairs = {"cost": printed.get("mcnemar_cost"), "anti": printed.get("mcnemar_anti")}
        if key == "qwen25vl_3b":
            other = figures()["invariance_docvqa_high_error"]["qwen25vl_3b_resolution"]
            pairs = {"cost": other["mcnemar"], "anti": other["anti_mcnemar"]}
        arms = {
            arm: dict(zip(printed["columns"], row, strict=True)) | {"mcnemar": pairs.get(arm)}
            for arm, row in printed["arms"].items()
        }
        extra = {"cost": (format_interval(printed["delta_cwe_ci_r5"]), printed.get("break_even"))}
        rows += [(source, axis, *cells) for source, *cells in published_arm_rows(arms, None, extra)]
    return rows
