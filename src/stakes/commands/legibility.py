"""``stakes reproduce legibility`` and what belongs to it: what can still be read on pages, with no VLM at all.

stakes reproduce legibility --data DIR -o legibility.json        # DIR holds docvqa/, chartqa/ and sroie/
stakes reproduce legibility-check --data DIR                     # is reading at the answers like reading all?
stakes reproduce legibility-agreement -o agreement.json          # does it foretell what the embedded reader answers?
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stakes.commands.output import clean, print_json, print_table
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.experiments.table import Table

NAMES = {
    "legibility": "what an OCR engine can still read on real pages, beside the published VLM figures",
    "legibility-check": "whether reading at the answers is like reading whole pages",
    "legibility-agreement": "whether legibility foretells a model's own curve, on synthetic forms",
}
CHECK_PAGES, CHECK_BUDGETS = 20, (96, 160, 304)


def legibility(
    table: str, data: Sequence[str], folder: Path, output: Path | None, as_json: bool, *, model: str, per_tier: int
) -> None:
    """One of these tables; ``data`` names one folder, where real pages are read."""
    if table == "legibility-agreement":
        if data:
            raise BadInput(f"{table} draws its own pages; leave --data out")
        record = _agreement(model, per_tier, folder, as_json)
    elif len(data) != 1 or not Path(data[0]).is_dir():
        raise BadInput(f"{table} reads real pages; give --data DIR once, a folder with docvqa/, chartqa/ and sroie/")
    else:
        record = _all(Path(data[0]), folder, as_json) if table == "legibility" else _check(Path(data[0]), as_json)
    if output is not None:
        from stakes.evaluation.fingerprint import save_json

        save_json(output, clean(record))
    if as_json:
        print_json(record)


def _all(data: Path, folder: Path, as_json: bool) -> dict[str, object]:
    from stakes.evaluation.progress import progress_on
    from stakes.experiments.legibility import run_legibility
    from stakes.experiments.legibility_tables import tables

    found = run_legibility(data, folder / "legibility", progress=lambda name: progress_on(sys.stderr, name))
    made = tables(found)
    if not as_json:
        _print(made)
    return {"command": "stakes reproduce legibility --data DIR", **found.record(), **_records(made)}


def _agreement(model: str, per_tier: int, folder: Path, as_json: bool) -> dict[str, object]:
    from stakes.evaluation.progress import progress_on
    from stakes.experiments.legibility_agreement import agreement_tables, run_agreement
    from stakes.models import load

    found = run_agreement(
        load(model),
        model,
        folder / "legibility-agreement",
        per_tier=per_tier,
        progress=lambda name: progress_on(sys.stderr, name),
    )
    made = agreement_tables(found)
    if not as_json:
        _print(made)
    command = f"stakes reproduce legibility-agreement --model {model} --per-tier {per_tier}"
    return {"command": command, **found.record(), **_records(made)}


def _records(made: "Sequence[Table]") -> dict[str, object]:
    return {"tables": {table.name: table.record() for table in made}}


def _print(made: "Sequence[Table]") -> None:
    for table in made:
        print_table(table.title, table.columns, table.rows)
        for line in table.findings:
            typer.echo(f"  - {line}")
        typer.echo("")


def _check(data: Path, as_json: bool) -> dict[str, object]:
    from stakes.evaluation.answerable import answerable
    from stakes.experiments.legibility_check import check_readings
    from stakes.experiments.legibility_data import real_set
    from stakes.models.ocr import Legibility

    model = Legibility()
    asked = real_set(data, "docvqa").asked
    pages = list(dict.fromkeys(one.digest for one in asked))[:CHECK_PAGES]
    kept, _ = answerable(model, [one for one in asked if one.digest in pages])
    rows = [found.record() for found in check_readings(model, kept, CHECK_BUDGETS)]
    if not as_json:
        columns = [key.replace("_", " ") for key in rows[0]]
        print_table("Answers legible by three readings", columns, [list(row.values()) for row in rows])
    return {"command": "stakes reproduce legibility-check --data DIR", "model": model.identity(), "budgets": rows}
