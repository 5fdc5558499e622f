"""Signals read the tier of a request. All are called alike: ``signal(prompt, task=None) -> Reading``.

The judge is imported on first use, and scikit-learn to train, so that the keyword rule does not wait for either.

>>> from stakes.signals import KeywordRule
>>> KeywordRule()("Who is provided?").tier
'low'
"""

from typing import TYPE_CHECKING, Any

from stakes.signals.base import Reading, Signal
from stakes.signals.keywords import KeywordRule
from stakes.signals.learned import LearnedSignal
from stakes.signals.prompt import Prompt
from stakes.signals.requests import RequestSignal
from stakes.signals.serialize import from_dict, to_dict
from stakes.signals.task import TaskIdentity

if TYPE_CHECKING:
    from stakes.signals.judge import Judge

__all__ = [
    "Judge", "KeywordRule", "LearnedSignal", "Prompt", "Reading", "RequestSignal", "Signal", "TaskIdentity",
    "from_dict", "to_dict",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "Judge":
        from stakes.signals.judge import Judge

        return Judge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
