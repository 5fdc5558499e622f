"""Which options does a table of ``stakes reproduce`` take? What it would not look at is refused by name.

check_options("labels", ["--per-tier"], [])     # BadInput: the table labels does not look at --per-tier; leave it out
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stakes.commands.inputs import read_signal
from stakes.commands.options import read_key
from stakes.errors import BadInput, InfeasibleBudget

if TYPE_CHECKING:
    from stakes.experiments.study import Study
    from stakes.signals import Judge


_ALL = {"--model", "--data", "--per-tier", "--quick", "--signal", "--folder", "-o"}  # every table that asks a model
_BOTH = {*_ALL, "--mechanism"}  # measured by deletion or by resolution, as one wishes
_JUDGED = {"--judge", "--judge-model", "--judge-key-env"}
TAKES = {
    "published": {"--every", "-o"},
    "within-task": _BOTH,
    "cross-task": _BOTH,
    "frontier": _BOTH,
    "curves": _ALL,
    "cross-dataset": _BOTH,
    "invariance": {*_ALL, "--selector"},
    "mixed": _BOTH,
    "proportional": _ALL,
    "diagnostics": _BOTH,
    "metrics": _BOTH,
    "labels": {"--model", "--data", "--folder", "-o", *_JUDGED},  # the model names the file's tables; none is asked
    "latency": _ALL,
    "map": _ALL,
    "legibility": {"--data", "--folder", "-o"},
    "legibility-check": {"--data", "-o"},
    "legibility-agreement": {"--model", "--per-tier", "--quick", "--folder", "-o"},
    "legibility-map": {"--data", "-o"},
    "all": _BOTH | _JUDGED,
}
_DENSITIES, _PLAIN = ("docvqa", "chartqa", "infographicvqa"), ("docvqa", "solid_color")
# which of the paper's sets a table asks about, where it is not DocVQA alone; diagnostics and all ask about every one
SETS = {
    "cross-task": _PLAIN,
    "cross-dataset": _DENSITIES,
    "metrics": _DENSITIES,
    "mixed": ("docvqa", "textvqa", "vqav2"),
    "latency": ("docvqa", "textvqa", "vqav2"),
    "proportional": _PLAIN,
    "map": _PLAIN,
}


def check_options(table: str, given: Sequence[str], data: Sequence[str]) -> None:
    """Refuse the first option that the table would not look at, and sets that it does not ask about."""
    for option in given:
        if option in TAKES[table]:
            continue
        takers = [name for name, options in TAKES.items() if option in options and name != "all"]
        if len(takers) > 2:
            raise BadInput(f"the table {table} does not look at {option}; leave it out")
        raise BadInput(f"{option} is for the table {' and '.join(takers)}, not for {table}; leave it out")
    if {"--quick", "--per-tier"} <= set(given):
        raise BadInput("--quick is a number of questions, too; give it or --per-tier, not both")
    if table in ("all", "diagnostics") or table.startswith("legibility"):
        return
    sets = SETS.get(table, ("docvqa",))
    known = {name for others in SETS.values() for name in others}
    for name in (word.partition("=")[0] for word in data):
        if name in known and name not in sets:
            raise BadInput(f"the table {table} asks about {', '.join(sets)}, not about {name}; leave --data {name} out")


def check_gathered(path: Path, table: str, alone: bool) -> None:
    """Refuse to write a table that has a file of its own (``alone``) over one that gathers a model's, or reversed."""
    try:
        old = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    if not isinstance(old, dict):
        return
    if alone and {"model", "versions", "tables"} <= old.keys():
        raise BadInput(f"{path} gathers tables of {old['model']}, which {table} is none of; give -o another name")
    made = str(old.get("command", ""))
    if not alone and made.startswith("stakes reproduce "):  # a file that gathers has a command for each table
        raise BadInput(f"{path} was made by {made}, and would be lost; give -o another name for {table}")


