"""Which tier is this question? Four signals, called alike: ``signal(question, task=None) -> Reading``.

Names are imported on first use, so that the keyword rule does not wait for scikit-learn or httpx.

>>> from stakes.signals import KeywordRule
>>> KeywordRule()("Who is provided?").tier
'low'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stakes.signals.agreement import Confusion as Confusion
    from stakes.signals.agreement import Disagreement as Disagreement
    from stakes.signals.agreement import count_kinds as count_kinds
    from stakes.signals.agreement import disagreements as disagreements
    from stakes.signals.agreement import gold_check as gold_check
    from stakes.signals.agreement import is_quantitative as is_quantitative
    from stakes.signals.base import Reading as Reading
    from stakes.signals.base import Signal as Signal
    from stakes.signals.judge import Judge as Judge
    from stakes.signals.keywords import KEYWORDS as KEYWORDS
    from stakes.signals.keywords import KeywordRule as KeywordRule
    from stakes.signals.learned import LearnedSignal as LearnedSignal
    from stakes.signals.serialize import from_dict as from_dict
    from stakes.signals.serialize import to_dict as to_dict
    from stakes.signals.task import TaskIdentity as TaskIdentity
    from stakes.signals.validation import predict_judge as predict_judge
    from stakes.signals.validation import stratified_sample as stratified_sample
    from stakes.signals.validation import validate_with_judge as validate_with_judge


_HOME = {
    "KEYWORDS": "keywords",
    "Confusion": "agreement",
    "Disagreement": "agreement",
    "Judge": "judge",
    "KeywordRule": "keywords",
    "LearnedSignal": "learned",
    "Reading": "base",
    "Signal": "base",
    "TaskIdentity": "task",
    "count_kinds": "agreement",
    "disagreements": "agreement",
    "from_dict": "serialize",
    "gold_check": "agreement",
    "is_quantitative": "agreement",
    "predict_judge": "validation",
    "stratified_sample": "validation",
    "to_dict": "serialize",
    "validate_with_judge": "validation",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
