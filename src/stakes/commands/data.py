"""``stakes data``: look at a samples file, fetch a benchmark, draw synthetic pages."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stakes.commands.output import AsJson, print_json
from stakes.errors import BadInput
from stakes.evaluation.progress import share_done

if TYPE_CHECKING:
    from stakes.data.validate import Findings, Problem


app = typer.Typer(help="Look at a samples file, fetch a benchmark, draw synthetic pages.", no_args_is_help=True)

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
    """Say what a samples file holds and name every line that is wrong; nothing is mended.

    Example: stakes data check questions.jsonl --largest-budget 576
    """
    from stakes.data.sight import native_tokens, page_count
    from stakes.data.validate import check as look

    native = native_tokens(family, decode=not quick)
    size = file.stat().st_size if file.is_file() else 0
    with share_done("checking", size) as advance:
        found = look(file, native, largest_budget=largest_budget, pages=page_count, advance=advance)
    if as_json:
        print_json({**found.record(), "family": family})
    else:
        for line in _page(found, family):
            typer.echo(line)
    if not found.usable:
        fatal = [problem for problem in found.problems if problem.fatal]
        lines = len({problem.line for problem in fatal if problem.line is not None})
        where = f" on {lines} {'line' if lines == 1 else 'lines'}" if lines else ""
        count = f"{len(fatal)} {'problem' if len(fatal) == 1 else 'problems'}"
        raise BadInput(f"{file} cannot be used as it is: {count}{where}, all named above; mend or remove them")


@app.command()
def fetch(
    dataset: Annotated[str, typer.Argument(help="docvqa, chartqa, infographicvqa, textvqa or vqav2.")],
    out: Out,
    per_tier: Annotated[int, typer.Option(help="Questions of each tier.", min=1)] = 300,
    skip: Annotated[int, typer.Option(help="Rows passed over before the scan begins.", min=0)] = 0,
    parquet: Annotated[
        Path | None, typer.Option(help="A local copy in the hub's columns, file or folder, in place of the hub.")
    ] = None,
    apart_from: Annotated[
        list[Path] | None, typer.Option(help="A folder fetched before whose rows must not be looked at again.")
    ] = None,
    as_tier: Annotated[
        str | None, typer.Option(help="Put every question into this tier, in place of the keyword rule.")
    ] = None,
    family: Family = "qwen2.5-vl",
    as_json: AsJson = False,
) -> None:
    """Take a benchmark by the paper's protocol: longer side 1008, 640 native tokens or more, tiers filled in order.

    Example: stakes data fetch docvqa --out docvqa --per-tier 300 --skip 257
    """
    from stakes.commands.inputs import check_apart
    from stakes.data.hub import FILE, Selection, scan, write
    from stakes.data.sight import sight
    from stakes.signals import TaskIdentity

    check_apart(out / FILE, *(place / FILE if place.is_dir() else place for place in apart_from or ()))
    scanned = scan(
        dataset,
        sight(family),
        per_tier=per_tier,
        start=skip,
        signal=None if as_tier is None else TaskIdentity({dataset: as_tier}),
        apart_from=[Selection.load(place) for place in apart_from or ()],
        parquet=parquet,
    )
    with share_done(f"fetching {dataset}", per_tier * len(scanned.taken)) as advance:
        write(scanned, out, done=lambda: advance(1))
    if as_json:
        print_json({"samples": str(out / "samples.jsonl"), **scanned.record()})
        return
    typer.echo(f"samples  {_counts(scanned.taken)} in {out / 'samples.jsonl'}")
    seen = scanned.selection
    typer.echo(f"scanned  {seen.scanned} rows: {seen}; a later set may start with --skip {seen.stop}")
    small = f"{scanned.small} with fewer than {scanned.min_native} native tokens at the permitted size"
    typer.echo(f"skipped  {small}, {scanned.surplus} of a tier that was full")


@app.command()
def draw(
    family: Annotated[str, typer.Argument(help="forms, charts, infographics, signs, shapes or swatches.")],
    out: Out,
    per_tier: Annotated[int, typer.Option(help="Questions of each tier.", min=1)] = 60,
    split: Annotated[str, typer.Option(help="train, calibration or test: pages never recur across them.")] = "test",
    start: Annotated[int, typer.Option(help="The first page's number.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Write synthetic pages as samples; swatches are the solid colours of the cross-task diagnostic.

    Example: stakes data draw swatches --out colours --per-tier 60
    """
    from stakes.data.export import export, page_items

    with share_done(f"drawing {family}", per_tier * (1 if family == "swatches" else 2)) as advance:
        count = export(page_items(family, split, per_tier, start=start), out, done=lambda: advance(1))
    if as_json:
        print_json({"samples": str(out / "samples.jsonl"), "family": family, "split": split, "count": count})
    else:
        typer.echo(f"samples  {count} in {out / 'samples.jsonl'}")


def _page(found: "Findings", family: str) -> Iterator[str]:
    images, most = len(found.images), max(found.images.values(), default=0)
    source = {"file": "the file", "signal": "the keyword rule"}
    told = " and ".join(f"{n} by {source[where]}" for where, n in found.tiers_from.items())
    yield f"samples    {found.samples} on {found.documents} documents, {images} images, at most {most} on one image"
    yield f"tiers      {_counts(found.tiers) or 'none'}" + (f" ({told})" if told else "")
    if found.read_otherwise:
        labelled = f"{found.read_otherwise} of {found.tiers_from['file']}"
        yield f"to know    the file's labels disagree with the keyword rule on {labelled}; --signal tier uses them"
    if found.native_range is not None:
        least, middle, largest = found.native_range
        yield f"native     {least} to {largest} visual tokens in {family}, median {middle}"
    for key, count in found.ignored_keys.items():
        yield f"ignored    the key {key!r} on {count} lines: no sample has it"
    for fatal, title in ((True, "unusable"), (False, "to know")):
        for message, lines in _grouped(found, fatal).items():
            yield f"{title:<10} {lines}{message}"
    short, up_to = len({p.line for p in found.problems if p.kind == "native"}), ""
    if short and found.native_range is not None:
        below = f"{short} samples have fewer native tokens than {found.largest_budget}"
        yield f"{below}: enlarge their images, or measure no budget above {found.native_range[0]}."
        up_to = f" at budgets up to {found.native_range[0]}"
    if found.usable:
        yield f"Every line can be used{up_to}."


def _grouped(found: "Findings", fatal: bool) -> dict[str, str]:
    """Problems that read the same, such as those of one image, with all of their lines."""
    groups: dict[str, list[Problem]] = defaultdict(list)
    for problem in found.problems:
        if problem.fatal == fatal:
            groups[problem.message].append(problem)
    return {message: _lines([p.line for p in group if p.line is not None]) for message, group in groups.items()}


def _lines(numbers: list[int]) -> str:
    return f"line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}: " if numbers else ""


def _counts(tiers: dict[str, Any]) -> str:
    return ", ".join(f"{tier} {n}" for tier, n in tiers.items())
