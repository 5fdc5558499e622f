"""``stakes reproduce paper`` and ``check``: every table of the paper in one run, one results file and one page.

stakes reproduce paper --model Qwen/Qwen2.5-VL-7B-Instruct --dry-run       # rows, answers, tokens and hours
stakes reproduce paper --model Qwen/Qwen2.5-VL-7B-Instruct -o paper.json   # and paper.md; stopped, it resumes
stakes reproduce check paper.json                                          # the tables again from its answers
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stakes.commands.options.inputs import check_writable
from stakes.commands.output import as_markdown, print_json, print_measured, print_table, save_record, versions
from stakes.errors import BadInput, StakesError

if TYPE_CHECKING:
    from stakes.commands.options.model import ModelSource, Workers
    from stakes.experiments.results import PaperResults
    from stakes.experiments.study import Study

OUTPUT = Path("paper.json")
PAGE = """# The paper's tables by {model}

Published rows stand below ours. {made} Made by `{command}`.

"""


def dry_run(study: "Study", as_json: bool) -> None:
    """Print what the run will ask: rows, answers, visual tokens and GPU hours."""
    record = estimate(study)
    if as_json:
        return print_json(record)
    columns = ["table", "answers", "of these new", "visual tokens of new", "GPU hours of new"]
    print_table("What the tables ask", columns, [list(row.values()) for row in record["tables"]])
    for line in format_estimate(study, record):
        typer.echo(line)
    return None


def estimate(study: "Study") -> dict[str, Any]:
    """Rows, answers, tokens and hours, in all and by table; a table counts what no earlier one asks."""
    from stakes.experiments.estimate import answers, gpu_hours, tokens
    from stakes.experiments.results import PAPER
    from stakes.experiments.tables import experiment

    seen, tables = set[Any](), []
    for name in PAPER:
        asked = experiment(name).asks(study)
        new = asked - seen
        seen |= asked
        sums = {
            "answers": answers(asked),
            "new": answers(new),
            "tokens": tokens(new),
            "hours": round(gpu_hours(new), 2),
        }
        tables.append({"table": name, **sums})
    return {
        "rows": rows_scanned(study),
        "answers": answers(seen),
        "tokens": tokens(seen),
        "gpu_hours": round(gpu_hours(seen), 1),
        "tables": tables,
    }


def rows_scanned(study: "Study") -> dict[str, int]:
    """Rows of each benchmark that will be scanned at least, up to the last sample; the paper's number where known."""
    from stakes.experiments.sampling import paper_draws

    rows: dict[str, int] = {}
    for draw in paper_draws(study.per_tier):
        stop = draw.published_stop or draw.start + draw.samples
        rows[draw.dataset] = max(rows.get(draw.dataset, 0), stop)
    return rows


def format_estimate(study: "Study", record: dict[str, Any]) -> list[str]:
    """The estimate as sentences."""
    rows = ", ".join(f"{name} {count:,}" for name, count in record["rows"].items())
    models = ", ".join([study.name, *(other.name for other in study.others.values())])
    return [
        f"rows     {rows} (at least; a tier may need more)",
        f"answers  {record['answers']:,} by {models}; those in {study.folder} are not asked again",
        f"tokens   {record['tokens']:,} visual tokens",
        f"hours    about {record['gpu_hours']:g} GPU hours at the published speed of the 7B on an A100, one answer at "
        "a time; batches take less",
    ]


