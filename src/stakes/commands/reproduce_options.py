"""Options of ``stakes reproduce``: which table takes which, and what they build: the judge, the data, the study.

check_options("labels", ["--per-tier"], [])     # BadInput: the table labels does not use --per-tier; leave it out
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stakes.commands import legibility
from stakes.commands.inputs import parse_signal
from stakes.commands.options import read_key
from stakes.errors import BadInput, InfeasibleBudget
from stakes.experiments.tables import TABLES, experiment

if TYPE_CHECKING:
    from stakes.experiments.study import Study
    from stakes.signals import Judge

PUBLISHED = "published"


def options_of(table: str) -> frozenset[str]:
    """The options that a table uses; ``all`` uses those of every measured table."""
    if table == PUBLISHED:
        return frozenset({"--every", "-o"})
    if table == "all":
        return frozenset[str]().union(*map(options_of, TABLES))
    return legibility.OPTIONS[table] if table in legibility.OPTIONS else experiment(table).OPTIONS


def check_options(table: str, given: Sequence[str], data: Sequence[str]) -> None:
    """Refuse the first option that the table does not use, and data sets that it does not ask about."""
    for option in given:
        if option not in options_of(table):
            takers = [name for name in (PUBLISHED, *TABLES, *legibility.OPTIONS) if option in options_of(name)]
            if len(takers) > 2:
                raise BadInput(f"the table {table} does not use {option}; leave it out")
            raise BadInput(f"{option} is for the table {' and '.join(takers)}, not for {table}; leave it out")
    if {"--quick", "--per-tier"} <= set(given):
        raise BadInput("--quick is a number of questions, too; give it or --per-tier, not both")
    if table in TABLES:
        sets = experiment(table).DATASETS
        for name in (word.partition("=")[0] for word in data if parse_data(data)):
            if name not in sets and not (name == "sroie" and "docvqa" in sets):
                raise BadInput(
                    f"the table {table} asks about {', '.join(sets)}, not about {name}; leave --data {name} out"
                )


def parse_data(words: Sequence[str]) -> dict[str, str]:
    """The sources of the paper's data sets: a samples file, a family of synthetic pages, or a set of the hub.

    The hub's may come from a local copy; a folder with the name of a family is written ``./receipts``. Real receipts
    (``sroie``) replace docvqa.
    """
    from stakes.data.synthetic import FAMILIES
    from stakes.experiments.study import OFFLINE, RECEIPTS

    sources: dict[str, str] = {}
    for word in words:
        name, _, path = word.partition("=")
        if name not in (*OFFLINE, RECEIPTS):
            raise BadInput(f"--data takes SET or SET=FILE with a set of {', '.join(OFFLINE)}, not {word!r}")
        if name in sources:
            raise BadInput(f"--data names {name} twice; give each set once")
        if name == RECEIPTS:
            if "docvqa" in sources:
                raise BadInput(f"{RECEIPTS} replaces docvqa; give --data {RECEIPTS} or --data docvqa, not both")
            file = Path(path) / "questions.jsonl" if Path(path).is_dir() else Path(path)
            if not path or not file.is_file():
                raise BadInput(f"--data {word}: no {file} is there; give --data {RECEIPTS}=FOLDER with questions.jsonl")
            sources |= {"docvqa": RECEIPTS, RECEIPTS: str(file)}
            continue
        local = Path(path).is_file() or path in FAMILIES
        sources[name] = path if local else f"hub:{name}:{path}".rstrip(":")
    return sources


def missing_data(sources: dict[str, str]) -> dict[str, str]:
    """Tables that need data of a kind that was not given, by name, with what to give."""
    missing = {}
    if not Path(sources.get("docvqa", "")).is_file():
        missing["labels"] = "labels are validated on real question texts; give a samples file: --data docvqa=FILE"
    if "sroie" not in sources:
        missing["receipts"] = "receipts are real pages; give a folder or a samples file: --data sroie=FOLDER"
    return missing


def make_judge(judge: str | None, model: str | None, key_env: str | None, folder: Path) -> "Judge | None":
    """The judge: a labels file, or a served model whose verdicts are cached in ``folder``."""
    from stakes.signals import Judge

    of_server = {"--judge-model": model, "--judge-key-env": key_env}
    given = next((f"{option} {value}" for option, value in of_server.items() if value is not None), None)
    if judge is None:
        if given is not None:
            raise BadInput(f"{given} needs the address where the judge is served; give --judge http://HOST/v1")
        return None
    if not judge.startswith(("http://", "https://")):
        if given is not None:
            raise BadInput(f"{given} is for a judge at an address, and {judge} is a labels file; leave it out")
        return Judge(labels=judge)
    if model is None:
        raise BadInput(f"--judge {judge} is an address; name the model that judges there with --judge-model NAME")
    cache = folder / "judge.jsonl"
    made = Judge(judge, model, None if key_env is None else read_key(key_env), cache=cache)
    typer.echo(f"{model} judges questions at {judge}; its verdicts are kept in {cache}", err=True)
    return made


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
    """The study that measures tables: the model, the questions and the folder of its answers."""
    from stakes.data.sample import read_samples
    from stakes.evaluation.fingerprint import Setting
    from stakes.evaluation.progress import Progress
    from stakes.experiments.study import RECEIPTS, RECEIPTS_METRIC, Study
    from stakes.models import load

    if signal.startswith("judge:"):
        raise BadInput(f"tables are measured by tier or keywords, not by {signal}; --judge is for the table labels")
    if mechanism not in ("deletion", "resolution"):
        raise BadInput(f"a mechanism is deletion or resolution, not {mechanism!r}")
    if RECEIPTS in data:  # the file may hold fewer
        per_tier = min(per_tier, max(Counter(sample.tier for sample in read_samples(data[RECEIPTS])).values()))
    for selector in selectors:
        Setting("deletion", selector)  # refuses an unknown name before the model is loaded
    return Study(
        model=load(model),
        name=model,
        folder=folder,
        per_tier=per_tier,
        mechanism="deletion" if mechanism == "deletion" else "resolution",
        metric=RECEIPTS_METRIC if RECEIPTS in data else "relaxed",
        data=data,
        signal=parse_signal(signal, {"high": 5.0, "low": 1.0}),
        selectors=tuple(dict.fromkeys(selectors)),
        progress=Progress(sys.stderr, "reproduce"),
        judge=judge,
    )


def print_estimate(study: "Study", answers: int) -> None:
    """Print how long the answers will take, from the speed of one small batch."""
    from stakes.evaluation.progress import format_duration
    from stakes.models.base import Request

    if not answers:
        return
    sample = study.questions(study.source("docvqa"), 2)[0]
    requests = [Request(sample.load(), sample.question, budget, study.mechanism) for budget in (96, 304, 512)]
    try:
        study.model.answer(requests)  # warm-up
    except InfeasibleBudget:  # the table itself gives the better message
        return
    began = time.monotonic()
    study.model.answer(requests)
    seconds = (time.monotonic() - began) / len(requests) * answers
    typer.echo(
        f"at most {answers} answers, about {format_duration(seconds)} at the speed of three of them; answers in "
        f"{study.folder} are not asked again",
        err=True,
    )
