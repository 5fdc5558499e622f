"""How does a signal travel in a policy file? As a small JSON object with its ``kind``.

A judge's endpoint is never taken from a file: a stranger's policy must not decide where questions are sent. A policy
that reads its tiers from a judge names the kind only, and whoever loads it brings the judge.

>>> to_dict(from_dict({"kind": "task", "tasks": {"docvqa": "high"}, "dearest": "high"}))
{'kind': 'task', 'tasks': {'docvqa': 'high'}, 'dearest': 'high'}
"""

from collections.abc import Mapping
from typing import Any

from stakes.errors import BadInput
from stakes.signals.base import Signal
from stakes.signals.keywords import KEYWORDS, KeywordRule
from stakes.signals.learned import LearnedSignal
from stakes.signals.task import TaskIdentity


def to_dict(signal: Signal) -> dict[str, Any]:
    """Return a signal as plain JSON values."""
    from stakes.signals.judge import Judge

    if isinstance(signal, KeywordRule):
        return {"kind": "keywords", "keywords": list(signal.keywords), "high": signal.high, "low": signal.low}
    if isinstance(signal, TaskIdentity):
        return {"kind": "task", "tasks": signal.tasks, "dearest": signal.dearest}
    if isinstance(signal, LearnedSignal):
        return signal.to_dict()
    if isinstance(signal, Judge):
        return {"kind": "judge", "tiers": list(signal.tiers), "dearest": signal.dearest}
    raise BadInput(f"a signal of type {type(signal).__name__} has no file form")


def from_dict(data: Mapping[str, Any], judge: Signal | None = None) -> Signal:
    """Build a signal from plain JSON values, checking every one; ``judge`` serves where the kind is judge."""
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if kind == "keywords":
        words, high, low = data.get("keywords", list(KEYWORDS)), data.get("high", "high"), data.get("low", "low")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in [*words, high, low]):
            raise BadInput("a keyword rule needs keywords (a list of text) and its two tiers as text")
        return KeywordRule(words, high, low)
    if kind == "task":
        tasks, dearest = data.get("tasks"), data.get("dearest")
        if not isinstance(tasks, Mapping) or not (dearest is None or isinstance(dearest, str)):
            raise BadInput("a task map needs tasks (an object of task to tier) and dearest as text")
        return TaskIdentity(tasks, dearest)
    if kind == "learned":
        return LearnedSignal.from_dict(data)
    if kind == "judge":
        if judge is None:
            raise BadInput("this signal is a judge, and its endpoint is not kept in files; give the judge yourself")
        return judge
    raise BadInput(f"unknown signal kind {kind!r:.40}; the kinds are keywords, task, learned and judge")
