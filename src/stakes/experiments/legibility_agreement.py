"""Does what can be read foretell what is answered? Legibility and a model's own answers, on the same synthetic pages.

    stakes reproduce legibility-agreement -o docs/results/legibility-agreement.json

The embedded reader answers every question at the paper's 13 budgets, by resizing and by deletion; the OCR engine reads
the same pages, resized. Both logs are kept and a later call goes on there; ``benchmarks/hybrid.py`` starts from them.
Questions whose answer the engine does not find at native size are left out of both and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from stakes.budgets.paper import PAPER_GRID
from stakes.evaluation.alignment import Alignment, align
from stakes.evaluation.answerable import answerable
from stakes.evaluation.asked import Asked, ask_pages
from stakes.evaluation.fingerprint import Setting, take
from stakes.evaluation.outcomes import Outcome
from stakes.evaluation.progress import Progress
from stakes.evaluation.runner import Key
from stakes.experiments.study import Study
from stakes.experiments.table import Cell, Table
from stakes.models.about import identity
from stakes.models.base import VLM
from stakes.models.ocr import BASIS, Legibility

FAMILY, SPLIT = "forms", "calibration"
SETTINGS = {"resolution": Setting("resolution"), "deletion": Setting("deletion")}
ALL = "all"


@dataclass(frozen=True)
class Agreements:
    """Alignments of a model's answers (first) with legibility (second), by mechanism and tier; ``all``: both tiers."""

    data: str
    """The fingerprint of the questions and pages."""
    model: Mapping[str, str]
    engine: Mapping[str, str]
    questions: Mapping[str, int]
    apart: Mapping[str, int]
    found: Mapping[str, Mapping[str, Alignment]]

    def record(self) -> dict[str, object]:
        """As JSON."""
        return {
            "basis": BASIS,
            "pages": f"{FAMILY}/{SPLIT}",
            "data": self.data,
            "model": dict(self.model),
            "engine": dict(self.engine),
            "questions": dict(self.questions),
            "apart": dict(self.apart),
            "alignments": {how: {tier: asdict(one) for tier, one in row.items()} for how, row in self.found.items()},
        }


def run_agreement(
    model: VLM,
    name: str,
    out: Path,
    *,
    per_tier: int = 300,
    engine: Legibility | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> Agreements:
    """Ask and read everything that the logs in ``out`` lack, and compare."""
    asked = ask_pages(FAMILY, SPLIT, per_tier)
    engine = engine or Legibility()
    study = Study(model, name, out, mechanism="resolution", progress=None)
    answers = {}
    for how, setting in SETTINGS.items():
        told = replace(study, progress=None if progress is None else progress(f"{name} by {how}"))
        answers[how] = told.answers(FAMILY, asked, _lanes(asked), setting)
    kept, apart = answerable(engine, asked)
    reading = Study(engine, BASIS, out, mechanism="resolution", progress=progress(BASIS) if progress else None)
    legible = reading.answers(FAMILY, kept, _lanes(kept))
    tiers = list(dict.fromkeys(one.tier for one in kept))
    return Agreements(
        data=take(asked, model, SETTINGS["resolution"]).data,
        model=identity(model),
        engine=engine.identity(),
        questions={tier: sum(one.tier == tier for one in kept) for tier in tiers},
        apart=apart.by_tier,
        found={
            how: {
                tier: _align(answered, legible, [one for one in kept if tier in (one.tier, ALL)])
                for tier in (*tiers, ALL)
            }
            for how, answered in answers.items()
        },
    )


def agreement_tables(found: Agreements) -> list[Table]:
    """Curves side by side for each mechanism, and what aligning them says."""
    return [_table(how, found) for how in found.found]


def _table(how: str, agreements: Agreements) -> Table:
    found = agreements.found[how]
    tiers = [tier for tier in found if tier != ALL]
    columns = ["budget"]
    for tier in tiers:
        columns += [f"{tier}: model", f"{tier}: legibility"]
    columns += ["right", "of these not legible"]
    together = found[ALL]
    rows: list[tuple[Cell, ...]] = []
    for i, budget in enumerate(together.budgets):
        row: list[Cell] = [budget]
        for tier in tiers:
            row += [found[tier].first[i], found[tier].second[i]]
        rows.append((*row, together.both[i] + together.only_first[i], together.only_first[i]))
    findings = [
        f"{sum(agreements.questions.values())} questions on {together.documents} pages; "
        f"{sum(agreements.apart.values())} more are set apart: their answer is not found at native size"
    ]
    for tier, one in found.items():
        findings.append(
            f"{tier}: rank correlation {one.rank_of_curves:.3f} of the curves, {one.rank_of_questions:.3f} of the "
            f"questions; the model needs 2^{one.shift:+.2f} = {2**one.shift:.2f} times the tokens "
            f"[{2**one.low:.2f}, {2**one.high:.2f}], which leaves {one.left_over:.3f}; half are lost at "
            f"{_tokens(one.half[0])} tokens (model) and {_tokens(one.half[1])} (legibility)"
        )
    title = f"Synthetic forms: errors of the model by {how} beside legibility"
    return Table(f"agreement-{how}", title, tuple(columns), tuple(rows), tuple(findings), {"basis": BASIS})


def _align(answered: Mapping[Key, Outcome], legible: Mapping[Key, Outcome], asked: Sequence[Asked]) -> Alignment:
    tables = [
        [[found[one.id, budget].correct for budget in PAPER_GRID] for one in asked] for found in (answered, legible)
    ]
    return align(tables[0], tables[1], [one.document for one in asked], PAPER_GRID)


def _lanes(asked: Sequence[Asked]) -> list[list[int]]:
    return [[budget] * len(asked) for budget in PAPER_GRID]


def _tokens(value: float | None) -> str:
    return "none of these" if value is None else f"{value:.0f}"
