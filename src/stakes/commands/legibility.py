"""``stakes reproduce legibility`` and what belongs to it: what can still be read on pages, with no VLM at all.

stakes reproduce legibility --data DIR -o legibility.json        # DIR holds docvqa/, chartqa/ and sroie/
stakes reproduce legibility-check --data DIR                     # is reading at the answers like reading all?
stakes reproduce legibility-agreement -o agreement.json          # does it foretell what the embedded reader answers?
stakes reproduce legibility-map --data page.png -o map.png       # which words of this page die first?
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stakes.commands.output import clean, print_json, print_table
from stakes.commands.reproduce_options import check_gathered
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.experiments.table import Table


NAMES = {
    "legibility": "what an OCR engine can still read on real pages, beside the published VLM figures",
    "legibility-check": "whether reading at the answers is like reading whole pages",
    "legibility-agreement": "whether legibility foretells a model's own curve, on synthetic forms",
    "legibility-map": "which words of a page die first as tokens fall, drawn on the page",
}
CHECK_PAGES, CHECK_BUDGETS = 20, (96, 160, 304)


def legibility(
    table: str, data: Sequence[str], folder: Path, output: Path | None, as_json: bool, *, model: str, per_tier: int
) -> None:
    """One of these tables; ``data`` names one folder where real pages are read, and an image for the map."""
    from stakes.commands.inputs import check_writable

    if table == "legibility-map":
        return _map(data, output or Path("legibility-map.png"), as_json)
    if output is not None:
        check_writable(output, *map(Path, data))
        check_gathered(output, table, alone=True)
    if table == "legibility-agreement":
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
    return None


def _map(data: Sequence[str], output: Path, as_json: bool) -> None:
    """Of one image, or of a synthetic form."""
    from stakes.commands.inputs import check_writable
    from stakes.data.sample import Sample
    from stakes.evaluation.items import ask, ask_pages
    from stakes.legibility.model import Legibility
    from stakes.legibility.word_map import BUDGETS, draw_map, legibility_map, shares
    from stakes.vision.image.decode import open_image

    if len(data) > 1:
        raise BadInput(f"a map is of one page, not of {len(data)}; give --data IMAGE once")
    if output.suffix.lower() != ".png":
        raise BadInput(f"a map is an image; give -o a name that ends in .png, not {output.name!r}")
    check_writable(output, *map(Path, data))
    if data:
        sample = Sample(id="page", image=str(Path(data[0]).resolve()), question="?", answers=("?",), tier="high")
        one = ask([sample], Path())[0]
    else:
        one = ask_pages("forms", "test", 1)[0]
    words = legibility_map(Legibility(), one, BUDGETS)
    draw_map(open_image(one.load()), words).save(output)
    legible = shares(words, BUDGETS)
    if as_json:
        return print_json({"basis": "legibility", "map": str(output), "words": len(words), "legible": legible})
    print_table(f"Of {len(words)} words, the share that still reads", ["budget", "legible"], list(legible.items()))
    typer.echo(f"Map in {output}.")
    return None


def _all(data: Path, folder: Path, as_json: bool) -> dict[str, object]:
    from stakes.evaluation.progress import progress_on
    from stakes.experiments.legibility import run_legibility
    from stakes.experiments.legibility.tables import tables

    found = run_legibility(data, folder / "legibility", progress=lambda name: progress_on(sys.stderr, name))
    made = tables(found)
    if not as_json:
        _print(made)
    return {"command": "stakes reproduce legibility --data DIR", **found.record(), **_records(made)}


def _agreement(model: str, per_tier: int, folder: Path, as_json: bool) -> dict[str, object]:
    from stakes.evaluation.progress import progress_on
    from stakes.experiments.legibility.agreement import agreement_tables, run_agreement
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
    from stakes.experiments.legibility.check import check_readings
    from stakes.experiments.legibility.datasets import real_set
    from stakes.legibility.model import Legibility

    model = Legibility()
    asked = real_set(data, "docvqa").asked
    pages = list(dict.fromkeys(one.digest for one in asked))[:CHECK_PAGES]
    kept, _ = answerable(model, [one for one in asked if one.digest in pages])
    rows = [found.record() for found in check_readings(model, kept, CHECK_BUDGETS)]
    if not as_json:
        columns = [key.replace("_", " ") for key in rows[0]]
        print_table("Answers legible by three readings", columns, [list(row.values()) for row in rows])
    return {"command": "stakes reproduce legibility-check --data DIR", "model": model.identity(), "budgets": rows}
