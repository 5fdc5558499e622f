"""What does it cost to get from a log of outcomes to a policy? Ladders over records, samples, tiers and budgets.

2 tiers and 13 budgets, unless the ladder varies just that (``growth_log``). Nothing here needs a model.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
from benchmarks.allocation import family
from benchmarks.growth_ladder import Ladder, Work, geometric
from benchmarks.growth_log import GRID, PER_PAGE, answers, costs, curves, grid, policy, rates, tables, terms
from benchmarks.replay import KnownAnswers

from stakes.budgets.allocate import allocate
from stakes.budgets.controller import Controller
from stakes.budgets.controller_path import BudgetPath
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.frontier import change_ratios
from stakes.budgets.plan import make_plan
from stakes.calibration.adaptive.sampler import sample_adaptively
from stakes.calibration.by_document import ByDocument, by_document
from stakes.calibration.certify.certificate import Certification, certify
from stakes.calibration.estimators import choose
from stakes.calibration.holdout import held_out, split_half
from stakes.evaluation.batching import plan_batches
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.slopes import slope_test
from stakes.evaluation.statistics import cwe_gain

HELD = GRID * 2016  # records that stay the same while tiers grow
INSTANCES = 16  # one allocation may be lucky: the time is that of as many


def _read(records: int) -> Work:
    file = tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8")  # noqa: SIM115 - lives as long as the work
    file.writelines(json.dumps(asdict(outcome)) + "\n" for outcome in answers(records))
    file.flush()
    return lambda: read_outcomes(file.name)


def _tables(tiers: int) -> Work:
    log = answers(HELD, tiers)
    return lambda: by_document(log)


def _more_records(budgets: int) -> Work:
    log = answers(300 * budgets, 2, budgets)
    return lambda: by_document(log)


def _chosen(estimator: str) -> Callable[[int], Work]:
    def prepare(records: int) -> Work:
        measured = tables(records)
        return lambda: choose(measured, terms(measured), estimator)

    return prepare


def _certified(measured: ByDocument, ceilings: int) -> Work:
    prices, mean = costs(len(measured.wrong)), measured.budgets[len(measured.budgets) // 2]
    limits = dict.fromkeys(list(prices)[:ceilings], 0.97)
    return lambda: certify(measured, prices, mean, Certification(ceilings=limits), estimator="raw")


def _two_ceilings(budgets: int) -> Work:
    return _certified(tables(300 * budgets, 2, budgets), 2)


def _gain(samples: int) -> Work:
    rng = np.random.default_rng(0)
    before, after, prices = rng.random(samples) < 0.5, rng.random(samples) < 0.6, 1 + 4.0 * (rng.random(samples) < 0.5)
    return lambda: cwe_gain(before, after, prices, resamples=1000)


def _slopes(samples: int) -> Work:
    rng, names = np.random.default_rng(0), [f"page {i // 2}" for i in range(samples // 2)]
    right = {tier: rng.random((samples // 2, GRID)) >= rates(tier, GRID) for tier in range(2)}
    tiers = {f"t{tier}": table for tier, table in right.items()}
    return lambda: slope_test(tiers, dict.fromkeys(tiers, names), grid(GRID), resamples=100)


def _halves(samples: int, budgets: int = GRID) -> Work:
    rng = np.random.default_rng(0)
    right = {name: rng.random((samples // 2, budgets)) >= rates(i, budgets) for i, name in enumerate(("high", "low"))}
    return lambda: split_half(right, grid(budgets), grid(budgets)[-1])


def _adaptive(records: int) -> Work:
    known, on = KnownAnswers.of(answers(records)), terms(tables(records))
    return lambda: sample_adaptively(known.questions, known.budgets, on, known.ask)


def _batches(records: int) -> Work:
    images = [f"page {i // PER_PAGE}" for i in range(records // GRID)]
    assignments = [[budget] * len(images) for budget in grid(GRID)]
    return lambda: plan_batches(images, assignments)


def _planned(tiers: int, budgets: int = GRID) -> Work:
    drawn, counts = curves(tiers, budgets), {f"t{tier}": 300 for tier in range(tiers)}
    return lambda: make_plan(drawn, costs(tiers), counts, 300 * tiers * grid(budgets)[budgets // 2])


def _pooled(tiers: int, budgets: int = GRID) -> Work:
    from stakes.calibration.estimators import pooled

    drawn = curves(tiers, budgets)
    return lambda: pooled(drawn)


def _allocated(kind: str, tiers: int, budgets: int) -> Work:
    instances = [family(kind, tiers, budgets, seed) for seed in range(INSTANCES)]
    return lambda: [allocate(*instance) for instance in instances]


def _changes(budgets: int) -> Work:
    high, low = curves(2, budgets).values()
    return lambda: change_ratios(high, low, grid(budgets)[-1])


def _path(tiers: int) -> Work:
    of = policy(tiers)
    return lambda: BudgetPath.of(of)


def _requests(tiers: int) -> Work:
    controller, names = Controller.from_policy(policy(tiers)), [f"t{tier}" for tier in range(tiers)]
    turn = iter(range(10**9))

    def request() -> None:
        for _ in range(256):
            grant = controller.grant(names[next(turn) % tiers], [972])
            controller.settle(grant, [grant.budgets[0]])

    return request


def ladders(quick: bool) -> list[Ladder]:
    """All of them; ``quick`` ends each at a quarter of its way."""
    records = [GRID * n for n in geometric(24, 480 if quick else 7680, 5 if quick else 9)]
    samples = geometric(400, 3200 if quick else 51_200, 4 if quick else 8)
    tiers = geometric(2, 16 if quick else 64, 5 if quick else 9)
    budgets = geometric(13, 52 if quick else 208, 5 if quick else 9)
    sort, once, same = "sorts the documents: n log n", "reads each once", "the same records"
    draws, read = "a fixed number of draws of all units", "reads the curves"
    mean = grid(GRID)[6]
    return [
        Ladder("read a log", "records", records, _read, 1, once),
        Ladder("curves", "records", records, lambda n: lambda: curves_from_outcomes(answers(n)), 1, once),
        Ladder("tables by document", "records", records, lambda n: lambda: by_document(answers(n)), 1, sort),
        Ladder("choose: raw", "records", records, _chosen("raw"), 1, "sums the tables"),
        Ladder("choose: pooled", "records", records, _chosen("pooled"), 1, "sums the tables"),
        Ladder("certificate", "records", records, lambda n: _certified(tables(n), 1), 1, sort),
        Ladder("held-out check", "records", records, lambda n: lambda: held_out(answers(n), costs(2), mean), 1, draws),
        Ladder("adaptive sampling", "records", records, _adaptive, 1, sort),
        Ladder("plan of batches", "records", records, _batches, 1, once),
        Ladder("interval of a CWE gain", "samples", samples, _gain, 1, draws),
        Ladder("test of slopes", "samples", samples, _slopes, 1, draws),
        Ladder("split-half", "samples", samples, _halves, 1, once),
        Ladder("curves", "tiers", tiers, lambda t: lambda: curves_from_outcomes(answers(HELD, t)), 0, same),
        Ladder(
            "tables by document", "tiers", tiers, lambda t: lambda: by_document(answers(HELD, t)), 1, "a table each"
        ),
        Ladder("pooled curves", "tiers", tiers, _pooled, 1, "a block a tier"),
        Ladder("allocate: decaying curves", "tiers", tiers, lambda t: _allocated("decaying", t, GRID), 1, read),
        Ladder("allocate: rates of 300", "tiers", tiers, lambda t: _allocated("rates", t, GRID), 1, read),
        Ladder("plan", "tiers", tiers, _planned, 1, "seven allocations"),
        Ladder("certificate", "tiers", tiers, lambda t: _certified(tables(HELD, t), 1), 1, "a table each"),
        Ladder("controller: path of a policy", "tiers", tiers, _path, 1, "sorts the steps: n log n"),
        Ladder("controller: 256 requests", "tiers", tiers, _requests, 0, "the walk along the path is shared out"),
        Ladder(
            "tables by document", "budgets", budgets, lambda b: lambda: by_document(answers(300 * b, 2, b)), 1, once
        ),
        Ladder("pooled curves", "budgets", budgets, lambda b: _pooled(2, b), 3, "a dense Gaussian fit over budgets"),
        Ladder("allocate: decaying curves", "budgets", budgets, lambda b: _allocated("decaying", 4, b), 1, read),
        Ladder("changes of the optimum", "budgets", budgets, _changes, 2, "at each change, every budget again"),
        Ladder("plan", "budgets", budgets, lambda b: _planned(2, b), 2, "with the changes of the optimum"),
        Ladder("split-half", "budgets", budgets, lambda b: _halves(600, b), 1, once),
        Ladder(
            "certificate, two ceilings", "budgets", budgets, _two_ceilings, 2, "an allocation a choice that could be"
        ),
    ]
