"""How many of a VLM's answers does a legibility prior save? Held-out CWE of choices on few answers, with and without.

    stakes reproduce legibility-agreement                                     # the logs that this starts from
    stakes reproduce legibility-agreement --model embedded-small
    python benchmarks/hybrid.py [--folder runs/reproduce/legibility-agreement] [-o docs/results/hybrid.json]

Two readers' answers to synthetic forms, and what an OCR engine can read of the same pages. A draw halves the
documents: of one half n questions of each tier are "answered" at all 13 budgets and budgets are chosen on them; CWE is
counted on the other half. The prior is the legibility of the first half alone, so that no document is on both sides.

    none        budgets chosen on the prior's own curves, no answers
    raw         the plain argmin of the few answers
    pooled      the default estimator, which knows no prior
    hybrid      the prior, mapped by a link that the few answers fit (``stakes.calibration.estimators.hybrid``)
    all, E      estimator E on every question of the first half

Passes are counted as n × two tiers × budgets. Needed are the fewest questions from which on the mean CWE stays
within 0.002 of what the better of raw and pooled reaches on every question of the first half.
"""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import PAPER_GRID, Curve, cwe_at
from stakes.calibration.estimators.choose import Terms
from stakes.calibration.estimators.hybrid import hybrid
from stakes.calibration.estimators.pooled import pooled
from stakes.evaluation.fingerprint import save_json
from stakes.evaluation.outcome_log import Outcome, read_outcomes

RATIOS = (2, 3, 5, 10)
SIZES = (5, 10, 20, 40, 80)
ALL = -1
TIERS = ("high", "low")
PAIR = 608
WAYS = ("raw", "pooled", "hybrid")
LEGIBLE = ("legibility", "-resolution-")
RUNS = {
    "resolution": ("embedded", "-resolution-"),
    "deletion": ("embedded", "-deletion-redundancy-"),
    "small-resolution": ("embedded-small", "-resolution-"),
    "small-deletion": ("embedded-small", "-deletion-redundancy-"),
}
SLACK = 0.002  # of CWE, within which two ways count as the same
Table = NDArray[np.bool_]
Cells = dict[tuple[str, int, int], list[float]]


class Log:
    """Wrong answers of each tier, questions × budgets, and the document of each question."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        outcomes = [o for o in outcomes if o.budget in PAPER_GRID]
        self.budgets = sorted({o.budget for o in outcomes})
        self.wrong: dict[str, Table] = {}
        self.documents: dict[str, NDArray[np.str_]] = {}
        for tier in TIERS:
            rows: dict[str, dict[int, bool]] = {}
            owner: dict[str, str] = {}
            for o in outcomes:
                if o.tier == tier:
                    rows.setdefault(o.sample, {})[o.budget] = not o.correct
                    owner[o.sample] = o.document
            whole = [sample for sample, row in rows.items() if len(row) == len(self.budgets)]
            self.wrong[tier] = np.array([[rows[s][b] for b in self.budgets] for s in whole])
            self.documents[tier] = np.array([owner[s] for s in whole])

    def curves(self, rows: Mapping[str, NDArray[np.int64]]) -> dict[str, Curve]:
        """Of some of the questions."""
        return {
            tier: Curve(self.budgets, [float(e) for e in self.wrong[tier][at].mean(0)], len(at))
            for tier, at in rows.items()
        }

    def on(self, documents: set[str]) -> dict[str, NDArray[np.int64]]:
        """The questions on these documents."""
        return {tier: np.flatnonzero(np.isin(owner, sorted(documents))) for tier, owner in self.documents.items()}


def terms(ratio: float) -> Terms:
    """One question of each tier, the paper's total of 608."""
    return Terms({"high": ratio, "low": 1.0}, {"high": 1, "low": 1}, PAIR)


def fit(way: str, few: dict[str, Curve], prior: dict[str, Curve]) -> dict[str, Curve]:
    """The curves that a way chooses on."""
    return {"raw": lambda: few, "pooled": lambda: pooled(few), "hybrid": lambda: hybrid(few, prior)}[way]()


