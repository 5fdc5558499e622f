"""The measured tables of ``stakes reproduce``, one file each.

A table's name is that of its file with dashes, and its description the first line of the file's
docstring. Both are read without an import, so that ``--help`` is fast. The file has what ``Experiment`` lists.

    TABLES["within-task"]                          # "Cost, content and anti against uniform on one task"
    experiment("within-task").OPTIONS              # {"--model", "--data", …}
    experiment("within-task").table(study).findings
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.experiments.estimate import Ask
    from stakes.experiments.study import Study
    from stakes.experiments.table import Table


def _description(path: Path) -> str:
    return path.read_text(encoding="utf-8").split('"""')[1].partition("\n")[0].rstrip(".")


TABLES = {
    path.stem.replace("_", "-"): _description(path)
    for path in sorted(Path(__file__).parent.glob("*.py"))
    if path.stem != "__init__"
}
"""Descriptions by name."""


class Experiment(Protocol):
    """The module of one table."""

    OPTIONS: frozenset[str]
    """The options of ``stakes reproduce`` that the table uses."""
    DATASETS: tuple[str, ...]
    """The paper's data sets that it takes questions from (``study.OFFLINE``)."""

    def asks(self, study: "Study") -> "set[Ask]":
        """What the table asks at most; nothing is loaded for this."""

    def table(self, study: "Study") -> "Table":
        """Measure it."""


def experiment(name: str) -> Experiment:
    """The module of a table."""
    if name not in TABLES:
        raise BadInput(f"there is no table {name!r}; choose one of {', '.join(TABLES)}")
    return cast("Experiment", import_module(f"stakes.experiments.tables.{name.replace('-', '_')}"))
