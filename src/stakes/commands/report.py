"""``stakes report``: one self-contained HTML file from a calibration, its evaluation, or both."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stakes.commands.options.inputs import check_writable
from stakes.commands.output import AsJson, print_json, print_serve
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.data.sample import Sample
    from stakes.report.data import MeasuredRun


def report(
    run: Annotated[Path, typer.Argument(help="The policy that calibrate wrote, or the folder that holds policy.json.")],
    samples: Annotated[Path | None, typer.Option(help="The samples file, to show questions and images.")] = None,
    pages: Annotated[str | None, typer.Option(help="Synthetic pages in place of a file: their family.")] = None,
    model: Annotated[str | None, typer.Option(help="Draw the tokens that deletion in this model keeps.")] = None,
    selector: Annotated[list[str] | None, typer.Option(help="With --model: another selector; repeatable.")] = None,
    outcomes: Annotated[Path | None, typer.Option(help="The calibration's log. Default: beside the policy.")] = None,
    evaluation: Annotated[Path | None, typer.Option(help="The evaluation's log. Default: beside the policy.")] = None,
    price: Annotated[
        float | None,
        typer.Option("--price", "--price-per-million", help="Dollars per million input tokens, such as 0.15."),
    ] = None,
    images: Annotated[int, typer.Option(help="Number of images for which the cost is computed.")] = 100_000,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: report.html beside it.")] = None,
    svg: Annotated[Path | None, typer.Option(help="A folder for the paper's figures, drawn from this run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write report.html: curves, frontier with live controls, arms, images as the model sees them, tiers, cost.

    Example: stakes report policy.json --samples questions.jsonl --price 0.5
    """
    from stakes.evaluation.savings import check_price
    from stakes.report.data import read_run
    from stakes.report.html import Pricing, report_html
    from stakes.report.svg import draw_all

    check_price(price)
    if images < 1:
        raise BadInput(f"--images is at least 1, not {images}")
    policy = run / "policy.json" if run.is_dir() else run
    target = output or policy.with_name("report.html")
    logs = (outcomes or policy.with_suffix(".outcomes.jsonl"), evaluation or policy.with_suffix(".evaluation.jsonl"))
    found = read_run(run, outcomes, evaluation)
    check_writable(target, policy, *logs, samples)
    source = shown_samples(samples, pages, found)
    drawn, names, found = with_model(found, model, selector or [], shown=source is not None)
    text = report_html(found, source, model=drawn, selectors=names, pricing=Pricing(price, images))
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
    if found.evaluation is None:
        typer.echo(f"With other labeled documents, test it first: stakes evaluate held_out.jsonl --policy {policy}")
    print_serve(policy, found.policy)


def shown_samples(samples: Path | None, pages: str | None, run: "MeasuredRun") -> "dict[str, Sample] | None":
    """The run's samples with their pages, from a file or drawn again; None where neither is given."""
    from stakes.report.gallery import samples_from_file, samples_from_pages

    if samples is not None and pages is not None:
        raise BadInput("give either --samples or --pages, and not both")
    return samples_from_file(samples, run) if samples else samples_from_pages(pages, run) if pages else None


def with_model(
    run: "MeasuredRun", name: str | None, selectors: list[str], *, shown: bool = True
) -> "tuple[Any, list[str], MeasuredRun]":
    """The model that draws kept tokens, its selectors, and the run with a note if it is not the policy's model."""
    from stakes.calibration.evaluate import is_same_model
    from stakes.evaluation.fingerprint import model_digest
    from stakes.models.base import DEFAULT_SELECTOR
    from stakes.vision.selectors import from_file

    if name is None:
        return None, [], run
    if run.policy.mechanism != "deletion" or not shown:
        raise BadInput("--model draws the tokens that deletion keeps; it needs a deletion policy and its images")
    from stakes.models import load

    model = load(name)
    if is_same_model(run.policy, model_digest(model)) is False:
        then = "another one" if run.policy.model is None else run.policy.model
        note = f"Kept tokens are drawn by ANOTHER MODEL than the policy's: {name}; it was calibrated with {then}."
        run = replace(run, notes=(note, *run.notes))
    own = from_file(run.policy.selector, selectors) or DEFAULT_SELECTOR
    return model, list(dict.fromkeys([own, *selectors])), run
