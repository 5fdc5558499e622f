"""Signals by name, as ``--signal`` takes them, and signals of other packages.

    named_signal("requests", costs)                  # the default: reads real requests
    named_signal("requests:fields.toml", costs)      # with fields and terms of your own
    named_signal("keywords", costs)                  # the paper's rule
    named_signal("task:docvqa=high,vqav2=low", costs)
    named_signal("learned:signal.json", costs)
    named_signal("acme.signals:Consequence", costs)  # a class of yours; or the name of an entry point

A signal of another package is any callable that takes the names of the tiers, the most expensive first, and returns a
signal. A package offers it under a name with an entry point of the group ``stakes.signals``. A policy file may name an
entry point, because installing the package was the user's choice. It never imports ``module:Class`` by itself: whoever
serves such a policy gives the signal again.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from stakes import plugins
from stakes.errors import BadInput
from stakes.signals.base import Reading, Signal
from stakes.signals.keywords import KeywordRule, read_keywords
from stakes.signals.learned import LearnedSignal
from stakes.signals.prompt import Prompt
from stakes.signals.requests import RequestSignal
from stakes.signals.task import TaskIdentity
from stakes.tiers import extremes

GROUP = "stakes.signals"
SHIPPED = ("requests", "keywords", "task", "learned", "judge", "tier", "train")
NAMES = "requests, requests:FILE, keywords, keywords:FILE, task:MAP, learned:FILE, or module:Class"


def named_signal(word: str, costs: Mapping[str, float], undecided: str | None = None) -> Signal:
    """The signal of a name; ``costs``: by tier; ``undecided``: the tier of what ``requests`` does not recognise."""
    kind, _, rest = word.partition(":")
    plugins.check_clash(kind, GROUP, shipped=kind in SHIPPED)
    tiers = by_cost(costs)
    if kind == "requests":
        return RequestSignal.load(rest, tiers, undecided) if rest else RequestSignal(tiers, undecided=undecided)
    if undecided is not None:
        raise BadInput(f"--undecided is for the signal requests, and this one is {word!r}; leave it out")
    if word == "keywords":
        return KeywordRule()
    if kind == "keywords" and rest:
        high, low = ("high", "low") if len(costs) != 2 or set(costs) == {"high", "low"} else extremes(costs)
        return KeywordRule(read_keywords(rest), high, low)
    if kind == "task" and rest:
        return TaskIdentity(read_task_map(rest), most_expensive=tiers[0])
    if kind == "learned" and rest:
        return LearnedSignal.load(rest)
    if plugins.is_code(word) or is_installed(word):
        return PluginSignal(word, tiers)
    raise BadInput(f"no signal is called {word!r}; give {NAMES}")


def by_cost(costs: Mapping[str, float]) -> list[str]:
    """The tiers, the most expensive first; the order given decides between equal costs."""
    return sorted(costs, key=lambda tier: -costs[tier])


def read_task_map(text: str) -> dict[str, str]:
    """``docvqa=high,vqav2=low``, or a JSON file of tasks and tiers."""
    if Path(text).is_file():
        try:
            read = json.loads(Path(text).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise BadInput(f"{text} is not a JSON file of tasks ({error})") from None
        if not isinstance(read, dict) or not all(isinstance(value, str) for value in read.values()):
            raise BadInput(f'{text} should read {{"docvqa": "high", "vqav2": "low"}}')
        return read
    pairs = [word.partition("=") for word in text.split(",")]
    if not all(task and equals and tier for task, equals, tier in pairs):
        raise BadInput(f"{text!r} is neither a file nor a map of tasks such as docvqa=high,vqav2=low")
    return {task.strip(): tier.strip() for task, _, tier in pairs}


class PluginSignal:
    """A signal of another package; what it returns is checked."""

    def __init__(self, name: str, tiers: Sequence[str]) -> None:
        self.name, self.tiers = name, tuple(tiers)
        factory = plugins.load(name, GROUP)
        self.identity = plugins.identity(name, GROUP)
        try:
            self._inner = factory(list(self.tiers))
        except Exception as error:
            raise BadInput(f"the signal {name} could not be made ({type(error).__name__}: {error})") from error
        if not callable(self._inner):
            raise BadInput(f"{name} made {self._inner!r:.60}, which cannot be called with a prompt")
        self.most_expensive = getattr(self._inner, "most_expensive", self.tiers[0])

    def __call__(self, prompt: str | Prompt, task: str | None = None) -> Reading:
        """Its reading; anything but a ``Reading`` of a known tier is an error."""
        reading = self._inner(prompt, task)
        if not isinstance(reading, Reading) or reading.tier not in self.tiers:
            raise BadInput(
                f"the signal {self.name} returned {reading!r:.80}; it must return a Reading of {', '.join(self.tiers)}"
            )
        return reading

    def is_recorded_in(self, data: Mapping[str, object]) -> bool:
        """Whether a file's record is of this signal; a record without package and source says nothing of them."""
        known = {key: data[key] for key in ("name", "package", "source") if key in data}
        return known.items() <= self.to_dict().items()

    def to_dict(self) -> dict[str, object]:
        """Its name and tiers, and which package and source it was."""
        return {"kind": "plugin", "name": self.name, "tiers": list(self.tiers), **self.identity}


def is_installed(name: object) -> bool:
    """Whether a package offers a signal of this name as an entry point."""
    return isinstance(name, str) and name in plugins.installed(GROUP)
