"""Curves read from a JSON file of curves, from a policy file or from a log of outcomes.

    {"high": {"budgets": [32, 304, 576], "errors": [0.90, 0.30, 0.10], "counts": 300}, "low": {…}}

A log must hold one experiment: outcomes of different mechanisms, selectors, metrics or runs are not mixed in a curve.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stakes.budgets.curve import Curve, curve_from_answers
from stakes.budgets.policy import Policy
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome, read_outcomes


def read_curves(path: str | Path) -> dict[str, Curve]:
    """Curves by tier from a ``.jsonl`` outcome log, a policy file or a JSON file of curves."""
    path = Path(path)
    if path.suffix == ".jsonl":
        return curves_from_outcomes(read_outcomes(path))
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; check the path") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON ({error}); give a file of curves, a policy, or a .jsonl log") from None
    if isinstance(record, Mapping) and isinstance(record.get("tiers"), Mapping):
        plans = {tier: plan for tier, plan in record["tiers"].items() if isinstance(plan, Mapping)}
        record = {tier: plan["curve"] for tier, plan in plans.items() if plan.get("curve")}
    if not isinstance(record, Mapping) or not record:
        raise BadInput(f'{path} holds no curves; it should read {{"high": {{"budgets": …, "errors": …, "counts": …}}}}')
    return {str(tier): _curve(tier, points, path) for tier, points in record.items()}


def read_policy(path: str | Path) -> Policy | None:
    """The policy in a file, or None if it is a log or a file of curves."""
    path = Path(path)
    if path.suffix == ".jsonl":
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # ``read_curves`` says what is wrong
        return None
    return Policy.from_record(record, str(path)) if isinstance(record, Mapping) and "schema" in record else None


def _curve(tier: str, points: Any, path: Path) -> Curve:
    if not isinstance(points, Mapping) or set(points) != {"budgets", "errors", "counts"}:
        raise BadInput(f"tier {tier!r} of {path} needs budgets, errors and counts, and nothing else")
    for key, value in points.items():
        numbers = value if isinstance(value, list) else [value] if key == "counts" else [None]
        if not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
            raise BadInput(f"tier {tier!r} of {path}: {key} must be a list of numbers, not {value!r:.80}")
    try:
        return Curve(points["budgets"], points["errors"], points["counts"])
    except BadInput as error:
        raise BadInput(f"tier {tier!r} of {path}: {error}") from None


def curves_from_outcomes(outcomes: Iterable[Outcome]) -> dict[str, Curve]:
    """Curves by tier from the answers of one experiment."""
    answers: dict[str, list[tuple[int, bool]]] = {}
    seen: dict[str, set[str]] = {"mechanism": set(), "selector": set(), "metric": set(), "run": set()}
    for outcome in outcomes:
        for key, values in seen.items():
            values.add(str(getattr(outcome, key)))
            if len(values) > 1:
                raise BadInput(f"the log mixes {key} {' and '.join(sorted(values))}; keep one experiment to a log")
        answers.setdefault(outcome.tier, []).append((outcome.budget, outcome.correct))
    if not answers:
        raise BadInput("the log holds no outcomes yet; run the calibration first")
    return {tier: curve_from_answers(rows) for tier, rows in answers.items()}
