"""Shares of each image's own tokens against absolute budgets.

A fixed share moves few tokens where they are needed. Mean keep ratio 0.5; the high side keeps 0.55 or 0.65 of its own
tokens and the low side what preserves the total. Beside it the absolute transfer of the main design at the same total.
Paper, supplement "Proportional Allocation and Token Dilution".
"""

from collections.abc import Sequence

from stakes.calibration.arms import by_tier, proportional, uniform
from stakes.calibration.arms.comparison import compare
from stakes.evaluation.fingerprint import Setting
from stakes.experiments.estimate import NATIVE, Ask
from stakes.experiments.study import Study
from stakes.experiments.table import MEASURED, Row, Table, discordant_cells
from stakes.experiments.tables.cross_task import PER_TASK, workload
from stakes.experiments.tables.within_task import COSTS
from stakes.models.identity import native_tokens
from stakes.published import figures

OPTIONS, DATASETS = MEASURED, ("docvqa", "solid_color")
RATIO, HIGH_RATIOS = 0.5, (0.55, 0.65)
COLUMNS = ("source", "arm", "high", "low", "CWE (r = 5)", "b:c", "p", "mean tokens of high", "of low")


def asks(study: Study) -> set[Ask]:
    """Uniform, the shares and the absolute transfer."""
    arms = ("uniform", *map(str, HIGH_RATIOS), "absolute")
    count = 2 * min(PER_TASK, study.per_tier)
    return {Ask("half of the tokens", count, "deletion redundancy", arm, NATIVE // 2) for arm in arms}


def table(study: Study) -> Table:
    """Uniform, two proportional arms and an absolute one, all of one total, by deletion."""
    name, samples = workload(study)
    native = [native_tokens(study.model, *sample.size, "deletion") for sample in samples]
    tiers, total = [sample.tier for sample in samples], int(RATIO * sum(native))
    arms = {"uniform": uniform(len(samples), total)}
    arms |= {f"proportional {high:g}": proportional(tiers, native, "high", high, RATIO) for high in HIGH_RATIOS}
    arms["absolute"] = _absolute(tiers, native, total)
    outcomes = study.answer_arms(name, samples, arms, Setting("deletion", None, study.metric))
    compared = compare(outcomes, COSTS)
    rows: list[Row] = []
    for row in compared.rows:
        given = {t: [b for b, tier in zip(arms[row.arm], tiers, strict=True) if tier == t] for t in COSTS}
        means = [sum(budgets) / len(budgets) for budgets in given.values()]
        errors = (row.errors["high"], row.errors["low"])
        rows.append((study.name, row.arm, *errors, row.cwe, *discordant_cells(row.high_cost), *means))
    printed = figures()["proportional"]["cwe"]
    for arm, key in (("uniform", "uniform"), ("proportional", "cost")):
        rows.append(("published", arm, None, None, printed[key], None, None, None, None))
    cwes = {row.arm: row.cwe for row in compared.rows}
    best = min(cwes[f"proportional {high:g}"] for high in HIGH_RATIOS)
    dense, plain = study.source("docvqa"), study.source("solid_color")
    return Table(
        name="proportional",
        title=f"Proportional against absolute transfer: {study.name} on {dense} and {plain}, by deletion",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=(
            f"CWE: uniform {cwes['uniform']:.3f}, best proportional {best:.3f}, absolute {cwes['absolute']:.3f} "
            f"(published: uniform {printed['uniform']}, proportional {printed['cost']})",
        ),
        meta={
            "model": study.name,
            "data": [dense, plain],
            "questions": len(samples),
            "total": total,
            "mean_keep_ratio": RATIO,
        },
    )


def _absolute(tiers: Sequence[str], native: Sequence[int], total: int) -> tuple[int, ...]:
    """All tokens of the smallest dense page for every page, the rest for the colors."""
    least = min(n for n, tier in zip(native, tiers, strict=True) if tier == "high")
    rest = (total - least * tiers.count("high")) // tiers.count("low")
    budgets = list(by_tier(tiers, {"high": least, "low": rest}))
    budgets[-1] += total - sum(budgets)
    return tuple(budgets)
