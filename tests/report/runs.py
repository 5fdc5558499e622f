"""Invented runs on disk: logs and policies as calibrate and evaluate write them, with any number of tiers."""

import json
import random
from dataclasses import asdict
from pathlib import Path

from stakes.budgets.allocate import allocate
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.policy import Policy, TierPlan
from stakes.evaluation.outcome_log import Outcome
from stakes.signals import KeywordRule, to_dict
from stakes.signals.task import TaskIdentity

GRID = (32, 96, 160, 224, 288)
HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror="document.title=1">'


def outcome(
    sample: str, tier: str, budget: int, correct: bool, mechanism: str, text: str, native: int = 400
) -> Outcome:
    selector = "redundancy" if mechanism == "deletion" else None
    document = sample.rsplit("/", 1)[0]
    ms = 20 + budget / 10
    return Outcome(
        sample, document, tier, mechanism, selector, budget, native, budget, text, False, float(correct), correct,
        "relaxed", ms, "r",
    )  # fmt: skip


def write_log(path: Path, outcomes: list[Outcome]) -> None:
    path.write_text("".join(json.dumps(asdict(o)) + "\n" for o in outcomes), encoding="utf-8")


def make_run(
    folder: Path,
    costs: dict[str, float],
    per_tier: int = 20,
    *,
    mechanism: str = "resolution",
    text: str = "42",
    evaluated: bool = True,
    logged: bool = True,
    seed: int = 0,
) -> Path:
    """A policy with its logs; errors fall with tokens, so that moving tokens pays."""
    folder.mkdir(parents=True, exist_ok=True)
    dice = random.Random(seed)
    mean = 160

    def answers(split: str, tier: str, budgets: list[int]) -> list[Outcome]:
        rows = []
        for k in range(per_tier):
            needed = dice.uniform(0, 320)  # the tokens from which this question can be read
            name = f"{split}{k // 2}/{tier}{k}"
            rows += [outcome(name, tier, b, b >= needed, mechanism, text) for b in budgets]
        return rows

    outcomes = [row for tier in costs for row in answers("cal", tier, list(GRID))]
    curves = curves_from_outcomes(outcomes)
    counts = dict.fromkeys(costs, per_tier)
    best = allocate(curves, costs, counts, mean * per_tier * len(costs))
    tiers = {t: TierPlan(cost=costs[t], budget=best.budgets[t], curve=curves[t]) for t in costs}
    two = set(costs) == {"high", "low"}
    signal = KeywordRule() if two else TaskIdentity({t: t for t in costs}, most_expensive=next(iter(costs)))
    policy = Policy(
        mechanism="deletion" if mechanism == "deletion" else "resolution",
        selector="redundancy" if mechanism == "deletion" else None,
        mean_budget=mean,
        tiers=tiers,
        signal=to_dict(signal),
        fingerprint="made up",
    )
    path = folder / "policy.json"
    policy.save(path)
    if logged:
        write_log(folder / "policy.outcomes.jsonl", outcomes)
    if evaluated:
        _evaluation(folder, costs, per_tier, best.spent, dict(best.budgets), mechanism, text, dice)
    return path


def _evaluation(
    folder: Path,
    costs: dict[str, float],
    per_tier: int,
    spent: int,
    budgets: dict[str, int],
    mechanism: str,
    text: str,
    dice: random.Random,
) -> None:
    samples = [(f"test{k // 2}/{tier}{k}", tier) for tier in costs for k in range(per_tier)]
    share, rest = divmod(spent, len(samples))
    arms = {
        "uniform": [share + (i < rest) for i in range(len(samples))],
        "cost": [budgets[tier] for _, tier in samples],
    }
    needs = {sample: dice.uniform(0, 320) for sample, _ in samples}
    found = {}
    for budgets_of_arm in arms.values():
        for (sample, tier), budget in zip(samples, budgets_of_arm, strict=True):
            found[sample, budget] = outcome(sample, tier, budget, budget >= needs[sample], mechanism, text)
    log = folder / "policy.evaluation.jsonl"
    write_log(log, list(found.values()))
    plan = {
        "samples": [sample for sample, _ in samples], "nominal": arms, "budgets": arms,
        "total": spent, "mechanism": mechanism, "density": "",
    }  # fmt: skip
    log.with_name(log.name + ".arms.json").write_text(json.dumps(plan), encoding="utf-8")


def write_samples(folder: Path, path: Path, question: str) -> Path:
    """A samples file for the calibration's samples, each with a small picture of its own document."""
    from PIL import Image

    file = folder / "samples.jsonl"
    lines = []
    seen = dict.fromkeys(
        (row["sample"], row["tier"]) for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
    )
    for sample, tier in seen:
        name = sample.split("/")[0] + ".png"
        if not (folder / name).exists():
            Image.new("RGB", (560, 448), (200, 220, 240)).save(folder / name)
        record: dict[str, object] = {"id": sample, "image": name, "question": f"{question} {sample}", "answers": ["42"]}
        record["box"] = [100, 80, 160, 96]
        lines.append(json.dumps({**record, "tier": tier, "task": tier}))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
