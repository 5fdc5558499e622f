"""Drawn answers with confidences: each question needs a number of tokens, and the reader feels how far it is off."""

import numpy as np

from stakes.evaluation.outcome_log import Outcome

GRID = (64, 160, 304, 448, 640)
COSTS = {"high": 5.0, "low": 1.0}


def outcomes(documents: int = 160, seed: int = 0, *, feels: float = 6.0, fine: float = 0.3) -> list[Outcome]:
    """Two questions of each tier on each document, the share ``fine`` of them in fine print.

    ``feels``: how well confidence tells right from wrong (0: not at all).
    """
    dice, found = np.random.default_rng(seed), []
    for document in range(documents):
        page = dice.normal()
        for number in range(4):
            tokens = np.exp((6.1 if dice.random() < fine else 4.5) + 0.1 * page + 0.3 * dice.normal())
            for budget in GRID:
                right = bool(budget >= tokens)
                felt = feels * (np.log(budget) - np.log(tokens)) + dice.normal()
                confidence = round(float(1 / (1 + np.exp(-felt))), 6)
                found.append(outcome(f"{document}/{number}", f"d{document:04d}", number, budget, right, confidence))
    return found


def outcome(sample: str, document: str, number: int, budget: int, right: bool, confidence: float | None) -> Outcome:
    tier, score = "high" if number < 2 else "low", float(right)
    return Outcome(
        sample, document, tier, "resolution", None, budget, 900, budget, "x", False, score, right, "relaxed", 1.0,
        "run", None, confidence,
    )  # fmt: skip
