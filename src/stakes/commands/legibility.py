"""``stakes reproduce legibility`` and ``legibility-check``: what can still be read on real pages, with no VLM at all.

stakes reproduce legibility --data DIR -o legibility.json        # DIR holds docvqa/, chartqa/ and sroie/
stakes reproduce legibility-check --data DIR                     # is reading at the answers like reading all?
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from stakes.commands.output import print_json, print_table
from stakes.errors import BadInput

NAMES = {
    "legibility": "what an OCR engine can still read on real pages, beside the published VLM figures",
    "legibility-check": "whether reading at the answers is like reading whole pages",
}
CHECK_PAGES, CHECK_BUDGETS = 20, (96, 160, 304)


def legibility(table: str, data: Sequence[str], folder: Path, output: Path | None, as_json: bool) -> None:
    """One of the two tables; ``data`` names one folder."""
    if len(data) != 1 or not Path(data[0]).is_dir():
        raise BadInput(f"{table} reads real pages; give --data DIR once, a folder with docvqa/, chartqa/ and sroie/")
    record = _all(Path(data[0]), folder, as_json) if table == "legibility" else _check(Path(data[0]), as_json)
    if output is not None:
        from stakes.evaluation.fingerprint import save_json

        save_json(output, record)
    if as_json:
        print_json(record)


def _all(data: Path, folder: Path, as_json: bool) -> dict[str, object]:
    from stakes.evaluation.progress import progress_on
    from stakes.experiments.legibility import run_legibility
    from stakes.experiments.legibility_tables import tables

    found = run_legibility(data, folder / "legibility", progress=lambda name: progress_on(sys.stderr, name))
    if not as_json:
        for made in tables(found):
            print_table(made.title, made.columns, made.rows)
            for line in made.findings:
                typer.echo(f"  - {line}")
            typer.echo("")
    return {"command": "stakes reproduce legibility --data DIR", **found.record()}


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
