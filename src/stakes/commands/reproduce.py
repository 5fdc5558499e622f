"""``stakes reproduce``: the paper's tables, recomputed or measured, beside the published figures."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stakes.commands.inputs import check_writable, signal_file
from stakes.commands.legibility import NAMES as LEGIBILITY
from stakes.commands.legibility import legibility
from stakes.commands.output import AsJson, clean, print_json, print_table
from stakes.commands.reproduce_options import (
    TAKES,
    check_gathered,
    check_options,
    make_judge,
    make_study,
    named_sets,
    say_how_long,
)
from stakes.errors import BadInput, InfeasibleBudget
from stakes.experiments.registry import TABLES

if TYPE_CHECKING:
    from stakes.experiments.study import Study
    from stakes.experiments.table import Table


# What stands in a file of measured tables? Who answered, with which versions, and the command that makes it again.
#
# save_json(path, clean(added({"model": …, "versions": versions(), "tables": …}, path)))


def added(record: dict[str, Any], path: Path) -> dict[str, Any]:
    """The record with the other tables of a file that the same model and versions made before."""
    try:
        old = json.loads(path.read_text("utf-8"))
        same = all(old[part] == record[part] for part in ("model", "versions"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return record
    return record | {"tables": old["tables"] | record["tables"]} if same else record


def command_of(table: str, model: str, data: list[str], study: "Study", signal: str, judge: str | None) -> str:
    """What makes this file again, without the places of this machine."""
    parts = [f"stakes reproduce {table}"]
    parts += [f"--per-tier {study.per_tier}"] if "--per-tier" in TAKES[table] else []
    parts += [f"--mechanism {study.mechanism}"] if "--mechanism" in TAKES[table] else []
    parts += [f"--signal {signal}"] if signal != "tier" else []
    parts += [f"--model {Path(model).name if Path(model).exists() else model}"] if model != "embedded" else []
    parts += [f"--selector {spec}" for spec in study.selectors]
    parts += [f"--data {word.partition('=')[0]}" for word in data]
    if judge is not None and study.judge is not None:
        served = f"http://HOST/v1 --judge-model {study.judge.name}"
        parts += [f"--judge {Path(judge).name if study.judge.offline else served}"]
    return " ".join(parts)


def versions() -> dict[str, str]:
    """What answered: the packages whose version can change a figure."""
    import platform
    from importlib import metadata

    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in ("stakes", "torch", "transformers", "numpy", "pillow"):
        found[name] = metadata.version(name)
    return found


PUBLISHED = "published"
NAMES = {PUBLISHED: "every published figure that follows from others, recomputed"} | {
    name: what for name, (_, what) in TABLES.items()
}
NAMES |= LEGIBILITY
QUICK, FULL = 24, 300
FOLDER = Path("runs/reproduce")


def reproduce(
    table: Annotated[
        str, typer.Argument(help="Which table: " + "; ".join(f"{k} ({v})" for k, v in NAMES.items()) + "; or all.")
    ],
    model: Annotated[
        str,
        typer.Option(
            help="Who answers: embedded, embedded-small, embedded-llava, ocr, a hub name, a folder, an address."
        ),
    ] = "embedded",
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Real questions: docvqa (hub), docvqa=FOLDER (parquet copy), docvqa=FILE (samples). Default: pages."
        ),
    ] = None,
    per_tier: Annotated[int | None, typer.Option(help=f"Questions of each tier. Default: {FULL}.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help=f"{QUICK} questions of each tier: a look, no evidence.")
    ] = False,
    mechanism: Annotated[
        str, typer.Option(help="Of the tables that do not fix it: deletion or resolution.")
    ] = "deletion",
    selector: Annotated[
        list[str] | None,
        typer.Option(help="With invariance: a selector to measure, again for each. Default: the paper's six."),
    ] = None,
    signal: Annotated[str, typer.Option(help="How tiers are read: tier (labels) or keywords.")] = "tier",
    folder: Annotated[Path, typer.Option(help="Where answers are kept; a later run goes on there.")] = FOLDER,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the tables to one JSON file, too; others of the same model stay."),
    ] = None,
    judge: Annotated[
        str | None, typer.Option(help="With labels: a judge's labels file, or the address of the model that judges.")
    ] = None,
    judge_model: Annotated[str | None, typer.Option(help="With --judge ADDRESS: the judging model's name.")] = None,
    judge_key_env: Annotated[
        str | None, typer.Option(help="With --judge ADDRESS: the environment variable that holds its API key.")
    ] = None,
    every: Annotated[bool, typer.Option("--every", help="With published: list the figures that follow, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure or recompute the paper's tables and set them beside the published ones.

    Example: stakes reproduce within-task --quick
    """
    if table not in NAMES and table != "all":
        raise BadInput(f"there is no table {table!r}; choose one of {', '.join(NAMES)}, or all")
    given = {
        "--model": model != "embedded", "--data": bool(data), "--per-tier": per_tier is not None, "--quick": quick,
        "--mechanism": mechanism != "deletion", "--selector": bool(selector), "--signal": signal != "tier",
        "--folder": folder != FOLDER, "-o": output is not None, "--judge": judge is not None,
        "--judge-model": judge_model is not None, "--judge-key-env": judge_key_env is not None, "--every": every,
    }  # fmt: skip
    check_options(table, [option for option, was in given.items() if was], data or [])
    count = (QUICK if quick else FULL) if per_tier is None else per_tier
    if count < 2:
        raise BadInput(f"a table needs at least two questions of each tier, not {count}")
    if table == PUBLISHED:
        return _published(every, output, as_json)
    if table in LEGIBILITY:
        return legibility(table, data or [], folder, output, as_json, model=model, per_tier=count)
    if output is not None:
        files = [Path(word.partition("=")[2]) for word in data or [] if "=" in word]
        check_writable(output, *files, signal_file(signal))
        check_gathered(output, table, alone=False)
    view = make_judge(judge, judge_model, judge_key_env, folder)
    sources = named_sets(data or [])
    names = list(TABLES) if table == "all" else [table]
    left_out: dict[str, str] = {}
    if table == "all" and "labels" in names and not Path(sources.get("docvqa", "")).is_file():
        left_out["labels"] = "labels are validated on real question texts; give a samples file: --data docvqa=FILE"
        names.remove("labels")
        if view is not None:
            raise BadInput(f"--judge is for the table labels, which is left out: {left_out['labels']}")
        typer.echo(f"left out: {left_out['labels']}", err=True)
    study = make_study(model, sources, count, mechanism, signal, folder, selector or [], view)
    from stakes.experiments.registry import experiment

    say_how_long(study, sum(experiment(name).answers(study) for name in names))
    found: list[Table] = []
    for name in names:
        try:
            made = experiment(name).table(study)
        except InfeasibleBudget as error:
            left_out[name] = _out_of_reach(name, study, error)
            if table != "all":
                raise InfeasibleBudget(left_out[name]) from None
            typer.echo(f"left out: {left_out[name]}", err=True)
            continue
        found.append(made)
        if not as_json:
            print_table(made.title, made.columns, made.rows)
            for line in made.findings:
                typer.echo(f"  - {line}")
            typer.echo("")
    command = command_of(table, model, data or [], study, signal, judge)
    record: dict[str, Any] = {
        "model": model,
        "versions": versions(),
        "tables": {made.name: {"command": command, "per_tier": study.per_tier, **made.record()} for made in found},
    }
    record |= {"left_out": left_out} if left_out else {}
    if output is not None:
        from stakes.evaluation.fingerprint import save_json

        save_json(output, clean(added(record, output)))
    if as_json:
        print_json(record)
    return None