def held_out(model: Log, legible: Log, draws: int, seed: int) -> Cells:
    """CWE on the documents left out, by (way, size, ratio), one figure a draw."""
    rng = np.random.default_rng(seed)
    documents = sorted({str(d) for owner in model.documents.values() for d in owner})
    found: Cells = {}
    for _ in range(draws):
        first = set(rng.permutation(documents)[: len(documents) // 2].tolist())
        mine, test = model.on(first), model.curves(model.on(set(documents) - first))
        prior = legible.curves(legible.on(first))
        chosen_on = {("none", 0): prior}
        for size in (*SIZES, ALL):
            rows = {t: at if size == ALL else rng.choice(at, size, replace=False) for t, at in mine.items()}
            few = model.curves(rows)
            chosen_on |= {(way, size): fit(way, few, prior) for way in WAYS}
        for (way, size), curves in chosen_on.items():
            for ratio in RATIOS:
                on = terms(ratio)
                budgets = on.allocate(curves).budgets
                found.setdefault((way, size, ratio), []).append(cwe_at(test, budgets, on.costs, on.counts))
    return found


def needed(means: Mapping[tuple[str, int, int], float], way: str, ratio: int, goal: float) -> int | None:
    """The fewest questions a tier from which on the mean CWE is within the slack of the goal."""
    good: int | None = None
    for size in reversed(SIZES):
        if means[way, size, ratio] > goal + SLACK:
            break
        good = size
    return good


def report(how: str, found: Cells, budgets: int) -> dict[str, object]:
    """Print and return one mechanism's table."""
    means = {cell: float(np.mean(values)) for cell, values in found.items()}
    errors = {
        (size, r): float(
            np.std(np.array(found["pooled", size, r]) - np.array(found["hybrid", size, r]), ddof=1)
            / np.sqrt(len(found["hybrid", size, r]))
        )
        for size in SIZES
        for r in RATIOS
    }
    print(f"\n{how}: mean held-out CWE; n questions a tier\n{'':16}" + "".join(f"{f'r = {r}':>10}" for r in RATIOS))
    for way, size in dict.fromkeys((way, size) for way, size, _ in found):
        print(f"{way:8}{_spell(size):>6}  " + "".join(f"{means[way, size, r]:10.4f}" for r in RATIOS))
    print("pooled − hybrid, and its standard error:")
    for size in SIZES:
        cells = (f"{means['pooled', size, r] - means['hybrid', size, r]:+.4f} ({errors[size, r]:.4f})" for r in RATIOS)
        print(f"{'':8}{size:>6}  " + "  ".join(cells))
    rows, said = {}, []
    each = len(TIERS) * budgets
    for r in RATIOS:
        goal = min(means["raw", ALL, r], means["pooled", ALL, r])
        rows[r] = {way: needed(means, way, r, goal) for way in WAYS}
        fewest = ", ".join(f"{way} {_passes(n, each)}" for way, n in rows[r].items())
        said.append(f"r = {r}: passes to come within {SLACK} of all answers without a prior ({goal:.4f}): {fewest}")
    print("\n".join(said))
    lines = [
        (way, _spell(size), *(means[way, size, r] for r in RATIOS))
        for way, size in dict.fromkeys((way, size) for way, size, _ in found)
    ]
    return {
        "cwe": {f"{way} {_spell(size)}": {r: means[way, size, r] for r in RATIOS} for way, size, _ in found},
        "gain_over_pooled": {
            size: {r: [means["pooled", size, r] - means["hybrid", size, r], errors[size, r]] for r in RATIOS}
            for size in SIZES
        },
        "needed": rows,
        "table": {
            "columns": ["budgets chosen by", "n a tier", *(f"CWE at r = {r}" for r in RATIOS)],
            "rows": lines,
            "findings": said,
        },
    }


def _log(folder: Path, who: str, mark: str) -> Path:
    """The newest log of one reader in the folder that ``stakes reproduce legibility-agreement`` keeps."""
    found = sorted(folder.glob(f"{who}-forms-*{mark}*.jsonl"), key=lambda path: path.stat().st_mtime)
    if not found:
        model = "" if who == LEGIBLE[0] else f" --model {who}"
        raise SystemExit(f"{folder} has no log of {who}; run stakes reproduce legibility-agreement{model} first")
    return found[-1]


def _passes(n: int | None, each: int) -> str:
    return f"more than {SIZES[-1] * each:,}" if n is None else f"{n * each:,}"


def _spell(size: int) -> str:
    return "all" if size == ALL else str(size)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/reproduce/legibility-agreement"))
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    began = time.perf_counter()
    legible, made = Log(read_outcomes(_log(given.folder, *LEGIBLE))), {}
    for name, log in RUNS.items():
        model = Log(read_outcomes(_log(given.folder, *log)))
        made[name] = report(name, held_out(model, legible, given.draws, given.seed), len(model.budgets))
    if given.output is not None:
        command = f"python benchmarks/hybrid.py --draws {given.draws} --seed {given.seed}"
        tables = {f"hybrid-{how}": one.pop("table") for how, one in made.items()}
        record = {"command": command, "sizes": SIZES, "slack": SLACK, "mechanisms": made, "tables": tables}
        save_json(given.output, record)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
