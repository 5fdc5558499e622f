"""``stakes report``: one self-contained page from a calibration, its evaluation, or both."""

from pathlib import Path
from typing import Annotated

import typer

from stakes.commands.inputs import check_writable
from stakes.commands.output import AsJson, print_json
from stakes.errors import BadInput


def report(
    run: Annotated[Path, typer.Argument(help="The policy that calibrate wrote, or the folder that holds policy.json.")],
    samples: Annotated[Path | None, typer.Option(help="The samples file, to show questions and pages.")] = None,
    pages: Annotated[
        str | None, typer.Option(help="Synthetic pages in place of a file: the family that the run was made with.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Draw the tokens that this model's deletion keeps, such as embedded.")
    ] = None,
    selector: Annotated[
        list[str] | None, typer.Option(help="With --model: draw this selector too; once per selector.")
    ] = None,
    outcomes: Annotated[Path | None, typer.Option(help="The calibration's log. Default: beside the policy.")] = None,
    evaluation: Annotated[Path | None, typer.Option(help="The evaluation's log. Default: beside the policy.")] = None,
    price_per_million: Annotated[float | None, typer.Option(help="What a million visual tokens cost you.")] = None,
    images: Annotated[int, typer.Option(help="Images that money is counted over.")] = 100_000,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: report.html beside the policy.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Also draw the paper's figures from this run, into a folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make report.html: curves, frontier with live controls, arms, pages as the model sees them, tiers, cost.

    Example: stakes report policy.json --samples questions.jsonl --price-per-million 0.5
    """
    from stakes.report.html import Wishes, report_html
    from stakes.report.run import from_pages, from_samples, read_run

    if samples is not None and pages is not None:
        raise BadInput("give either --samples or --pages, and not both")
    if price_per_million is not None and not 0 < price_per_million < float("inf"):
        raise BadInput(f"--price-per-million is money above 0, not {price_per_million}")
    if images < 1:
        raise BadInput(f"--images is at least 1, not {images}")
    policy = run / "policy.json" if run.is_dir() else run
    target = output or policy.with_name("report.html")
    logs = (outcomes or policy.with_suffix(".outcomes.jsonl"), evaluation or policy.with_suffix(".evaluation.jsonl"))
    found = read_run(run, outcomes, evaluation)
    check_writable(target, policy, *logs, samples)
    source = from_samples(samples, found) if samples else from_pages(pages, found) if pages else None
    drawn, names = None, list[str]()
    if model is not None:
        from stakes.models import load
        from stakes.models.base import DEFAULT_SELECTOR

        if found.policy.mechanism != "deletion" or source is None:
            raise BadInput("--model draws the tokens that deletion keeps; it needs a deletion policy and its pages")
        drawn = load(model)
        names = list(dict.fromkeys([found.policy.selector or DEFAULT_SELECTOR, *(selector or ())]))
    text = report_html(found, source, model=drawn, selectors=names, wishes=Wishes(price_per_million, images))
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{target} cannot be written ({error.strerror}); choose another place") from None
    drawings: list[Path] = []
    if svg is not None:
        from stakes.report.svg import draw_all

        drawings = draw_all(found, svg)
    if as_json:
        record = {"report": str(target), "bytes": len(text.encode()), "drawings": [str(path) for path in drawings]}
        print_json({**record, "notes": list(found.notes)})
        return
    for note in found.notes:
        typer.echo(note)
    for path in drawings:
        typer.echo(f"Drawing in {path}.")
    typer.echo(f"Report in {target} ({len(text.encode()) / 1e6:.1f} MB); open it in any browser.")