def _out_of_reach(name: str, study: "Study", error: InfeasibleBudget) -> str:
    """An AnyRes model has no rung as low as the paper's budgets; deletion keeps any number."""
    said = f"the table {name} asks for budgets that {study.name} cannot take by resizing"
    other = "; try --mechanism deletion" if study.mechanism == "resolution" else ""
    return f"{said}{other} ({error})"


def _published(every: bool, output: Path | None, as_json: bool) -> None:
    from stakes.experiments.published import checks

    if output is not None:
        check_writable(output)
        check_gathered(output, PUBLISHED, alone=True)
    found = checks()
    count: Counter[str] = Counter(check.verdict for check in found)
    record = {"table": PUBLISHED, "verdicts": dict(count), "checks": [check.record() for check in found]}
    if output is not None:
        from stakes.evaluation.fingerprint import save_json

        save_json(output, clean({"command": f"stakes reproduce {PUBLISHED}", **record}))
    if as_json:
        return print_json(record)
    listed = [check for check in found if every or check.verdict != "follows"]
    rows = [
        (c.table, c.what, c.printed, "" if c.recomputed is None else c.recomputed, c.how, c.verdict) for c in listed
    ]
    title = "Published figures, recomputed" if every else "Published figures that do not follow from the others"
    print_table(title, ["table", "figure", "printed", "recomputed", "how", "verdict"], rows)
    typer.echo("; ".join(f"{n} {verdict}" for verdict, n in count.most_common()) + ".")
    if not every:
        typer.echo("All of them: stakes reproduce published --every")
    return None
