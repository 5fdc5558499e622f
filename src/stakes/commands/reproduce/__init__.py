"""``stakes reproduce``: the paper's tables, recomputed or measured, beside the published figures."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stakes.commands.options.inputs import check_writable, signal_file
from stakes.commands.options.model import ModelSource, Workers, asks_a_model
from stakes.commands.output import AsJson, print_json, print_measured, print_table, save_record, versions
from stakes.commands.reproduce import legibility, options, paper
from stakes.commands.reproduce.options import CHECK, PAPER, PUBLISHED, options_of
from stakes.errors import BadInput, InfeasibleBudget
from stakes.experiments.tables import TABLES, experiment

if TYPE_CHECKING:
    from stakes.experiments.study import Study

NAMES = {
    PAPER: "every table of the paper on its own samples, with a results file and a page",
    CHECK: "a results file of paper, computed again from its answers",
    PUBLISHED: "every published figure that follows from others, recomputed",
    **TABLES,
    **legibility.NAMES,
}
QUICK, FULL = 24, 300
FOLDER = Path("runs/reproduce")


@asks_a_model
def reproduce(
    context: typer.Context,
    table: Annotated[
        str, typer.Argument(help="Which table: " + "; ".join(f"{k} ({v})" for k, v in NAMES.items()) + "; or all.")
    ],
    file: Annotated[Path | None, typer.Argument(help="With check: the results file.")] = None,
    *,
    source: ModelSource,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Real questions: docvqa (hub), docvqa=FOLDER (parquet copy), docvqa=FILE; FOLDER: copies of all "
            "benchmarks; sroie=FOLDER or sroie=FILE: receipts in place of docvqa. Or other synthetic pages: "
            "docvqa=receipts."
        ),
    ] = None,
    per_tier: Annotated[int | None, typer.Option(help=f"Questions of each tier. Default: {FULL}.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help=f"{QUICK} questions per tier: only a preview.")] = False,
    mechanism: Annotated[str, typer.Option(help="For tables that do not fix it: deletion or resolution.")] = "deletion",
    selector: Annotated[
        list[str] | None,
        typer.Option(help="With invariance and selector-curves: a selector; may repeat. Default: all six."),
    ] = None,
    scale_model: Annotated[
        str | None, typer.Option(help="With invariance, models and paper: a smaller model, or none. " + options.OTHERS)
    ] = None,
    architecture_model: Annotated[
        str | None, typer.Option(help="With the same: a model of another architecture, or none. " + options.OTHERS)
    ] = None,
    signal: Annotated[str, typer.Option(help="How tiers are read: tier (labels) or keywords.")] = "tier",
    trim: Annotated[bool, typer.Option("--trim", help="Cut the margins of pages off, which the paper keeps.")] = False,
    folder: Annotated[Path, typer.Option(help="Answers are kept here; a later run resumes from them.")] = FOLDER,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Also write the tables to a JSON file, beside others of this model."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="With paper: at most so many questions of a tier or task.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With paper: only print what would be asked.")] = False,
    judge: Annotated[
        str | None, typer.Option(help="With labels: a judge's labels file, or the address of the model that judges.")
    ] = None,
    judge_model: Annotated[str | None, typer.Option(help="With --judge ADDRESS: the judging model's name.")] = None,
    judge_key_env: Annotated[
        str | None, typer.Option(help="With --judge ADDRESS: the environment variable that holds its API key.")
    ] = None,
    every: Annotated[bool, typer.Option("--every", help="With published: list also the figures that follow.")] = False,
    workers: Workers,
    as_json: AsJson = False,
) -> None:
    """Measure or recompute the paper's tables and show them beside the published ones.

    Example: stakes reproduce within-task --quick
    """
    if table not in NAMES and table != "all":
        raise BadInput(f"there is no table {table!r}; choose one of {', '.join(NAMES)}, or all")
    words = data or []
    options.check_options(table, _given(context), words)
    if (table == CHECK) != (file is not None):
        raise BadInput("stakes reproduce check FILE takes one results file; other tables take none")
    if table == CHECK:
        assert file is not None
        return paper.check_file(file, as_json)
    count = (QUICK if quick else FULL) if per_tier is None else per_tier
    count = count if limit is None else min(count, limit)
    if count < 2:
        raise BadInput(f"a table needs at least two questions of each tier, not {count}")
    if output is not None:
        check_writable(output, *(Path(word.rpartition("=")[2]) for word in words), signal_file(signal))
        _check_results_file(output, table)
    if table == PUBLISHED:
        return _published(every, output, as_json)
    if table in legibility.NAMES:
        of_ocr = legibility.legibility
        return of_ocr(table, words, folder, output, as_json, model=source.name, per_tier=count, trim=trim)
    study = options.make_study(
        source.name,
        folder,
        count,
        options.parse_data(words, every=table == PAPER),
        mechanism=mechanism,
        signal=signal,
        selectors=selector or [],
    )
    study = replace(
        study,
        trim=trim,
        copies=options.find_copies(words),
        judge=options.make_judge(judge, judge_model, judge_key_env, folder),
        others=options.make_others(source, workers, scale=scale_model, architecture=architecture_model),
    )
    made = format_command(table, words, study, signal, judge)
    if table == PAPER:
        study = replace(study, name=options.shown_name(source.name))
        if dry_run:
            return paper.dry_run(study, as_json)
        return paper.measure(study, source, workers, output or paper.OUTPUT, as_json, made)
    names, left_out = options.choose_tables(table, study)
    with source.open() as model:
        tables = _measure(names, replace(study, model=model, workers=workers(model)), made, left_out, as_json)
    record: dict[str, Any] = {"model": study.name, "versions": versions(), "tables": tables}
    record |= {"left_out": left_out} if left_out else {}
    if output is not None:
        save_record(output, with_earlier_tables(record, output))
    if as_json:
        print_json(record)
    return None


def _measure(
    names: list[str], study: "Study", made: str, left_out: dict[str, str], as_json: bool
) -> dict[str, dict[str, Any]]:
    """Measure tables; of several, those whose budgets the model cannot take are added to ``left_out``."""
    options.print_estimate(study, names)
    tables = {}
    for name in names:
        trim = study.trim and "--trim" in options_of(name)
        try:
            measured = experiment(name).table(replace(study, trim=trim))
        except InfeasibleBudget as error:
            # An AnyRes model has no tiles for budgets as low as the paper's; deletion keeps any number of tokens.
            other = "; try --mechanism deletion" if study.mechanism == "resolution" else ""
            left_out[name] = f"{name} needs budgets that {study.name} cannot take by resizing{other} ({error})"
            if len(names) == 1:
                raise InfeasibleBudget(left_out[name]) from None
            typer.echo(f"left out: {left_out[name]}", err=True)
            continue
        if "sroie" in study.data:
            from stakes.experiments.tables.receipts import of_receipts

            measured = of_receipts(measured, replace(study, trim=trim))
        if trim:
            from stakes.experiments.table import of_trimmed

            measured = of_trimmed(measured)
        tables[measured.name] = {"command": made, "per_tier": study.per_tier, **measured.record()}
        if not as_json:
            print_measured(measured)
    return tables


def _given(context: typer.Context) -> list[str]:
    """The options that were typed, by their last name: ``-o`` for ``--output``."""
    names = {
        str(one.name): one.opts[-1] for one in context.command.params if one.name not in ("table", "file", "as_json")
    }
    sources = {name: context.get_parameter_source(name) for name in names}
    return [names[name] for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def _published(every: bool, output: Path | None, as_json: bool) -> None:
    from stakes.experiments.published import checks

    found = checks()
    count = Counter(check.verdict for check in found)
    record = {"table": PUBLISHED, "verdicts": dict(count), "checks": [check.record() for check in found]}
    if output is not None:
        save_record(output, {"command": f"stakes reproduce {PUBLISHED}", **record})
    if as_json:
        return print_json(record)
    rows = [
        (c.table, c.what, c.printed, "" if c.recomputed is None else c.recomputed, c.how, c.verdict)
        for c in found
        if every or c.verdict != "follows"
    ]
    title = "Published figures, recomputed" if every else "Published figures that do not follow from the others"
    print_table(title, ["table", "figure", "printed", "recomputed", "how", "verdict"], rows)
    typer.echo("; ".join(f"{verdict}: {n}" for verdict, n in count.most_common()) + ".")
    if not every:
        typer.echo("All of them: stakes reproduce published --every")
    return None


def _check_results_file(path: Path, table: str) -> None:
    """Refuse to replace a file that collects tables by a table that has a file of its own, or the reverse."""
    old = _read_results(path)
    alone = table in (PUBLISHED, PAPER) or table in legibility.NAMES
    if alone and {"model", "versions", "tables"} <= old.keys() and not (table == PAPER and "schema" in old):
        raise BadInput(
            f"{path} holds tables of {old['model']}, and {table} has a file of its own; give -o another name"
        )
    made = str(old.get("command", ""))
    if not alone and made.startswith("stakes reproduce "):  # a file that collects tables has a command for each
        raise BadInput(f"{path} was made by {made}, and would be lost; give -o another name for {table}")


def with_earlier_tables(record: dict[str, Any], path: Path) -> dict[str, Any]:
    """The record, with the other tables of a file that the same model and versions made before."""
    old = _read_results(path)
    same = all(old.get(part) == record[part] for part in ("model", "versions"))
    return record | {"tables": {**old["tables"], **record["tables"]}} if same and "tables" in old else record


def _read_results(path: Path) -> dict[str, Any]:
    """An earlier file of results; empty if there is none."""
    try:
        old = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return old if isinstance(old, dict) else {}


def format_command(table: str, data: list[str], study: "Study", signal: str, judge: str | None) -> str:
    """The command that makes a table again, without paths of this machine."""
    from stakes.data.synthetic import FAMILIES

    used = options_of(table)
    parts = [f"stakes reproduce {table}"]
    parts += [f"--per-tier {study.per_tier}"] if "--per-tier" in used else []
    parts += [f"--limit {study.per_tier}"] if table == PAPER and study.per_tier < FULL else []
    parts += [f"--mechanism {study.mechanism}"] if "--mechanism" in used else []
    parts += [f"--signal {signal}"] if signal != "tier" else []
    parts += ["--trim"] if study.trim else []
    parts += [f"--model {options.shown_name(study.name)}"] if study.name != "embedded" else []
    parts += [f"--{axis}-model {other.name}" for axis, other in study.others.items() if table == PAPER]
    parts += [f"--selector {selector}" for selector in study.selectors]
    named = [word for word in data if not Path(word).is_dir()]
    parts += [f"--data {word if word.partition('=')[2] in FAMILIES else word.partition('=')[0]}" for word in named]
    if judge is not None and study.judge is not None:
        served = f"http://HOST/v1 --judge-model {study.judge.name}"
        parts += [f"--judge {Path(judge).name if study.judge.offline else served}"]
    return " ".join(parts)
