"""The form of a measured table: rows of ours beside the published ones, findings in sentences, and the arms as rows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from stakes.calibration.arms.comparison import ArmRow, Comparison
from stakes.evaluation.slopes import SlopeTest
from stakes.evaluation.statistics import Discordant, mcnemar
from stakes.published import figures

Cell = str | int | float | None
Row = tuple[Cell, ...]

MEASURED = frozenset({"--model", "--data", "--per-tier", "--quick", "--signal", "--trim", "--folder", "-o"})
"""The options of ``stakes reproduce`` that every table answered by a model uses."""
EITHER_MECHANISM = MEASURED | {"--mechanism"}
"""Those of a table that can be measured by deletion or by resolution."""

RECOMPUTED = "*"
NOTE = f"{RECOMPUTED} not printed in the paper: computed from its printed figures"

ARM_COLUMNS = (
    "source", "arm", "high", "low", "average", "CWE (r = 5)", "b:c", "p", "CWE gain", "pays from r =", "tokens",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """One table of ``stakes reproduce``. The first cell of a row is its source: the model's name, or "published"."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    findings: tuple[str, ...]
    """Computed sentences: what agrees with the paper, what does not, and why where that is known."""
    meta: Mapping[str, object]
    """Model, data, seeds, totals: what is needed to reproduce it."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.name}: a row of {len(row)} cells under {len(self.columns)} columns: {row}")
        if any(isinstance(cell, str) and cell.endswith(RECOMPUTED) for row in self.rows for cell in row):
            others = (finding for finding in self.findings if finding != NOTE)
            object.__setattr__(self, "findings", (*others, NOTE))

    def record(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)


def of_trimmed(measured: Table) -> Table:
    """A table of pages without their margins, under a name of its own, with a finding that says so."""
    return replace(
        measured,
        name=f"{measured.name}-trimmed",
        findings=(*measured.findings, "margins of pages were cut off before they were fitted"),
        meta={**measured.meta, "trim": True},
    )


def arm_rows(comparison: Comparison, source: str) -> list[Row]:
    """The arms of a two-tier comparison under ``ARM_COLUMNS``, the most expensive tier first."""
    high = comparison.most_expensive
    low = next(tier for tier in comparison.counts if tier != high)
    return [
        (source, row.arm, row.errors[high], row.errors[low], row.average, row.ratios[5],
         *discordant_cells(row.high_cost), gain_cell(row), row.break_even, row.realised)
        for row in comparison.rows
    ]  # fmt: skip


def published_arm_rows(arms: Mapping[str, Any], total: int | None, extra: Mapping[str, Sequence[Cell]]) -> list[Row]:
    """The published arms in the same columns. ``extra``: (CWE gain, break-even) of an arm where they were printed."""
    rows: list[Row] = []
    for arm, row in arms.items():
        high, low = row["high"], row["low"]
        average = row["avg"] if "avg" in row else recomputed((high + low) / 2)
        cells = published_pair(row.get("mcnemar"))
        rows.append(("published", arm, high, low, average, row["cwe_r5"], *cells, *extra.get(arm, (None, None)), total))
    return rows


def recomputed(value: float) -> str:
    """A number that the paper does not print, computed from printed ones, with its mark."""
    return f"{value:.3f}{RECOMPUTED}"


def published_pair(pair: Sequence[int] | None) -> tuple[Cell, Cell]:
    """The published cells "b:c" and p; a p-value that was not printed is computed, and marked."""
    if pair is None:
        return None, None
    printed = next((row for row in figures()["printed_p_values"] if [row["b"], row["c"]] == list(pair)), None)
    if printed is None:
        return f"{pair[0]}:{pair[1]}", f"{format_p(mcnemar(*pair))}{RECOMPUTED}"
    bound = "< " if printed["relation"] == "<" else ""
    return f"{pair[0]}:{pair[1]}", f"{bound}{printed['p']:g}"


def discordant_cells(pair: Discordant | None) -> tuple[Cell, Cell]:
    """The cells "b:c" (wins : losses) and p; both empty where there is no comparison."""
    return (None, None) if pair is None else (f"{pair.b}:{pair.c}", format_both_p(pair))


def format_both_p(pair: Discordant) -> str:
    """McNemar's p, as in the paper; where documents hold several of the questions, that by document follows."""
    if not pair.clustered or pair.p_by_document is None:
        return format_p(pair.p)
    return f"{format_p(pair.p)}; {format_p(pair.p_by_document)} by document"


def gain_cell(row: ArmRow) -> Cell:
    """The CWE gain of an arm over uniform with its interval; empty for uniform."""
    return None if row.gain is None else str(row.gain)


def format_p(p: float) -> str:
    """A p-value as tables print it: 0.45, 3.2e-12."""
    return f"{p:.2g}" if p >= 0.001 else f"{p:.1e}"


def format_interval(interval: Sequence[float]) -> str:
    """An interval as tables print it: [0.041, 0.078]."""
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]"


def format_slopes(test: SlopeTest) -> str:
    """Whether two tiers respond to tokens alike, in one sentence."""
    verdict = "differ" if test.p < 0.05 else "do not differ significantly"
    (first, steep), (second, other) = test.slopes.items()
    permuted = (
        f"permuted within documents p = {format_p(test.permutation_p)}; that the error curves run parallel, "
        f"p = {format_p(test.parallel_p)}"
        if test.shared
        else "no document has questions of both tiers, so that nothing can be permuted within them"
    )
    return (
        f"the tiers' slopes {verdict}: log-odds per doubling of tokens {steep:.2f} {first}, {other:.2f} {second}, "
        f"difference {test.difference:+.2f} [{test.low:+.2f}, {test.high:+.2f}], p = {format_p(test.p)} by documents; "
        f"{permuted}"
    )
