"""Which workflow does the request come from? Task identity as the signal.

Paper, "Frozen cost-label rule", last sentence: in the mixed workload VQAv2 is low, TextVQA medium and DocVQA high,
whatever is asked. A task that is not on the map is undecided, and falls to the dearest tier.

>>> TaskIdentity({"docvqa": "high", "vqav2": "low"})("", task="vqav2")
Reading(tier='low', probability=1.0, why='task "vqav2"', decided=True)
"""

from collections.abc import Mapping

from stakes.errors import BadInput
from stakes.signals.base import Reading, find_dearest, undecided


class TaskIdentity:
    """A map from task to tier; the question is not read and may be empty.

    ``dearest`` is the tier for unknown tasks. It must be given unless the tiers are the paper's high, medium and low.
    """

    def __init__(self, tasks: Mapping[str, str], dearest: str | None = None) -> None:
        if not tasks:
            raise BadInput("a task map needs at least one task, for example {'docvqa': 'high'}")
        for task in tasks:
            if not isinstance(task, str) or not task.strip():
                raise BadInput(f"a task needs a name, and {task!r} is none")
        self.tasks = dict(tasks)
        self._dearest = find_dearest(self.tasks.values(), dearest)
        self._tiers = tuple(dict.fromkeys([*self.tasks.values(), self._dearest]))

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers it can name."""
        return self._tiers

    @property
    def dearest(self) -> str:
        """The tier it falls to when undecided."""
        return self._dearest

    def __call__(self, question: str, task: str | None = None) -> Reading:  # noqa: ARG002 (every signal's call)
        """Read the tier of a task, spelt exactly as on the map."""
        if task is None or not task.strip():
            return undecided(self._dearest, len(self._tiers), "no task was named")
        tier = self.tasks.get(task)
        if tier is None:
            return undecided(self._dearest, len(self._tiers), f'task "{task}" is not on the map')
        return Reading(tier, 1.0, f'task "{task}"')
