"""A signal as the small JSON object that a policy file holds; its ``kind`` says which signal it is.

A judge's endpoint is never read from a file: somebody else's policy must not decide where questions are sent. A policy
with a judge holds the kind only, and the caller provides the judge. For the same reason a file never names code to
import: a plugin's signal is found by its entry point, or the caller provides it.

>>> to_dict(from_dict({"kind": "task", "tasks": {"docvqa": "high"}, "most_expensive": "high"}))
{'kind': 'task', 'tasks': {'docvqa': 'high'}, 'most_expensive': 'high'}
"""

from collections.abc import Mapping
from typing import Any

from stakes.aliases import with_new_keys
from stakes.errors import BadInput
from stakes.signals.base import Signal
from stakes.signals.keywords import KEYWORDS, KeywordRule
from stakes.signals.learned import LearnedSignal
from stakes.signals.named import PluginSignal, is_installed
from stakes.signals.requests import RequestSignal
from stakes.signals.task import TaskIdentity

GIVE_IT = "give the signal yourself (--signal)"


def must_be_given(data: Mapping[str, Any]) -> bool:
    """Whether a file cannot provide this signal: a judge, or a plugin that is not installed under a name."""
    return data.get("kind") == "judge" or (data.get("kind") == "plugin" and not is_installed(data.get("name")))


def to_dict(signal: Signal) -> dict[str, Any]:
    """A signal as plain JSON values."""
    from stakes.signals.judge import Judge

    if isinstance(signal, KeywordRule):
        return {"kind": "keywords", "keywords": list(signal.keywords), "high": signal.high, "low": signal.low}
    if isinstance(signal, TaskIdentity):
        return {"kind": "task", "tasks": signal.tasks, "most_expensive": signal.most_expensive}
    if isinstance(signal, LearnedSignal | RequestSignal | PluginSignal):
        return signal.to_dict()
    if isinstance(signal, Judge):
        return {"kind": "judge", "tiers": list(signal.tiers), "most_expensive": signal.most_expensive}
    raise BadInput(f"a signal of type {type(signal).__name__} has no file form")


def from_dict(data: Mapping[str, Any], judge: Signal | None = None) -> Signal:
    """Build a signal from plain JSON values, checking every one; ``judge`` is returned where the kind is judge."""
    data = with_new_keys(data) if isinstance(data, Mapping) else {}
    kind = data.get("kind")
    if kind == "keywords":
        words, high, low = data.get("keywords", list(KEYWORDS)), data.get("high", "high"), data.get("low", "low")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in [*words, high, low]):
            raise BadInput("a keyword rule needs keywords (a list of text) and its two tiers as text")
        return KeywordRule(words, high, low)
    if kind == "task":
        tasks = data.get("tasks")
        if not isinstance(tasks, Mapping):
            raise BadInput("a task map needs tasks: an object of task to tier")
        return TaskIdentity(tasks, data.get("most_expensive"))
    if kind == "learned":
        return LearnedSignal.from_dict(data)
    if kind == "requests":
        return RequestSignal.from_dict(data)
    if kind == "plugin":
        if not is_installed(data.get("name")):
            raise BadInput(f"this signal is {data.get('name')!r:.60}, which no installed package offers; {GIVE_IT}")
        return PluginSignal(str(data["name"]), [str(tier) for tier in data.get("tiers", ())])
    if kind == "judge":
        if judge is None:
            raise BadInput("this signal is a judge, and its endpoint is not stored in files; give the judge yourself")
        return judge
    raise BadInput(
        f"unknown signal kind {kind!r:.40}; the kinds are requests, keywords, task, learned, plugin and judge"
    )
