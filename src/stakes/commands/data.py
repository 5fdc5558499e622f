"""``stakes data``: check a samples file, make one of a table, fetch a benchmark, draw synthetic pages."""

import shlex
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.options.inputs import check_distinct, check_writable
from stakes.commands.options.tables import draw_pdf_pages, find_named, read_fields, what_can_be_shown
from stakes.commands.output import AsJson, format_by_tier, print_json, print_next
from stakes.errors import BadInput
from stakes.evaluation.progress import progress_bar
from stakes.formats import counted

if TYPE_CHECKING:
    from stakes.data.validate import FileReport

app = typer.Typer(help="Check a samples file, make one of a CSV, fetch a benchmark, draw pages.", no_args_is_help=True)

Family = Annotated[str, typer.Option(help="The model family whose tokens are counted, such as qwen2.5-vl.")]
Out = Annotated[Path, typer.Option(help="A folder for samples.jsonl and its images.")]
WIDE_MARGIN = 0.02  # share of the area from which margins are worth a word


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
        if found.usable and found.images and len(found.tiers) > 1:
            costs = [word for tier, cost in _example_costs(found).items() for word in ("--cost", f"{tier}={cost}")]
            typer.echo("costs      those in the next command are examples: write what a mistake in each tier costs you")
            print_next("calibrate", file, *costs, *_mean_option(found.native_range))
    if not found.usable:
        fatal = [problem for problem in found.problems if problem.fatal]
        lines = len({problem.line for problem in fatal if problem.line is not None})
        where = f" on {counted(lines, 'line')}" if lines else ""
        count = counted(len(fatal), "problem")
        raise BadInput(f"{file} cannot be used as it is: {count}{where}, all named above; fix or remove them")


@app.command("from-csv")
def from_csv(
    file: Annotated[Path, typer.Argument(help="A table: CSV, or a JSON array of objects. One row is one document.")],
    image: Annotated[
        str | None,
        typer.Option(help="The column of images or PDF pages (invoice.pdf#3). Default: file, image, path, …"),
    ] = None,
    answer: Annotated[
        list[str] | None, typer.Option(help="A column of answers; repeatable. Default: the columns of --tier.")
    ] = None,
    question: Annotated[
        list[str] | None,
        typer.Option(
            help="The question of a field, as total='What is the total?'; of all fields, as 'What is the {field}?' "
            "(default); or the column of questions."
        ),
    ] = None,
    tier: Annotated[
        list[str] | None,
        typer.Option(
            help="What a mistake in a field costs, as total=20; the field is a tier. tax=total puts a field into the "
            "tier of another. Fields without one are in the tier other, at cost 1."
        ),
    ] = None,
    document: Annotated[
        str | None, typer.Option(help="The column of documents. Default: one per image or PDF.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="The column of what documents have in common, such as a supplier or a template.")
    ] = None,
    images: Annotated[Path | None, typer.Option(help="The folder of the images. Default: that of the table.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: the table's name, as .jsonl.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make samples of a table: one row per document and one column per field, one question per field.

    Example: stakes data from-csv invoices.csv --image file --tier total=20 --tier date=5 --tier company=1
    Example: stakes data from-csv invoices.csv --answer total --question total='What is the amount due?' --images scans
    Example: stakes data from-csv pairs.csv --image path --question question --answer answer
    """
    from stakes.data import validate
    from stakes.data.export import write_samples
    from stakes.data.table import Places, read_table, rows_as_samples

    target = file.with_suffix(".jsonl") if output is None else output
    check_writable(target, file)
    table = read_table(file)
    fields, costs = read_fields(table, answer or [], question or [], tier or [])
    places = Places(
        find_named(table, "--image", "image", image),
        file.parent if images is None else images,
        None if document is None else table.need("--document", document),
        None if group is None else table.need("--group", group),
    )
    if places.image in fields.answers:
        raise BadInput(
            f"{places.image} is the column of images, and no answer; give another column to --tier or --answer"
        )
    samples, empty = rows_as_samples(table, fields, places)
    samples = draw_pdf_pages(samples, target)
    write_samples(samples, target)
    following = ["calibrate", str(target), *(w for name, cost in costs.items() for w in ("--cost", f"{name}={cost:g}"))]
    found = validate.check(target, decode=False)
    following += _mean_option(found.native_range)
    documents = len({sample.document for sample in samples})
    if as_json:
        record = {"samples": str(target), "count": len(samples), "documents": documents, "empty": empty}
        print_json({**record, "costs": costs, "next": None if len(costs) == 1 else shlex.join(["stakes", *following])})
        return
    skipped = f"; {counted(empty, 'empty cell')} left out" if empty else ""
    typer.echo(
        f"samples    {counted(len(samples), 'question')} on {counted(documents, 'document')} in {target}{skipped}"
    )
    for name in fields.answers:
        typer.echo(f"{name:<10} {next((s.question for s in samples if s.id.endswith(f'/{name}')), 'no answer')}")
    if repeats := sum(problem.kind == "repeat" for problem in found.problems):
        typer.echo(
            f"note       {counted(repeats, 'question')} asked of the same image before; `stakes data check` lists them"
        )
    typer.echo(f"check      {shlex.join(['stakes', 'data', 'check', str(target)])}")
    if len(costs) == 1:
        others = [name for name in table.columns if name not in (*fields.answers, places.image, document, group)]
        hint = f", such as --tier {shlex.quote(f'{others[0]}=1')}" if others else ""
        typer.echo(
            "note       there is one tier, so there is nothing to move tokens between. Run this again with a field "
            f"whose mistakes cost less{hint}."
        )
        return
    print_next(*following)


def _example_costs(found: "FileReport") -> dict[str, int]:
    """5 for tiers of amounts, dates and identifiers and 1 for others; equal costs would leave nothing to choose."""
    costs = {tier: 5 if 2 * found.read_expensive[tier] > count else 1 for tier, count in found.tiers.items()}
    return costs if len(set(costs.values())) > 1 else {tier: 1 if i else 5 for i, tier in enumerate(costs)}


def _mean_option(native: tuple[int, int, int] | None) -> list[str]:
    """A mean budget whose grid fits the smallest image, where the default does not; ``native``: least first."""
    from stakes.budgets.curve import PAPER_MEAN, mean_within

    mean = PAPER_MEAN if native is None else mean_within(native[0])
    return [] if mean == PAPER_MEAN else ["--mean-budget", str(mean)]


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
    yield (
        f"samples    {counted(found.samples, 'question')} ({found.questions:,} distinct) on "
        f"{counted(found.documents or images, 'document')}, {counted(images, 'image')}, at most {most} on one image"
        + (f", in {counted(found.groups, 'group')}" if found.groups else "")
    )
    yield f"tiers      {format_by_tier(found.tiers) or 'none'}" + (f" ({origin})" if origin else "")
    if found.read_otherwise:
        labelled = f"{found.read_otherwise} of {found.tiers_from['file']}"
        yield f"note       the file's labels disagree with the keyword rule on {labelled}; --signal tier uses them"
    if found.native_range is not None:
        least, middle, largest = found.native_range
        yield f"native     {least} to {largest} visual tokens in {family}, median {middle}"
    if (found.mean_margin or 0) >= WIDE_MARGIN:
        yield f"margins    {found.mean_margin:.0%} of the area is blank margin; resizing spends no tokens on it"
    for key, count in found.ignored_keys.items():
        yield f"ignored    the key {key!r} on {counted(count, 'line')}: no sample has it"
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
    if conclusion := what_can_be_shown(found.units, "group" if found.groups else "document"):
        yield conclusion
    if found.usable:
        yield f"Every line can be used{up_to}."
