"""``stakes data``: check a samples file, fetch a benchmark, draw synthetic pages."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.options.inputs import check_distinct
from stakes.commands.output import AsJson, format_by_tier, print_json, print_next
from stakes.errors import BadInput
from stakes.evaluation.progress import progress_bar

if TYPE_CHECKING:
    from stakes.data.validate import FileReport

app = typer.Typer(help="Check a samples file, fetch a benchmark, draw synthetic pages.", no_args_is_help=True)

Family = Annotated[str, typer.Option(help="The model family whose tokens are counted, such as qwen2.5-vl.")]
Out = Annotated[Path, typer.Option(help="A folder for samples.jsonl and its images.")]


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="Samples as JSONL: id, image, question, answers, task, tier, document.")],
    family: Family = "qwen2.5-vl",
    largest_budget: Annotated[int, typer.Option(help="The largest budget that will be measured.", min=1)] = 576,
    quick: Annotated[bool, typer.Option("--quick", help="Read only the headers of images, not their pixels.")] = False,
    as_json: AsJson = False,
) -> None:
    """Summarize a samples file and name every line that is wrong; nothing is changed.

    Example: stakes data check questions.jsonl --largest-budget 576
    """
    from stakes.data import validate

    with progress_bar("checking", file.stat().st_size if file.is_file() else 0) as advance:
        found = validate.check(file, family, largest_budget=largest_budget, decode=not quick, advance=advance)
    if as_json:
        print_json({**found.record(), "family": family})
    else:
        for line in _summary(found, family):
            typer.echo(line)
        if found.usable and found.images:
            costs = [word for tier in found.tiers for word in ("--cost", f"{tier}={5 if tier == 'high' else 1}")]
            print_next("calibrate", file, *costs)
    if not found.usable:
        fatal = [problem for problem in found.problems if problem.fatal]
        lines = len({problem.line for problem in fatal if problem.line is not None})
        where = f" on {lines} line{'s' if lines > 1 else ''}" if lines else ""
        count = f"{len(fatal)} problem{'s' if len(fatal) > 1 else ''}"
        raise BadInput(f"{file} cannot be used as it is: {count}{where}, all named above; fix or remove them")


@app.command()
def fetch(
    dataset: Annotated[str, typer.Argument(help="docvqa, chartqa, infographicvqa, textvqa or vqav2.")],
    out: Out,
    per_tier: Annotated[int, typer.Option(help="Questions of each tier.", min=1)] = 300,
    skip: Annotated[int, typer.Option(help="Rows to skip before the scan begins.", min=0)] = 0,
    parquet: Annotated[Path | None, typer.Option(help="A local copy of the hub's files: a file or a folder.")] = None,
    exclude: Annotated[
        list[Path] | None, typer.Option(help="A folder fetched earlier, whose rows must not be used again; repeatable.")
    ] = None,
    as_tier: Annotated[str | None, typer.Option(help="The tier of every question, in place of keywords.")] = None,
    family: Family = "qwen2.5-vl",
    as_json: AsJson = False,
) -> None:
    """Fetch a benchmark by the paper's protocol: longer side 1008, 640 native tokens or more, tiers filled in order.

    Example: stakes data fetch docvqa --out docvqa --per-tier 300 --skip 257
    """
    from stakes.data.hub import FILE, RowRange, scan, write
    from stakes.signals import TaskIdentity

    check_distinct(out / FILE, *(path / FILE if path.is_dir() else path for path in exclude or ()))
    scanned = scan(
        dataset,
        family,
        per_tier=per_tier,
        start=skip,
        signal=None if as_tier is None else TaskIdentity({dataset: as_tier}),
        exclude=[RowRange.load(path) for path in exclude or ()],
        parquet=parquet,
    )
    with progress_bar(f"fetching {dataset}", per_tier * len(scanned.taken)) as advance:
        write(scanned, out, done=lambda: advance(1))
    if as_json:
        print_json({"samples": str(out / "samples.jsonl"), **scanned.record()})
        return
    rows = scanned.rows
    typer.echo(f"samples  {format_by_tier(scanned.taken)} in {out / 'samples.jsonl'}")
    typer.echo(f"scanned  {rows.scanned} rows: {rows}; a later set may start with --skip {rows.stop}")
    small = f"{scanned.small} with fewer than {scanned.min_native} native tokens at the permitted size"
    typer.echo(f"skipped  {small}, {scanned.surplus} of a tier that was full")
    print_next("data", "check", out / "samples.jsonl")


@app.command()
def draw(
    family: Annotated[str, typer.Argument(help="forms, charts, infographics, signs, shapes, swatches or receipts.")],
    out: Out,
    per_tier: Annotated[int, typer.Option(help="Questions of each tier.", min=1)] = 60,
    per_page: Annotated[
        int,
        typer.Option(help="Most questions of a tier on one page; fewer take more pages.", min=1),
    ] = 4,
    split: Annotated[str, typer.Option(help="train, calibration or test, which share no page.")] = "test",
    start: Annotated[int, typer.Option(help="The number of the first page.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Write synthetic pages as samples; swatches are the solid colors of the cross-task diagnostic.

    Example: stakes data draw receipts --out pages --per-tier 20
    """
    from stakes.data.export import export, page_samples

    with progress_bar(f"drawing {family}", per_tier * (1 if family == "swatches" else 2)) as advance:
        drawn = page_samples(family, split, per_tier, per_page=per_page, start=start)
        count = export(drawn, out, done=lambda: advance(1))
    if as_json:
        print_json({"samples": str(out / "samples.jsonl"), "family": family, "split": split, "count": count})
    else:
        typer.echo(f"samples  {count} in {out / 'samples.jsonl'}")
        print_next("data", "check", out / "samples.jsonl")


def _summary(found: "FileReport", family: str) -> Iterator[str]:
    images, most = len(found.images), max(found.images.values(), default=0)
    source = {"file": "the file", "signal": "the keyword rule"}
    origin = " and ".join(f"{n} by {source[where]}" for where, n in found.tiers_from.items())
    yield f"samples    {found.samples} on {found.documents} documents, {images} images, at most {most} on one image"
    yield f"tiers      {format_by_tier(found.tiers) or 'none'}" + (f" ({origin})" if origin else "")
    if found.read_otherwise:
        labelled = f"{found.read_otherwise} of {found.tiers_from['file']}"
        yield f"note       the file's labels disagree with the keyword rule on {labelled}; --signal tier uses them"
    if found.native_range is not None:
        least, middle, largest = found.native_range
        yield f"native     {least} to {largest} visual tokens in {family}, median {middle}"
    for key, count in found.ignored_keys.items():
        yield f"ignored    the key {key!r} on {count} lines: no sample has it"
    for fatal, title in ((True, "unusable"), (False, "note")):
        lines = defaultdict[str, list[int]](list)  # of problems with the same message, such as those of one image
        for problem in found.problems:
            if problem.fatal == fatal:
                lines[problem.message] += [] if problem.line is None else [problem.line]
        for message, numbers in lines.items():
            where = f"line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}: " if numbers else ""
            yield f"{title:<10} {where}{message}"
    short, up_to = len({p.line for p in found.problems if p.kind == "native"}), ""
    if short and found.native_range is not None:
        below = f"{short} samples have fewer native tokens than {found.largest_budget}"
        yield f"{below}: enlarge their images, or measure no budget above {found.native_range[0]}."
        up_to = f" at budgets up to {found.native_range[0]}"
    if found.usable:
        yield f"Every line can be used{up_to}."
