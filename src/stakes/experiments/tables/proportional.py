"""Proportional against absolute: a fixed share of each image's own tokens moves few tokens where they are needed.

Mean keep ratio 0.5; the high side keeps 0.55 or 0.65 of its own tokens and the low side what preserves the total.
Beside it the absolute transfer of the main design at the same total. Paper, supplement "Proportional Allocation and
Token Dilution".
"""

from stakes.calibration.arms import by_tier, proportional, uniform
from stakes.calibration.arms.comparison import compare
from stakes.evaluation.fingerprint import Setting
from stakes.experiments.study import Study
from stakes.experiments.table import Cell, Table, spell_p
from stakes.experiments.tables.cross_task import PER_TASK, questions
from stakes.experiments.tables.within_task import COSTS
from stakes.models.identity import native_tokens
from stakes.published import figures

RATIO, HIGH_RATIOS = 0.5, (0.55, 0.65)
COLUMNS = ("source", "arm", "high", "low", "CWE (r = 5)", "b:c", "p", "mean tokens of high", "of low")


def answers(study: Study) -> int:
    """How many answers it takes."""
    return (2 + len(HIGH_RATIOS)) * 2 * min(PER_TASK, study.per_tier)


def table(study: Study) -> Table:
    """Uniform, two proportional arms and an absolute one, all of one total, by deletion."""
    dense, plain = study.source("docvqa"), study.source("solid_color")
    asked = questions(study, dense, plain, min(PER_TASK, study.per_tier))
    native = [native_tokens(study.model, *one.size, "deletion") for one in asked]
    tiers = [one.tier for one in asked]
    total = int(RATIO * sum(native))
    arms = {"uniform": uniform(len(asked), total)}
    for high in HIGH_RATIOS:
        arms[f"proportional {high:g}"] = proportional(tiers, native, "high", high, RATIO)
    count = {tier: tiers.count(tier) for tier in ("high", "low")}
    least = min(n for n, tier in zip(native, tiers, strict=True) if tier == "high")
    rest = (total - least * count["high"]) // count["low"]
    absolute = list(by_tier(tiers, {"high": least, "low": rest}))
    absolute[-1] += total - sum(absolute)
    arms["absolute"] = tuple(absolute)
    setting = Setting("deletion", None, study.metric)
    found = study.answers(f"{dense}+{plain}", asked, list(arms.values()), setting)
    outcomes = {
        arm: [found[one.id, budget] for one, budget in zip(asked, budgets, strict=True)]
        for arm, budgets in arms.items()
    }
    rows: list[tuple[Cell, ...]] = []
    compared = compare(outcomes, COSTS)
    for row in compared.rows:
        spent = [
            sum(b for b, t in zip(arms[row.arm], tiers, strict=True) if t == tier) / count[tier]
            for tier in ("high", "low")
        ]
        balance, p = (None, None) if row.dear is None else (f"{row.dear.b}:{row.dear.c}", spell_p(row.dear.p))
        rows.append((study.name, row.arm, row.errors["high"], row.errors["low"], row.cwe, balance, p, *spent))
    printed = figures()["proportional"]["cwe"]
    for arm, key in (("uniform", "uniform"), ("proportional", "cost")):
        rows.append(("published", arm, None, None, printed[key], None, None, None, None))
    cwes = {row.arm: row.cwe for row in compared.rows}
    best = min(cwes[f"proportional {high:g}"] for high in HIGH_RATIOS)
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
            "questions": len(asked),
            "total": total,
            "mean_keep_ratio": RATIO,
        },
    )
