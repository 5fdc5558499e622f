"""Which options does a table of ``stakes reproduce`` take? What it would not look at is refused by name.

check_options("labels", ["--per-tier"], [])     # BadInput: the table labels does not look at --per-tier; leave it out
"""

import json
from collections.abc import Sequence
from pathlib import Path

from stakes.errors import BadInput

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
