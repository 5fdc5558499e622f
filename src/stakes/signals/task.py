"""Task identity as the signal: the workflow that a request comes from decides its tier.

Paper, "Frozen cost-label rule", last sentence: in the mixed workload VQAv2 is low, TextVQA medium and DocVQA high, for
every question. A task that is not in the map is undecided and gets the most expensive tier.

>>> TaskIdentity({"docvqa": "high", "vqav2": "low"})("", task="vqav2")
Reading(tier='low', probability=1.0, why='task "vqav2"', decided=True)
"""

from collections.abc import Mapping

from stakes.errors import BadInput
from stakes.signals.base import Reading, find_most_expensive, undecided
from stakes.signals.prompt import Prompt


class TaskIdentity:
    """A map from task to tier; the question is not read and may be empty.

    ``most_expensive`` is the tier of unknown tasks. It is needed unless the tiers are the paper's high, medium and low.
    """

    def __init__(self, tasks: Mapping[str, str], most_expensive: str | None = None) -> None:
        if not tasks:
            raise BadInput("a task map needs at least one task, for example {'docvqa': 'high'}")
        for task in tasks:
            if not isinstance(task, str) or not task.strip():
                raise BadInput(f"the name of a task must be text that is not empty, not {task!r}")
        self.tasks = dict(tasks)
        self.most_expensive = find_most_expensive(self.tasks.values(), most_expensive)
        self.tiers = tuple(dict.fromkeys([*self.tasks.values(), self.most_expensive]))

    def __call__(self, prompt: str | Prompt, task: str | None = None) -> Reading:
        """Read the tier of a task, spelled exactly as in the map; ``task`` comes before the prompt's own."""
        if task is None and isinstance(prompt, Prompt):
            task = prompt.task
        if task is None or not task.strip():
            return undecided(self.most_expensive, len(self.tiers), "no task was named")
        tier = self.tasks.get(task)
        if tier is None:
            return undecided(self.most_expensive, len(self.tiers), f'task "{task}" is not on the map')
        return Reading(tier, 1.0, f'task "{task}"')
