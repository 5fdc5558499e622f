"""Five runs that lack something, each written to disk with its samples: the report must handle them all."""

import json
from pathlib import Path

from tests.report.runs import make_run, write_samples

TWO = {"high": 5.0, "low": 1.0}
TEN = {f"class {i}": float(i + 1) for i in range(10)}
NAMES = ("one tier", "ten tiers", "no deletion outcomes", "20 samples", "failing certificate")


def make(name: str, folder: Path) -> tuple[Path, Path | None]:
    """Paths of a run's policy and, where its log has answers to show, of its samples."""
    made = {
        "one tier": lambda: make_run(folder, {"all": 1.0}, 12, evaluated=False),
        "ten tiers": lambda: make_run(folder, TEN, 12, seed=2),
        "no deletion outcomes": lambda: make_run(folder, TWO, 24, mechanism="deletion", logged=False, evaluated=False),
        "20 samples": lambda: make_run(folder, TWO, 10, seed=1),
        "failing certificate": lambda: _uncertified(make_run(folder, TWO, 24, seed=4, evaluated=False)),
    }[name]()
    log = folder / "policy.outcomes.jsonl"
    return made, write_samples(folder, log, "What is the total of") if log.exists() else None


def _uncertified(path: Path) -> Path:
    """The policy as --certify writes it where tiered budgets are not certified to help: uniform, and why."""
    record = json.loads(path.read_text())
    for tier in record["tiers"].values():
        tier["budget"] = 160
    bound = {"budget": 160, "error": 0.458, "upper": 0.662}
    record["certificate"] = {
        "confidence": 0.95, "shipped": "uniform", "budgets": {"high": 160, "low": 160}, "estimator": "pooled",
        "no_harm": {"budgets": {"high": 288, "low": 32}, "uniform": 160, "gain": 0.08, "lower": -0.11, "level": 0.95},
        "why": "tiered budgets gain 0.080 on the certifying documents, and with 0.95 confidence no more than -0.110",
        "chosen_on": 6, "certified_on": 6, "upper_errors": {"high": bound, "low": {**bound, "error": 0.5}},
        "ceilings": {"high": {"ceiling": 0.1, "budget": None, "largest": 288, "least": 0.43}},
    }  # fmt: skip
    path.write_text(json.dumps(record))
    return path
