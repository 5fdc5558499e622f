"""Options of ``stakes reproduce``: which table takes which, and what they build: the judge, the data, the study.

check_options("labels", ["--per-tier"], [])     # BadInput: the table labels does not use --per-tier; leave it out
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stakes.commands.options.inputs import parse_signal
from stakes.commands.options.model import ModelSource, Workers, options_besides_model, read_key
from stakes.commands.reproduce import legibility
from stakes.errors import BadInput, InfeasibleBudget
from stakes.experiments.tables import TABLES, experiment

if TYPE_CHECKING:
    from stakes.experiments.study import Other, Study
    from stakes.signals import Judge

PUBLISHED, PAPER, CHECK = "published", "paper", "check"
OTHERS = "Default: for embedded and Qwen/Qwen2.5-VL-7B-Instruct the one that stands for the paper's."
PAPERS_OTHERS = {
    "embedded": {"scale": "embedded-small", "architecture": "embedded-llava"},
    "Qwen/Qwen2.5-VL-7B-Instruct": {
        "scale": "Qwen/Qwen2.5-VL-3B-Instruct",
        "architecture": "llava-hf/llava-onevision-qwen2-7b-ov-hf",
    },
}
"""By model: what stands beside it for the paper's 3B and LLaVA-OneVision rows."""
OF_PAPER = frozenset(
    {"--model", "--data", "--limit", "--dry-run", "--mechanism", "--scale-model", "--architecture-model", "--folder",
     "-o", "--judge", "--judge-model", "--judge-key-env"}
)  # fmt: skip


def options_of(table: str) -> frozenset[str]:
    """The options that a table uses; ``all`` uses those of every measured table."""
    if table in (PUBLISHED, CHECK):
        return frozenset({"--every", "-o"}) if table == PUBLISHED else frozenset()
    if table == PAPER:
        return OF_PAPER | options_besides_model()
    if table == "all":
        return frozenset[str]().union(*map(options_of, TABLES))
    if table in legibility.OPTIONS:
        return legibility.OPTIONS[table]
    own = experiment(table).OPTIONS
    return own | options_besides_model() if "--per-tier" in own else own  # the others ask no model


def check_options(table: str, given: Sequence[str], data: Sequence[str]) -> None:
    """Refuse the first option that the table does not use, and data sets that it does not ask about."""
    for option in given:
        if option not in options_of(table):
            takers = [name for name in (PUBLISHED, *TABLES, *legibility.OPTIONS) if option in options_of(name)]
            takers = takers or [PAPER]
            if len(takers) > 2:
                raise BadInput(f"the table {table} does not use {option}; leave it out")
            raise BadInput(f"{option} is for the table {' and '.join(takers)}, not for {table}; leave it out")
    if {"--quick", "--per-tier"} <= set(given):
        raise BadInput("--quick is a number of questions, too; give it or --per-tier, not both")
    if table in TABLES:
        from stakes.experiments.study import OFFLINE, RECEIPTS

        sets = experiment(table).DATASETS
        for name in (word.partition("=")[0] for word in data if parse_data(data)):
            if name in (*OFFLINE, RECEIPTS) and name not in sets and not (name == RECEIPTS and "docvqa" in sets):
                raise BadInput(
                    f"the table {table} asks about {', '.join(sets)}, not about {name}; leave --data {name} out"
                )


def parse_data(words: Sequence[str], *, every: bool = False) -> dict[str, str]:
    """The sources of the paper's data sets: a samples file, a family of synthetic pages, or a benchmark of the hub.

    The hub's may come from a local copy; a folder with the name of a family is written ``./receipts``. A folder that is
    no SET=FOLDER holds copies of all benchmarks. Real receipts (``sroie``) replace docvqa. ``every``: all benchmarks
    from the hub, or from copies.
    """
    from stakes.data.hub.sources import SOURCES
    from stakes.data.synthetic import FAMILIES
    from stakes.experiments.study import OFFLINE, RECEIPTS

    sources: dict[str, str] = dict.fromkeys(SOURCES, "") if every else {}
    named = set[str]()
    for word in words:
        name, _, path = word.partition("=")
        if name not in (*OFFLINE, RECEIPTS):
            if not Path(word).is_dir():
                sets = ", ".join(OFFLINE)
                raise BadInput(f"--data takes SET, SET=FILE or a folder of copies, not {word!r}; the sets are {sets}")
            sources |= dict.fromkeys(SOURCES, "")
            continue
        if name in named:
            raise BadInput(f"--data names {name} twice; give each set once")
        named.add(name)
        if every and (name not in SOURCES or Path(path).is_file() or path in FAMILIES):
            raise BadInput(f"{PAPER} takes benchmarks as the hub has them, not --data {word}; give {name}=FOLDER")
        if name == RECEIPTS:
            if "docvqa" in sources:
                raise BadInput(f"{RECEIPTS} replaces docvqa; give --data {RECEIPTS} or --data docvqa, not both")
            file = Path(path) / "questions.jsonl" if Path(path).is_dir() else Path(path)
            if not path or not file.is_file():
                raise BadInput(f"--data {word}: no {file} is there; give --data {RECEIPTS}=FOLDER with questions.jsonl")
            sources |= {"docvqa": RECEIPTS, RECEIPTS: str(file)}
            continue
        sources[name] = path if Path(path).is_file() or path in FAMILIES else ""
    return {name: source or name for name, source in sources.items()}


