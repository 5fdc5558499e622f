"""Do certificates with second attempts and review keep their level? Calibrations are simulated, and the truth is known.

    python benchmarks/escalation_certificates.py --simulations 2000 --out docs/results/escalation-certificates.json

``nothing helps``: the error is 0.4 at every budget, confidence knows nothing, and a review costs 0.4 of a mistake, so
that no option saves or loses anything on average. A certificate that ships one says that it helps: a false ship.
Options are certified here whether or not the choosing documents would have taken them, which ships more of them.
``confidence helps``: questions need few or many tokens, confidence is good but not perfect, and document effects are
strong. A bound fails where a tier's true error among unflagged answers, of 200,000 questions, is above it; a ceiling
fails where it was certified and the true error is above it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import about

from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.certificate import Certification
from stakes.calibration.certify.options import certify_options
from stakes.calibration.escalation.answers import AnswerTable, TierAnswers
from stakes.calibration.escalation.choose import OptionRules, choose_options
from stakes.calibration.escalation.judge import OptionVerdict
from stakes.calibration.estimators import Terms, fit

GRID = (64, 160, 304, 576)
COSTS = {"high": 5.0, "low": 1.0}
MEAN, UNIFORM, REVIEW, CEILING, CONFIDENCE = 304, 304, 2.0, 0.05, 0.95
TRUE = 50_000  # documents that the truth is computed on
World = Callable[[np.random.Generator, int], AnswerTable]


def nothing_helps(dice: np.random.Generator, documents: int) -> AnswerTable:
    """Error 0.4 at every budget, alike on one document; confidence is noise."""

    def tier(cost: float) -> TierAnswers:
        hard = dice.beta(2.0, 3.0, documents).repeat(2)  # mean 0.4
        wrong = dice.random((2 * documents, len(GRID))) < hard[:, None]
        return _tier(documents, wrong, dice.random(wrong.shape), cost)

    return AnswerTable({name: tier(cost) for name, cost in COSTS.items()})


def confidence_helps(dice: np.random.Generator, documents: int) -> AnswerTable:
    """Each question needs a number of tokens; the reader feels how far a budget is from it."""

    def tier(cost: float) -> TierAnswers:
        page = dice.normal(size=documents).repeat(2)
        fine = dice.random(2 * documents) < 0.3
        need = np.where(fine, 6.0, 4.4) + 0.3 * page + 0.3 * dice.normal(size=2 * documents)
        off = np.log(GRID)[None] - need[:, None]
        slips = dice.random(off.shape) < 0.02  # wrong whatever the budget, and felt as the others are
        felt = 4 * off + dice.normal(size=off.shape)
        return _tier(documents, (off < 0) | slips, 1 / (1 + np.exp(-felt)), cost)

    return AnswerTable({name: tier(cost) for name, cost in COSTS.items()})


def _tier(documents: int, wrong: Any, confidence: Any, cost: float) -> TierAnswers:
    names = np.array([f"d{i:06d}" for i in range(documents)]).repeat(2)
    tokens = np.broadcast_to(np.array(GRID, float), wrong.shape)
    return TierAnswers(GRID, names, wrong, confidence, tokens, np.full(len(names), cost))


def tables(table: AnswerTable) -> ByDocument:
    """The same answers by document; names are in order, two questions each."""
    wrong = {name: own.wrong.reshape(-1, 2, len(GRID)).sum(axis=1) for name, own in table.tiers.items()}
    asked = {name: np.full_like(counts, 2) for name, counts in wrong.items()}
    names = tuple(next(iter(table.tiers.values())).documents[::2].tolist())
    return ByDocument(names, GRID, wrong, asked)


def simulate(world: World, simulations: int, documents: int) -> dict[str, Any]:
    """How often a certificate was wrong, by kind."""
    truth = world(np.random.default_rng(1), TRUE)
    rules = OptionRules(True, REVIEW)
    shipped = false = unbounded = ceilings = broken = 0
    for seed in range(simulations):
        drawn = world(np.random.default_rng(1000 + seed), documents)
        measured = tables(drawn)
        first = measured.split()[0]
        own = drawn.divide(first.documents)[0]
        terms = Terms(COSTS, measured.counts, UNIFORM * sum(measured.counts.values()))
        options = choose_options(own, fit("raw", first.curves(), first), terms, rules).options
        verdict = OptionVerdict(rules, True, "", options, None, {}, frozenset(first.documents), documents - len(first))
        for goal in (Certification(CONFIDENCE), Certification(CONFIDENCE, {"high": CEILING})):
            certificate, chosen, evidence = certify_options(drawn, measured, verdict, goal, UNIFORM, "raw")
            if not goal.ceilings:
                ships = certificate.shipped == "tiered"
                shipped += ships
                false += ships and _gain(truth, chosen, rules) <= 1e-3
                unbounded += any(
                    one.upper is not None and _error(truth.tiers[name], chosen[name]) > one.upper
                    for name, one in evidence.items()
                )
            elif evidence and evidence["high"].upper == CEILING:
                ceilings += 1
                broken += _error(truth.tiers["high"], chosen["high"]) > CEILING
    nominal, most = 1 - CONFIDENCE, 1 - CONFIDENCE + 2 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / simulations)
    rates = {"false ships": false, "bounds that fail": unbounded, "ceilings that fail": broken}
    return {
        "simulations": simulations,
        "documents": documents,
        "nominal": round(nominal, 4),
        "nominal plus two standard errors": round(most, 4),
        "shipped": shipped / simulations,
        "ceilings certified": ceilings / simulations,
        **{name: count / simulations for name, count in rates.items()},
        "kept": all(count / simulations <= most for count in rates.values()),
    }


def _gain(truth: AnswerTable, options: Any, rules: OptionRules) -> float:
    saved = at_stake = 0.0
    for name, answers in truth.tiers.items():
        served = answers.serve(options[name])
        wrong = answers.wrong[:, GRID.index(UNIFORM)].mean() - served.passed_wrong.mean()
        saved += COSTS[name] * wrong - (rules.review_cost or 0.0) * served.flagged.mean()
        at_stake += COSTS[name]
    return float(saved / at_stake)


def _error(answers: TierAnswers, option: Any) -> float:
    served = answers.serve(option)
    passed = ~served.flagged
    return float(served.wrong[passed].mean()) if passed.any() else 0.0


def main() -> None:
    """Simulate both worlds and write the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    worlds = {"nothing helps": nothing_helps, "confidence helps": confidence_helps}
    found = {name: simulate(world, given.simulations, given.documents) for name, world in worlds.items()}
    print(json.dumps(found, indent=1))
    if given.out is not None:
        columns = ["world", *next(iter(found.values()))]
        table = {"columns": columns, "rows": [[name, *one.values()] for name, one in found.items()]}
        record = {"about": about(), "tables": {"escalation-certificates": table}}
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
