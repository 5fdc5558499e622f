"""What does a measured table look like? Rows of ours beside the published ones, and what must be said of them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from stakes.evaluation.slopes import SlopeTest

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """One table of ``stakes reproduce``. ``source`` of a row says whose it is: the model's name, or "published"."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    findings: tuple[str, ...]
    """Computed sentences: what agrees with the paper, what does not, and why where that is known."""
    meta: Mapping[str, object]
    """Model, data, seeds, totals: what one needs to make it again."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.name}: a row of {len(row)} cells under {len(self.columns)} columns: {row}")

    def record(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)


def spell_p(p: float) -> str:
    """A p-value as tables print it: 0.45, 3.2e-12."""
    return f"{p:.2g}" if p >= 0.001 else f"{p:.1e}"


def spell_interval(interval: Sequence[float]) -> str:
    """[0.041, 0.078]"""
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]"


def spell_slopes(test: SlopeTest) -> str:
    """Whether two tiers respond to tokens alike, in one sentence."""
    verdict = "differ" if test.p < 0.05 else "are not told apart"
    (first, steep), (second, other) = test.slopes.items()
    permuted = (
        f"permuted within documents p = {spell_p(test.permutation_p)}; that the error curves run parallel, "
        f"p = {spell_p(test.parallel_p)}"
        if test.shared
        else "no document has questions of both tiers, so that nothing can be permuted within them"
    )
    return (
        f"the tiers' slopes {verdict}: log-odds per doubling of tokens {steep:.2f} {first}, {other:.2f} {second}, "
        f"difference {test.difference:+.2f} [{test.low:+.2f}, {test.high:+.2f}], p = {spell_p(test.p)} by documents; "
        f"{permuted}"
    )
