"""``stakes reproduce``: the paper's tables, recomputed or measured, beside the published figures."""

import json
import platform
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stakes.commands import legibility
from stakes.commands import reproduce_options as options
from stakes.commands.inputs import check_writable, signal_file
from stakes.commands.installed import version
from stakes.commands.output import AsJson, print_json, print_measured, print_table, save_record
from stakes.commands.reproduce_options import PUBLISHED, options_of
from stakes.errors import BadInput, InfeasibleBudget
from stakes.experiments.tables import TABLES, experiment

if TYPE_CHECKING:
    from stakes.experiments.study import Study

NAMES = {PUBLISHED: "every published figure that follows from others, recomputed", **TABLES, **legibility.NAMES}
QUICK, FULL = 24, 300
FOLDER = Path("runs/reproduce")


def reproduce(
    context: typer.Context,
    table: Annotated[
        str, typer.Argument(help="Which table: " + "; ".join(f"{k} ({v})" for k, v in NAMES.items()) + "; or all.")
    ],
    model: Annotated[
        str, typer.Option(help="embedded, embedded-small, embedded-llava, ocr, a hub name, a folder or an address.")
    ] = "embedded",
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Real questions: docvqa (hub), docvqa=FOLDER (parquet copy), docvqa=FILE; sroie=FOLDER or sroie=FILE: "
            "receipts in place of docvqa. Or other synthetic pages: docvqa=receipts."
        ),
    ] = None,
    per_tier: Annotated[int | None, typer.Option(help=f"Questions of each tier. Default: {FULL}.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help=f"{QUICK} questions per tier: only a preview.")] = False,
    mechanism: Annotated[str, typer.Option(help="For tables that do not fix it: deletion or resolution.")] = "deletion",
    selector: Annotated[
        list[str] | None, typer.Option(help="With invariance: a selector; once per selector. Default: the paper's six.")
    ] = None,
    signal: Annotated[str, typer.Option(help="How tiers are read: tier (labels) or keywords.")] = "tier",
    folder: Annotated[Path, typer.Option(help="Answers are kept here; a later run resumes from them.")] = FOLDER,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Also write the tables to a JSON file, beside others of this model."),
    ] = None,
    judge: Annotated[
        str | None, typer.Option(help="With labels: a judge's labels file, or the address of the model that judges.")
    ] = None,
    judge_model: Annotated[str | None, typer.Option(help="With --judge ADDRESS: the judging model's name.")] = None,
    judge_key_env: Annotated[
        str | None, typer.Option(help="With --judge ADDRESS: the environment variable that holds its API key.")
    ] = None,
    every: Annotated[bool, typer.Option("--every", help="With published: list also the figures that follow.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure or recompute the paper's tables and show them beside the published ones.

    Example: stakes reproduce within-task --quick
    """
    if table not in NAMES and table != "all":
        raise BadInput(f"there is no table {table!r}; choose one of {', '.join(NAMES)}, or all")
    words = data or []
    options.check_options(table, _given(context), words)
    count = (QUICK if quick else FULL) if per_tier is None else per_tier
    if count < 2:
        raise BadInput(f"a table needs at least two questions of each tier, not {count}")
    if output is not None:
        check_writable(output, *(Path(word.rpartition("=")[2]) for word in words), signal_file(signal))
        _check_results_file(output, table)
    if table == PUBLISHED:
        return _published(every, output, as_json)
    if table in legibility.NAMES:
        return legibility.legibility(table, words, folder, output, as_json, model=model, per_tier=count)
    judging = options.make_judge(judge, judge_model, judge_key_env, folder)
    sources = options.parse_data(words)
    names = list(TABLES) if table == "all" else [table]
    left_out = options.missing_data(sources) if table == "all" else {}
    names = [name for name in names if name not in left_out]
    if judging is not None and "labels" in left_out:
        raise BadInput(f"--judge is for the table labels, which is left out: {left_out['labels']}")
    for why in left_out.values():
        typer.echo(f"left out: {why}", err=True)
    study = options.make_study(model, sources, count, mechanism, signal, folder, selector or [], judging)
    options.print_estimate(study, sum(experiment(name).answers(study) for name in names))
    tables = {}
    for name in names:
        try:
            measured = experiment(name).table(study)
        except InfeasibleBudget as error:
            # An AnyRes model has no tiles for budgets as low as the paper's; deletion keeps any number of tokens.
            other = "; try --mechanism deletion" if study.mechanism == "resolution" else ""
            left_out[name] = f"{name} needs budgets that {study.name} cannot take by resizing{other} ({error})"
            if table != "all":
                raise InfeasibleBudget(left_out[name]) from None
            typer.echo(f"left out: {left_out[name]}", err=True)
            continue
        if "sroie" in sources:
            from stakes.experiments.tables.receipts import of_receipts

            measured = of_receipts(measured, study)
        command = format_command(table, model, words, study, signal, judge)
        tables[measured.name] = {"command": command, "per_tier": study.per_tier, **measured.record()}
        if not as_json:
            print_measured(measured)
    record: dict[str, Any] = {"model": model, "versions": versions(), "tables": tables}
    record |= {"left_out": left_out} if left_out else {}
    if output is not None:
        save_record(output, with_earlier_tables(record, output))
    if as_json:
        print_json(record)
    return None


def _given(context: typer.Context) -> list[str]:
    """The options that were typed, by their last name: ``-o`` for ``--output``."""
    names = {str(one.name): one.opts[-1] for one in context.command.params if one.name not in ("table", "as_json")}
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
    alone = table == PUBLISHED or table in legibility.NAMES
    if alone and {"model", "versions", "tables"} <= old.keys():
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


def format_command(table: str, model: str, data: list[str], study: "Study", signal: str, judge: str | None) -> str:
    """The command that makes a table again, without paths of this machine."""
    from stakes.data.synthetic import FAMILIES

    used = options_of(table)
    parts = [f"stakes reproduce {table}"]
    parts += [f"--per-tier {study.per_tier}"] if "--per-tier" in used else []
    parts += [f"--mechanism {study.mechanism}"] if "--mechanism" in used else []
    parts += [f"--signal {signal}"] if signal != "tier" else []
    parts += [f"--model {Path(model).name if Path(model).exists() else model}"] if model != "embedded" else []
    parts += [f"--selector {selector}" for selector in study.selectors]
    parts += [f"--data {word if word.partition('=')[2] in FAMILIES else word.partition('=')[0]}" for word in data]
    if judge is not None and study.judge is not None:
        served = f"http://HOST/v1 --judge-model {study.judge.name}"
        parts += [f"--judge {Path(judge).name if study.judge.offline else served}"]
    return " ".join(parts)


def versions() -> dict[str, str]:
    """The machine, and the versions of the packages that can change a figure; those not installed are absent."""
    packages = {name: version(name) for name in ("stakes", "torch", "transformers", "numpy", "pillow")}
    here = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    return here | {name: found for name, found in packages.items() if found is not None}
