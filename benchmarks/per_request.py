"""Per-request costs against one budget per tier at equal tokens, on questions that people ask.

    python benchmarks/per_request.py [--questions docvqa_val.jsonl] [--repeats 20]

Question texts: a JSONL file with ``question`` (such as DocVQA's validation questions), or the project's own pages. Half
of them train the learned signal on the rule's labels (keywords, or kinds of field), a quarter sets the price, a quarter
is asked. Curves are measured on 300 + 300 simulated questions (``certify.power``, DocVQA's published curves, dependence
0.8) and fitted by ``pooled``; CWE is that of the true curves at the true costs. Per request gets exactly the tokens
that tiers spent. ``frozen`` is per request at a price set on the other quarter and left alone, as online without a
controller: its tokens are what came out. Costs tried:

    two tiers          5 and 1 by the keyword rule, read by the learned signal: nothing continuous
    two tiers, weak    the same, the signal trained on 120 questions only: it makes mistakes, and knows where
    two tiers, exact   the same with the rule itself: nothing to gain, and nothing may be lost
    fields             amount 20, percent 8, number 5, date 3, other 1 by the words; tiers know high and low only
    amounts            fields times a log-normal size (sigma 1) that the caller sends with the request
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.scenarios import GRID, published

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import Curve
from stakes.budgets.per_request import at_price, expected_losses, spend, unchanged_range
from stakes.calibration.certify.power import simulate
from stakes.calibration.estimators import pooled
from stakes.signals import KeywordRule, LearnedSignal

MEAN = 304
FIELDS = {"amount": 20.0, "percent": 8.0, "number": 5.0, "date": 3.0, "other": 1.0}
WORDS = {
    "amount": r"how much|amount|total|price|cost|sum|value",
    "percent": r"percent|percentage|%|rate",
    "number": r"how many|number|no\.|phone|fax|quantity|id|code|figure",
    "date": r"date|when|year|time",
}
Array = NDArray[np.float64]


def texts(path: Path | None) -> list[str]:
    """The question texts, each once."""
    if path is None:
        from stakes.data.synthetic import samples

        families = ("forms", "charts", "infographics")
        return list(dict.fromkeys(q.text for f in families for _, q in samples(f, "calibration", 400)))
    return list(dict.fromkeys(json.loads(line)["question"] for line in path.read_text(encoding="utf-8").splitlines()))


def field(question: str) -> str:
    """The kind of field that a question asks for, by the rule's own words."""
    found = (name for name, words in WORDS.items() if re.search(rf"(?<!\w)(?:{words})(?!\w)|%", question.lower()))
    return next(found, "other")


def shares(signal: LearnedSignal, questions: Sequence[str], names: Sequence[str]) -> Array:
    """Questions × names: the signal's probabilities; undecided goes to the most expensive, the first name."""
    rows = []
    for question, found in zip(questions, signal.predict_proba(questions), strict=True):
        decided = signal(question).decided
        rows.append([found.get(n, 0.0) if decided else float(n == names[0]) for n in names])
    return np.array(rows)


class Case:
    """One kind of costs. ``truth``, ``read``: high 0, low 1; ``cost``: true, by question; ``weights``: by curve."""

    def __init__(self, truth: Array, cost: Array, read: Array, tier_costs: tuple[float, float], weights: Array) -> None:
        self.truth, self.cost, self.read, self.tier_costs, self.weights = truth, cost, read, tier_costs, weights

    def lost(self, errors: Array, places: NDArray[np.int64]) -> float:
        """The true CWE of budgets."""
        at = errors[self.truth.astype(int), places]
        return float((self.cost * at).sum() / self.cost.sum())


def tier_columns(case: Case, curves: Mapping[str, Curve]) -> NDArray[np.int64]:
    """One budget for each tier that is read."""
    counts = {tier: int((case.read == i).sum()) for i, tier in enumerate(("high", "low"))}
    costs = dict(zip(("high", "low"), case.tier_costs, strict=True))
    best = allocate(curves, costs, counts, MEAN * len(case.read)).budgets
    return np.where(case.read == 0, GRID.index(best["high"]), GRID.index(best["low"]))


def trial(
    case: Case, trained: Case, truth: Array, curves: Mapping[str, Curve], rng: np.random.Generator
) -> list[float]:
    """CWE of uniform, by tier and by request at the tiers' tokens, frozen and its tokens, the tiers' tokens."""
    drawn = np.array([curves[tier].errors for tier in ("high", "low")])
    by_tier = tier_columns(case, curves)
    grid = np.array(GRID)
    by_request = spend(expected_losses(case.weights, drawn), GRID, int(grid[by_tier].sum()))
    bought = spend(expected_losses(trained.weights, drawn), GRID, round(grid[by_tier].mean() * len(trained.weights)))
    take = rng.random(len(case.weights)) < bought.share
    frozen = at_price(expected_losses(case.weights, drawn), GRID, bought.price, take)
    even = np.full(len(by_tier), GRID.index(MEAN))
    return [
        case.lost(truth, even),
        case.lost(truth, by_tier),
        case.lost(truth, np.searchsorted(grid, by_request.budgets)),
        case.lost(truth, frozen),
        float(grid[frozen].mean()),
        float(grid[by_tier].mean()),
    ]


