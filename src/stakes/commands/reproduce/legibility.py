"""``stakes reproduce legibility`` and its companions: what an OCR engine can read on pages, without a VLM.

stakes reproduce legibility --data DIR -o legibility.json        # DIR holds docvqa/, chartqa/ and sroie/
stakes reproduce legibility-check --data DIR                     # does reading at the answers equal reading all?
stakes reproduce legibility-agreement -o agreement.json          # does it predict the answers of the embedded reader?
stakes reproduce legibility-map --data page.png -o map.png       # from which budget is each word of a page legible?
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stakes.commands.options.inputs import check_writable
from stakes.commands.output import print_json, print_measured, print_table, save_record
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.experiments.table import Table

NAMES = {
    "legibility": "what an OCR engine can read on real pages at each budget, beside the published VLM figures",
    "legibility-check": "whether reading at the answers equals reading whole pages",
    "legibility-agreement": "whether legibility predicts a model's own error curve, on synthetic forms",
    "legibility-map": "an image of a page with the budget from which each word is legible",
}
OPTIONS = {
    "legibility": frozenset({"--data", "--trim", "--folder", "-o"}),
    "legibility-check": frozenset({"--data", "-o"}),
    "legibility-agreement": frozenset({"--model", "--per-tier", "--quick", "--folder", "-o"}),
    "legibility-map": frozenset({"--data", "-o"}),
}
"""The options of ``stakes reproduce`` that each table uses."""
CHECK_PAGES, CHECK_BUDGETS = 20, (96, 160, 304)


def legibility(
    table: str,
    data: Sequence[str],
    folder: Path,
    output: Path | None,
    as_json: bool,
    *,
    model: str,
    per_tier: int,
    trim: bool = False,
) -> None:
    """Make one of the tables in NAMES; ``data`` names one folder of real pages, or one image for the map."""
    if table == "legibility-map":
        return _map(data, output or Path("legibility-map.png"), as_json)
    if table == "legibility-agreement":
        record = _agreement(model, per_tier, folder, as_json)
    elif len(data) != 1 or not Path(data[0]).is_dir():
        raise BadInput(f"{table} reads real pages; give --data DIR once, a folder with docvqa/, chartqa/ and sroie/")
    else:
        pages = Path(data[0])
        record = _real_pages(pages, folder, as_json, trim) if table == "legibility" else _check(pages, as_json)
    if output is not None:
        save_record(output, record)
    if as_json:
        print_json(record)
    return None


def _map(data: Sequence[str], output: Path, as_json: bool) -> None:
    """The map of one image, or of a synthetic form."""
    from stakes.data.sample import Sample
    from stakes.evaluation.samples import draw_samples, prepare_samples
    from stakes.legibility.model import Legibility
    from stakes.legibility.word_map import BUDGETS, draw_map, legibility_map, legible_shares
    from stakes.vision.image.decode import open_image

    if len(data) > 1:
        raise BadInput(f"a map shows one page, not {len(data)}; give --data IMAGE once")
    if output.suffix.lower() != ".png":
        raise BadInput(f"a map is an image; give -o a name that ends in .png, not {output.name!r}")
    check_writable(output, *map(Path, data))
    if data:
        labelled = Sample(id="page", image=str(Path(data[0]).resolve()), question="?", answers=("?",), tier="high")
        sample = prepare_samples([labelled], Path())[0]
    else:
        sample = draw_samples("forms", "test", 1)[0]
    words = legibility_map(Legibility(), sample, BUDGETS)
    draw_map(open_image(sample.load()), words).save(output)
    legible = legible_shares(words, BUDGETS)
    if as_json:
        return print_json({"basis": "legibility", "map": str(output), "words": len(words), "legible": legible})
    print_table(f"Share of {len(words)} words that are legible", ["budget", "legible"], list(legible.items()))
    typer.echo(f"Map in {output}.")
    return None


def _real_pages(data: Path, folder: Path, as_json: bool, trim: bool) -> dict[str, object]:
    from stakes.evaluation.progress import Progress
    from stakes.experiments.legibility import run_legibility
    from stakes.experiments.legibility.tables import legibility_tables

    results = run_legibility(data, folder / "legibility", progress=partial(Progress, sys.stderr), trim=trim)
    tables = _show(legibility_tables(results), as_json)
    command = "stakes reproduce legibility --data DIR" + " --trim" * trim
    return {"command": command, **results.record(), "tables": tables}


def _agreement(model: str, per_tier: int, folder: Path, as_json: bool) -> dict[str, object]:
    from stakes.evaluation.progress import Progress
    from stakes.experiments.legibility.agreement import run_agreement
    from stakes.experiments.legibility.tables import agreement_tables
    from stakes.models import load

    out, progress = folder / "legibility-agreement", partial(Progress, sys.stderr)
    results = run_agreement(load(model), model, out, per_tier=per_tier, progress=progress)
    tables = _show(agreement_tables(results), as_json)
    command = f"stakes reproduce legibility-agreement --model {model} --per-tier {per_tier}"
    return {"command": command, **results.record(), "tables": tables}


def _show(tables: "Sequence[Table]", as_json: bool) -> dict[str, object]:
    """Print the tables and their findings unless JSON follows; returns their records by name."""
    for table in tables if not as_json else ():
        print_measured(table)
    return {table.name: table.record() for table in tables}


def _check(data: Path, as_json: bool) -> dict[str, object]:
    from stakes.evaluation.samples import answerable
    from stakes.experiments.legibility import check_readings
    from stakes.experiments.legibility.real_pages import real_set
    from stakes.legibility.model import Legibility

    model = Legibility()
    samples, _ = real_set(data, "docvqa")
    pages = list(dict.fromkeys(sample.digest for sample in samples))[:CHECK_PAGES]
    located, _ = answerable(model, [sample for sample in samples if sample.digest in pages])
    rows = check_readings(model, located, CHECK_BUDGETS)
    if not as_json:
        columns = [key.replace("_", " ") for key in rows[0]]
        print_table("Answers legible by three readings", columns, [list(row.values()) for row in rows])
    return {"command": "stakes reproduce legibility-check --data DIR", "model": model.identity(), "budgets": rows}