def find_copies(words: Sequence[str]) -> dict[str, Path]:
    """Local parquet copies of benchmarks: SET=FOLDER, or FOLDER/SET, FOLDER/REPOSITORY or FOLDER/OWNER/REPOSITORY."""
    from stakes.data.hub.sources import SOURCES
    from stakes.data.synthetic import FAMILIES

    copies: dict[str, Path] = {}
    for word in words:
        name, _, path = word.partition("=")
        if name in SOURCES:
            if path and path not in FAMILIES and not Path(path).is_file():
                copies[name] = Path(path)
        elif Path(word).is_dir():
            for one in SOURCES.values():
                places = [Path(word) / part for part in (one.name, one.repo.partition("/")[2], one.repo)]
                found = next((place for place in places if place.is_dir()), None)
                if found is None:
                    raise BadInput(f"{word} holds no copy of {one.name}; expected one of {', '.join(map(str, places))}")
                copies.setdefault(one.name, found)
    return copies


def missing_data(study: "Study") -> dict[str, str]:
    """Tables that need data of a kind that was not given, by name, with what to give."""
    from stakes.data.hub.sources import SOURCES
    from stakes.experiments.tables.labels import NEEDS

    missing = {}
    source = study.source("docvqa")
    if source not in SOURCES and not Path(source).is_file():
        missing["labels"] = NEEDS
    if "sroie" not in study.data:
        missing["receipts"] = "receipts are real pages; give a folder or a samples file: --data sroie=FOLDER"
    return missing


def choose_tables(table: str, study: "Study") -> tuple[list[str], dict[str, str]]:
    """The tables to measure, and those that are left out of ``all``, with what they need."""
    left_out = missing_data(study) if table == "all" else {}
    if study.judge is not None and "labels" in left_out:
        raise BadInput(f"--judge is for the table labels, which is left out: {left_out['labels']}")
    for why in left_out.values():
        typer.echo(f"left out: {why}", err=True)
    return [name for name in (TABLES if table == "all" else [table]) if name not in left_out], left_out


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
    folder: Path,
    per_tier: int,
    data: dict[str, str],
    *,
    mechanism: str,
    signal: str,
    selectors: list[str],
) -> "Study":
    """The study that measures tables, without its model: questions and the folder of its answers."""
    from stakes.data.sample import read_samples
    from stakes.evaluation.fingerprint import Setting
    from stakes.evaluation.progress import Progress
    from stakes.experiments.study import RECEIPTS, RECEIPTS_METRIC, NotLoaded, Study

    if signal.startswith("judge:"):
        raise BadInput(f"tables are measured by tier or keywords, not by {signal}; --judge is for the table labels")
    if mechanism not in ("deletion", "resolution"):
        raise BadInput(f"a mechanism is deletion or resolution, not {mechanism!r}")
    if RECEIPTS in data:  # the file may hold fewer
        per_tier = min(per_tier, max(Counter(sample.tier for sample in read_samples(data[RECEIPTS])).values()))
    for selector in selectors:
        Setting("deletion", selector)  # refuses an unknown name before the model is loaded
    return Study(
        model=NotLoaded(),
        name=model,
        folder=folder,
        per_tier=per_tier,
        mechanism="deletion" if mechanism == "deletion" else "resolution",
        metric=RECEIPTS_METRIC if RECEIPTS in data else "relaxed",
        data=data,
        signal=parse_signal(signal, {"high": 5.0, "low": 1.0}),
        selectors=tuple(dict.fromkeys(selectors)),
        progress=Progress(sys.stderr, "reproduce"),
    )


def make_others(source: ModelSource, workers: Workers, **named: str | None) -> "dict[str, Other]":
    """The models of the axes scale and architecture: as named, or those that stand for the paper's."""
    from stakes.experiments.study import Other
    from stakes.models import load

    local: dict[str, Any] = {key: source.options[key] for key in ("device", "dtype") if key in source.options}
    names = {**PAPERS_OTHERS.get(source.name, {}), **{axis: name for axis, name in named.items() if name is not None}}
    return {
        axis: Other(shown_name(name), partial(load, name, **local), workers)
        for axis, name in names.items()
        if name != "none"
    }


def shown_name(model: str) -> str:
    """The model's name in tables and files, without a path of this machine."""
    return Path(model).name if Path(model).exists() else model


def print_estimate(study: "Study", names: Sequence[str]) -> None:
    """Print how long the tables will take, from the speed of one small batch."""
    from stakes.evaluation.progress import format_duration
    from stakes.experiments.estimate import answers
    from stakes.models.base import Request

    asked = answers({ask for name in names for ask in experiment(name).asks(study)})
    if not asked:
        return
    sample = study.questions(study.source("docvqa"), 2)[0]
    requests = [Request(sample.load(), sample.question, budget, study.mechanism) for budget in (96, 304, 512)]
    try:
        study.model.answer(requests)  # warm-up
    except InfeasibleBudget:  # the table itself gives the better message
        return
    began = time.monotonic()
    study.model.answer(requests)
    seconds = (time.monotonic() - began) / len(requests) * asked
    typer.echo(
        f"at most {asked} answers, about {format_duration(seconds)} at the speed of three of them; answers in "
        f"{study.folder} are not asked again",
        err=True,
    )