def cases(questions: Sequence[str], rng: np.random.Generator) -> dict[str, tuple[Case, Case]]:
    """For each kind of costs: the half that is asked, and the half that prices are frozen on."""
    order = rng.permutation(len(questions))
    cut = len(questions) // 2
    training = [questions[i] for i in order[:cut]]
    rest = sorted((questions[i] for i in order[cut:]), key=field)  # dealt alike: price and test have the same mix
    parts = [rest[k::2] for k in range(2)]
    rule, names, scale = KeywordRule(), list(FIELDS), np.array(list(FIELDS.values()))
    tiers = [rule(question).tier for question in training]
    by_tier = LearnedSignal(most_expensive="high", characters=False).fit(training, tiers)
    weak = LearnedSignal(most_expensive="high", characters=False).fit(training[:120], tiers[:120])
    by_kind = LearnedSignal(most_expensive="amount", characters=False).fit(training, list(map(field, training)))
    found: dict[str, list[Case]] = {}
    for part in parts:
        truth = np.array([float(rule(question).tier == "low") for question in part])
        kinds = [field(question) for question in part]
        cost, two, size = np.array([FIELDS[name] for name in kinds]), np.where(truth == 0, 5.0, 1.0), _sizes(rng, part)
        mean = float(cost[truth == 0].mean()), float(cost[truth == 1].mean())
        certain = np.column_stack([truth == 0, truth == 1]).astype(float)
        kind = shares(by_kind, part, names)
        fields = np.column_stack([kind[:, :4] @ scale[:4], kind[:, 4] * scale[4]])  # "other" is the low tier's curve
        reads = {}
        for name, signal in (("two tiers", by_tier), ("two tiers, weak", weak)):
            likely = shares(signal, part, ("high", "low"))
            reads[name] = (likely[:, 0] < likely[:, 1]).astype(float)
            found.setdefault(name, []).append(Case(truth, two, reads[name], (5, 1), likely * [5, 1]))
        read = reads["two tiers"]
        found.setdefault("two tiers, exact", []).append(Case(truth, two, truth, (5, 1), certain * [5, 1]))
        found.setdefault("fields", []).append(Case(truth, cost, read, mean, fields))
        found.setdefault("amounts", []).append(Case(truth, cost * size, read, mean, fields * size[:, None]))
    right = ", ".join(f"{name} {float((pair[0].read == pair[0].truth).mean()):.1%}" for name, pair in found.items())
    print(f"{len(training)} questions train, {len(parts[0])} are asked; the signal reads the true tier on: {right}")
    return {name: (pair[0], pair[1]) for name, pair in found.items()}


def _sizes(rng: np.random.Generator, part: Sequence[str]) -> Array:
    return rng.lognormal(0, 1, len(part))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=Path, help="JSONL with question texts; default: synthetic pages")
    parser.add_argument("--repeats", type=int, default=20, help="simulated calibrations")
    given = parser.parse_args()
    began, rng = time.perf_counter(), np.random.default_rng(8)
    made = published()
    truth = np.array([made[tier].errors for tier in ("high", "low")])
    tried = cases(texts(given.questions), rng)
    rows: dict[str, list[list[float]]] = {name: [] for name in tried}
    for _ in range(given.repeats):
        measured = simulate(made, {"high": 300, "low": 300}, rng)
        curves = pooled(measured.curves(), measured)
        for name, (asked, trained) in tried.items():
            rows[name].append(trial(asked, trained, truth, curves, rng))
    print(f"true CWE, mean of {given.repeats} simulated calibrations; by request spends at most what tiers spent\n")
    heads = f"{'costs':18}{'uniform':>9}{'by tier':>9}{'request':>9}{'difference (s.e.)':>20}"
    print(f"{heads}{'frozen':>9}{'tokens':>9} frozen")
    for name, found in rows.items():
        even, by_tier, by_request, frozen, took, spent = np.mean(found, axis=0)
        gap = np.array(found)[:, 1] - np.array(found)[:, 2]
        error = gap.std(ddof=1) / np.sqrt(len(gap))
        gain = f"{gap.mean():+.4f} ({error:.4f})"
        print(f"{name:18}{even:9.4f}{by_tier:9.4f}{by_request:9.4f}{gain:>20}{frozen:9.4f}{spent:9.1f} {took:6.1f}")
    asked = tried["two tiers"][0]
    likely = asked.weights / [5, 1]
    for moved in (0.0, 0.01, 0.05):
        low, high = unchanged_range(lambda r: likely * [r, 1.0], truth, GRID, MEAN * len(likely), 5.0, moved)
        print(f"cost ratios around 5 at which at most {moved:.0%} of the budgets change: {low:.2f} to {high:.2f}")
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
