"""``stakes report``: one self-contained HTML file from a calibration, its evaluation, or both."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from stakes.commands.options.inputs import check_writable
from stakes.commands.output import AsJson, print_json
from stakes.errors import BadInput


def report(
    run: Annotated[Path, typer.Argument(help="The policy that calibrate wrote, or the folder that holds policy.json.")],
    samples: Annotated[Path | None, typer.Option(help="The samples file, to show questions and images.")] = None,
    pages: Annotated[str | None, typer.Option(help="Synthetic pages in place of a file: their family.")] = None,
    model: Annotated[str | None, typer.Option(help="Draw the tokens that deletion in this model keeps.")] = None,
    selector: Annotated[list[str] | None, typer.Option(help="With --model: another selector; repeatable.")] = None,
    outcomes: Annotated[Path | None, typer.Option(help="The calibration's log. Default: beside the policy.")] = None,
    evaluation: Annotated[Path | None, typer.Option(help="The evaluation's log. Default: beside the policy.")] = None,
    price_per_million: Annotated[float | None, typer.Option(help="The price of a million visual tokens.")] = None,
    images: Annotated[int, typer.Option(help="Number of images for which the cost is computed.")] = 100_000,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: report.html beside it.")] = None,
    svg: Annotated[Path | None, typer.Option(help="A folder for the paper's figures, drawn from this run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write report.html: curves, frontier with live controls, arms, images as the model sees them, tiers, cost.

    Example: stakes report policy.json --samples questions.jsonl --price-per-million 0.5
    """
    from stakes.report.data import read_run
    from stakes.report.gallery import samples_from_file, samples_from_pages
    from stakes.report.html import Pricing, report_html
    from stakes.report.svg import draw_all

    if samples is not None and pages is not None:
        raise BadInput("give either --samples or --pages, and not both")
    if price_per_million is not None and not 0 < price_per_million < float("inf"):
        raise BadInput(f"--price-per-million is a price above 0, not {price_per_million}")
    if images < 1:
        raise BadInput(f"--images is at least 1, not {images}")
    policy = run / "policy.json" if run.is_dir() else run
    target = output or policy.with_name("report.html")
    logs = (outcomes or policy.with_suffix(".outcomes.jsonl"), evaluation or policy.with_suffix(".evaluation.jsonl"))
    found = read_run(run, outcomes, evaluation)
    check_writable(target, policy, *logs, samples)
    source = samples_from_file(samples, found) if samples else samples_from_pages(pages, found) if pages else None
    drawn, names = None, list[str]()
    if model is not None:
        from stakes.calibration.evaluate import is_same_model
        from stakes.evaluation.fingerprint import model_digest
        from stakes.models import load
        from stakes.models.base import DEFAULT_SELECTOR
        from stakes.vision.selectors import from_file

        if found.policy.mechanism != "deletion" or source is None:
            raise BadInput("--model draws the tokens that deletion keeps; it needs a deletion policy and its images")
        drawn = load(model)
        if is_same_model(found.policy, model_digest(drawn)) is False:
            then = "another one" if found.policy.model is None else found.policy.model
            note = f"Kept tokens are drawn by ANOTHER MODEL than the policy's: {model}; it was calibrated with {then}."
            found = replace(found, notes=(note, *found.notes))
        own = from_file(found.policy.selector, selector or ()) or DEFAULT_SELECTOR
        names = list(dict.fromkeys([own, *(selector or ())]))
    text = report_html(found, source, model=drawn, selectors=names, pricing=Pricing(price_per_million, images))
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{target} cannot be written ({error.strerror}); choose another path") from None
    drawings = [] if svg is None else draw_all(found, svg)
    if as_json:
        record = {"report": str(target), "bytes": len(text.encode()), "drawings": [str(path) for path in drawings]}
        print_json({**record, "notes": list(found.notes)})
        return
    for note in found.notes:
        typer.echo(note)
    for path in drawings:
        typer.echo(f"Drawing in {path}.")
    typer.echo(f"Report in {target} ({len(text.encode()) / 1e6:.1f} MB); open it in any browser.")