# Who is asked for a table, about which data, by which judge, and how long will that take?
#
# study = make_study("embedded", named_sets(["docvqa=FILE"]), 300, "deletion", "tier", folder, [])
# say_how_long(study, answers=2400)


def make_judge(judge: str | None, model: str | None, key_env: str | None, folder: Path) -> "Judge | None":
    """The judge that is named: a labels file, or a served model, whose verdicts are kept beside the answers."""
    from stakes.signals import Judge

    of_server = {"--judge-model": model, "--judge-key-env": key_env}
    named = next((f"{option} {value}" for option, value in of_server.items() if value is not None), None)
    if judge is None:
        if named is not None:
            raise BadInput(f"{named} needs the address where the judge is served; give --judge http://HOST/v1")
        return None
    if not judge.startswith(("http://", "https://")):
        if named is not None:
            raise BadInput(f"{named} is for a judge at an address, and {judge} is a labels file; leave it out")
        return Judge(labels=judge)
    if model is None:
        raise BadInput(f"--judge {judge} is an address; say which model judges there with --judge-model NAME")
    made = Judge(judge, model, None if key_env is None else read_key(key_env), cache=folder / "judge.jsonl")
    typer.echo(f"{model} judges questions at {judge}; its verdicts are kept in {folder / 'judge.jsonl'}", err=True)
    return made


def named_sets(data: list[str]) -> dict[str, str]:
    """What stands for the paper's data sets: a samples file, or a set of the hub."""
    from stakes.experiments.study import OFFLINE

    sources: dict[str, str] = {}
    for word in data:
        name, _, place = word.partition("=")
        if name not in OFFLINE:
            raise BadInput(f"--data takes SET or SET=FILE with a set of {', '.join(OFFLINE)}, not {word!r}")
        if name in sources:
            raise BadInput(f"--data names {name} twice; give each set once")
        sources[name] = place if Path(place).is_file() else f"hub:{name}:{place}".rstrip(":")
    return sources


def make_study(
    model: str,
    data: dict[str, str],
    per_tier: int,
    mechanism: str,
    signal: str,
    folder: Path,
    selectors: list[str],
    judge: "Judge | None" = None,
) -> "Study":
    """What measures tables: the model, the questions and where answers are kept."""
    from stakes.evaluation.fingerprint import Setting
    from stakes.evaluation.progress import progress_on
    from stakes.experiments.study import Study
    from stakes.models import load

    if signal.startswith("judge:"):
        raise BadInput(f"tables are measured by tier or keywords, not by {signal}; --judge is for the table labels")
    if mechanism not in ("deletion", "resolution"):
        raise BadInput(f"a mechanism is deletion or resolution, not {mechanism!r}")
    for spec in selectors:
        Setting("deletion", spec)  # a name that nobody has is refused before a model is loaded
    return Study(
        model=load(model),
        name=model,
        folder=folder,
        per_tier=per_tier,
        mechanism="deletion" if mechanism == "deletion" else "resolution",
        data=data,
        signal=read_signal(signal, {"high": 5.0, "low": 1.0}),
        selectors=tuple(dict.fromkeys(selectors)),
        progress=progress_on(sys.stderr, "reproduce"),
        judge=judge,
    )


def say_how_long(study: "Study", answers: int) -> None:
    """What is ahead, from the speed of one small batch."""
    import time

    if not answers:
        return
    from stakes.evaluation.progress import spell
    from stakes.models.base import Request

    one = study.questions(study.source("docvqa"), 2)[0]
    requests = [Request(one.load(), one.question, budget, study.mechanism) for budget in (96, 304, 512)]
    try:
        study.model.answer(requests)  # a warm-up
    except InfeasibleBudget:  # the table says it better
        return
    began = time.monotonic()
    study.model.answer(requests)
    seconds = (time.monotonic() - began) / len(requests) * answers
    typer.echo(
        f"at most {answers} answers, about {spell(seconds)} at the speed of three of them; answers that {study.folder} "
        "holds are not asked again",
        err=True,
    )
