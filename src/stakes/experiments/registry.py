"""Which tables can be measured? One short file each, all with ``answers(study)`` and ``table(study)``.

measure("within-task", study).findings
"""

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.experiments.study import Study
    from stakes.experiments.table import Table


# name -> (module, what it shows)
TABLES = {
    "within-task": ("within_task", "cost, content and anti against uniform on one task"),
    "cross-task": ("cross_task", "dense pages against solid colours"),
    "frontier": ("frontier", "13 budgets, cost ratios, split half, held-out optimum"),
    "curves": ("curves", "13 budgets by both mechanisms, and whether the tiers fall alike"),
    "cross-dataset": ("cross_dataset", "three densities"),
    "invariance": ("invariance", "mechanism, scale, architecture, selector"),
    "mixed": ("mixed", "three tasks, three tiers"),
    "proportional": ("proportional", "shares of each image's tokens against absolute budgets"),
    "diagnostics": ("diagnostics", "which tasks need tokens at all"),
    "metrics": ("metrics", "the same answers under stricter metrics"),
    "labels": ("labels", "the rule and the learned signal on real questions"),
    "latency": ("latency", "time of one answer at each budget"),
    "map": ("regimes", "sensitivity gap or not, cost gap or not"),
}


class Experiment(Protocol):
    """What a table's file has."""

    def answers(self, study: "Study") -> int:
        """How many answers the table takes at most."""

    def table(self, study: "Study") -> "Table":
        """Measure it."""


def experiment(name: str) -> Experiment:
    """The file behind a table."""
    if name not in TABLES:
        raise BadInput(f"there is no table {name!r}; choose one of {', '.join(TABLES)}")
    return cast("Experiment", import_module(f"stakes.experiments.tables.{TABLES[name][0]}"))