def measure(study: "Study", source: "ModelSource", workers: "Workers", output: Path, as_json: bool, made: str) -> None:
    """Measure every table, and write the results file and the page."""
    from stakes.experiments.results import PAPER, PaperResults, Recording
    from stakes.experiments.tables import experiment

    page = output.with_suffix(".md")
    check_writable(output)
    check_writable(page, output)
    for line in format_estimate(study, estimate(study)):
        typer.echo(line, err=True)
    recording, tables, left_out = Recording(), {}, {}
    with source.open() as model:
        study = replace(study, model=model, workers=workers(model), recording=recording)
        for name in PAPER:
            try:
                tables[name] = experiment(name).table(study)
            except StakesError as error:
                left_out[name] = str(error)
                typer.echo(f"left out: {name}: {error}", err=True)
                continue
            if not as_json:
                print_measured(tables[name])
    if not tables:
        raise BadInput(f"no table could be measured; the first error: {next(iter(left_out.values()))}")
    record = results_record(study, recording, tables, left_out, made)
    save_record(output, record)
    page.write_text(format_page(PaperResults.load(output)), encoding="utf-8")
    if as_json:
        print_json({key: value for key, value in record.items() if key not in ("samples", "answers")})
    else:
        typer.echo(
            f"results  {output}: {len(tables)} tables, {len(left_out)} left out; stakes reproduce check {output}"
        )
        typer.echo(f"page     {page}")


def results_record(
    study: "Study", recording: Any, tables: dict[str, Any], left_out: dict[str, str], made: str
) -> dict[str, Any]:
    """The whole file as JSON."""
    from stakes.experiments.results import PaperResults
    from stakes.experiments.sampling import PER_TIER
    from stakes.files import clean

    return PaperResults.model_validate(
        {
            "command": made,
            "model": study.name,
            "others": {axis: other.name for axis, other in study.others.items()},
            "limit": None if study.per_tier == PER_TIER else study.per_tier,
            "versions": versions(),
            "tables": {name: clean(table.record()) for name, table in tables.items()},
            "left_out": left_out,
            **recording.parts(),
        }
    ).record()


def format_page(results: "PaperResults") -> str:
    """The page: every table with each of our rows above the published one of the same setting."""
    size = "The paper's samples." if results.limit is None else f"Only {results.limit} questions of each tier or task."
    drawn = [found.rows for found in results.samples.values() if found.rows is not None]
    rows = [
        (one["dataset"], one["split"], one["start"], one["stop"], one["published_stop"], sum(one["taken"].values()))
        for one in drawn
    ]
    parts = [PAGE.format(model=results.model, made=size, command=results.command)]
    parts.append("## Samples\n\n")
    parts.append(as_markdown(("data", "split", "from row", "before row", "published: before row", "samples"), rows))
    for table in results.tables.values():
        parts.append(f"\n## {table.title}\n\n")
        parts.append(as_markdown(table.columns, side_by_side(table.rows)))
        parts.append("\n" + "".join(f"- {line}\n" for line in table.findings))
    if results.left_out:
        parts.append("\n## Left out\n\n" + "".join(f"- {name}: {why}\n" for name, why in results.left_out.items()))
    versions = ", ".join(f"{name} {number}" for name, number in results.versions.items())
    return "".join(parts) + f"\n{versions}\n"


def side_by_side(rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """The rows with each published one below ours of the same setting: equal texts before the first number."""

    def setting(row: Sequence[Any]) -> tuple[str, ...]:
        texts = []
        for cell in row[1:]:
            if not isinstance(cell, str):
                break
            texts.append(cell)
        return tuple(texts)

    published = [row for row in rows if row[0] == "published"]
    paired: list[Sequence[Any]] = []
    for row in rows:
        if row[0] == "published":
            continue
        paired.append(row)
        for other in [one for one in published if setting(one) == setting(row)]:
            paired.append(other)
            published.remove(other)
    return paired + published


def check_file(path: Path, as_json: bool) -> None:
    """Check a results file; a wrong one ends with status 2."""
    from stakes.experiments.replay import check
    from stakes.experiments.results import PaperResults

    found = list(check(PaperResults.load(path)))
    marks = {True: "ok", False: "WRONG", None: "note"}
    wrong = sum(finding.ok is False for finding in found)
    if as_json:
        print_json({"file": path.name, "wrong": wrong, "findings": [{"what": f.what, "ok": f.ok} for f in found]})
    else:
        for finding in found:
            typer.echo(f"{marks[finding.ok]:<6} {finding.what}")
    if wrong:
        raise BadInput(f"{path} has {wrong} wrong part{'s' if wrong > 1 else ''}; do not use it")
