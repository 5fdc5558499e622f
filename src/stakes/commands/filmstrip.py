"""``stakes filmstrip``: one image of what the model can read of an answer at each budget."""

from pathlib import Path
from typing import Annotated

import typer

from stakes.commands.options.inputs import check_writable
from stakes.commands.output import AsJson, print_json, print_next
from stakes.commands.report import shown_samples, with_model
from stakes.errors import BadInput


def filmstrip(
    run: Annotated[Path, typer.Argument(help="The policy that calibrate wrote, or the folder that holds policy.json.")],
    samples: Annotated[Path | None, typer.Option(help="The samples file of the run.")] = None,
    pages: Annotated[str | None, typer.Option(help="Synthetic pages in place of a file: their family.")] = None,
    model: Annotated[str | None, typer.Option(help="For a deletion policy: the model that keeps the tokens.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The PNG to write.")] = Path("filmstrip.png"),
    as_json: AsJson = False,
) -> None:
    """Draw the crop of an answer as the model saw it at each budget, with what it read and the budget that was chosen.

    One row is for the most expensive tier and one for the cheapest. They are picked to show why budgets should differ;
    the report shows losses beside wins.

    Example: stakes filmstrip policy.json --samples pages/samples.jsonl
    """
    from stakes.report.data import read_run
    from stakes.report.filmstrip import draw_filmstrips
    from stakes.report.gallery import best_strips

    found = read_run(run)
    source = shown_samples(samples, pages, found)
    if source is None:
        raise BadInput("a filmstrip needs the pages: give --samples FILE, or --pages FAMILY for synthetic ones")
    if found.policy.mechanism == "deletion" and model is None:
        raise BadInput("the kept tokens of a deletion policy are drawn by its model; give --model, such as embedded")
    check_writable(output, samples)
    drawn, selectors, found = with_model(found, model, [])
    strips = best_strips(found, source, drawn, selectors)
    try:
        draw_filmstrips(strips).quantize(256).save(output, optimize=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{output} cannot be written ({reason}); choose another path, ending in .png") from None
    size = output.stat().st_size
    if as_json:
        rows = [{"question": strip.question, "tier": strip.tier, "chosen": strip.chosen} for strip in strips]
        print_json({"filmstrip": str(output), "bytes": size, "rows": rows})
        return
    typer.echo(f"Filmstrip in {output} ({size / 1000:.0f} kB).")
    given = [*(["--pages", pages] if pages else ["--samples", samples]), *(["--model", model] if model else [])]
    print_next("report", run, *given)
