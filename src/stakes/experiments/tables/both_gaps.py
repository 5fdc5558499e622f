"""The cell of the map with both gaps, alone and with more questions.

Half of the images are dense pages and half solid colors, half of each high-cost (5) and half low-cost (1). Content sees
one gap, cost the other, their composition both. The paper left this cell as a hypothesis; ``map`` has all four cells.
"""

from stakes.experiments.estimate import Ask
from stakes.experiments.study import Study
from stakes.experiments.table import Row, Table
from stakes.experiments.tables import map as cells

OPTIONS, DATASETS = cells.OPTIONS, cells.DATASETS
BOTH = (True, True)


def asks(study: Study) -> set[Ask]:
    """The four arms of the cell."""
    return {ask for ask in cells.asks(study) if ask.questions == cells.group(BOTH)}


def table(study: Study) -> Table:
    """One row for each arm."""
    rows, finding = cells.measure(study, BOTH)
    named: list[Row] = [(study.name, *cells_of) for _, _, *cells_of in rows]
    return Table(
        name="both-gaps",
        title=f"Both gaps: {study.name}, by deletion, {study.per_tier // 2 * 2} questions of each tier",
        columns=("source", *cells.COLUMNS[2:]),
        rows=tuple(named),
        findings=(finding,),
        meta={"model": study.name, "data": [study.source(name) for name in DATASETS], "split": study.split},
    )
