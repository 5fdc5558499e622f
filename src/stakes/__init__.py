"""Spend visual tokens where mistakes are expensive.

    from stakes import Curve, allocate

    curves = {"high": Curve([32, 304, 576], [0.90, 0.30, 0.10], 300),
              "low":  Curve([32, 304, 576], [0.91, 0.37, 0.09], 300)}
    allocate(curves, costs={"high": 5, "low": 1}, counts={"high": 300, "low": 300}, total=182_400).budgets

Every name below is imported on first use, so ``import stakes`` is instant and pulls in no numerical library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stakes.errors import (
    BadInput,
    InfeasibleBudget,
    LedgerBreach,
    StakesError,
    UnknownFamily,
    UnreadableImage,
)

if TYPE_CHECKING:
    from stakes.budgets.allocate import Allocation, allocate
    from stakes.budgets.curve import Curve
    from stakes.budgets.frontier import break_even
    from stakes.budgets.policy import Decision, Policy
    from stakes.calibration.calibrate import calibrate
    from stakes.calibration.result import Calibration
    from stakes.evaluation.grading import grade
    from stakes.evaluation.statistics import cwe, mcnemar
    from stakes.gateway.wrap import wrap
    from stakes.signals import Judge, KeywordRule, LearnedSignal, Prompt, Reading, RequestSignal, TaskIdentity
    from stakes.tiers import Tier
    from stakes.vision.geometry import count_tokens
    from stakes.vision.image.resize import Fitted, fit

_HOMES = {
    "Allocation": "stakes.budgets.allocate",
    "Calibration": "stakes.calibration.result",
    "Curve": "stakes.budgets.curve",
    "Decision": "stakes.budgets.policy",
    "Fitted": "stakes.vision.image.resize",
    "Judge": "stakes.signals",
    "KeywordRule": "stakes.signals",
    "LearnedSignal": "stakes.signals",
    "Policy": "stakes.budgets.policy",
    "Prompt": "stakes.signals",
    "Reading": "stakes.signals",
    "RequestSignal": "stakes.signals",
    "TaskIdentity": "stakes.signals",
    "Tier": "stakes.tiers",
    "allocate": "stakes.budgets.allocate",
    "break_even": "stakes.budgets.frontier",
    "calibrate": "stakes.calibration.calibrate",
    "count_tokens": "stakes.vision.geometry",
    "cwe": "stakes.evaluation.statistics",
    "fit": "stakes.vision.image.resize",
    "grade": "stakes.evaluation.grading",
    "mcnemar": "stakes.evaluation.statistics",
    "wrap": "stakes.gateway.wrap",
}

__all__ = [
    "Allocation",
    "BadInput",
    "Calibration",
    "Curve",
    "Decision",
    "Fitted",
    "InfeasibleBudget",
    "Judge",
    "KeywordRule",
    "LearnedSignal",
    "LedgerBreach",
    "Policy",
    "Prompt",
    "Reading",
    "RequestSignal",
    "StakesError",
    "TaskIdentity",
    "Tier",
    "UnknownFamily",
    "UnreadableImage",
    "allocate",
    "break_even",
    "calibrate",
    "count_tokens",
    "cwe",
    "fit",
    "grade",
    "mcnemar",
    "wrap",
]


_PACKAGES = ("data", "models")  # shown beside the names, and imported on first use like them


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"stakes.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'stakes' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES})
