"""Is this the same experiment? What a log's outcomes rest on, as readable parts and as one short name.

Every outcome carries the name in ``run``; the parts stand beside the log in ``LOG.meta.json``, so that a refusal can
say what differs. Budgets are no part: a grid may grow, and what was answered is kept.

    mark = take(asked, model, Setting("deletion", "redundancy"))
    mark.run                                  # '0f3c…', 32 hex digits
    admit(Path("log.jsonl"), mark)            # the outcomes it holds, or BadInput: another model, other images, …
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stakes.errors import BadInput, StakesError
from stakes.evaluation.asked import Asked
from stakes.evaluation.grading import METRICS
from stakes.evaluation.outcomes import Outcome, read_outcomes
from stakes.files import write_whole
from stakes.models.about import identity
from stakes.models.base import DEFAULT_SELECTOR, SUFFIX, Mechanism

SCHEMA = 1  # raise it when grading or answering changes what an old log would have said
DATA = ("samples", "questions", "answers", "documents", "images")


@dataclass(frozen=True)
class Setting:
    """How budgets are realised and answers graded; ``selector`` is a name with options, for deletion only."""

    mechanism: Mechanism = "resolution"
    selector: str | None = None
    metric: str = "relaxed"

    def __post_init__(self) -> None:
        if self.mechanism not in ("resolution", "deletion"):
            raise BadInput(f"the mechanism is resolution or deletion, not {self.mechanism!r}")
        if self.metric not in METRICS:
            raise BadInput(f"unknown metric {self.metric!r}; choose one of {', '.join(METRICS)}")
        if self.mechanism == "resolution" and self.selector is not None:
            raise BadInput("a selector says which tokens deletion keeps; give the mechanism deletion with it")
        if self.mechanism == "deletion":
            from stakes.vision.selectors import SELECTORS

            object.__setattr__(self, "selector", self.selector or DEFAULT_SELECTOR)
            if str(self.selector).partition(":")[0] not in SELECTORS:
                raise BadInput(f"no selector is called {self.selector!r}; there are {', '.join(SELECTORS)}")


@dataclass(frozen=True)
class Fingerprint:
    """Everything that decides an answer and its grade, by name."""

    parts: Mapping[str, str]

    @property
    def run(self) -> str:
        """The name of the whole."""
        return _name(self.parts)

    @property
    def data(self) -> str:
        """The name of what is asked, whatever the tiers and the model."""
        return _name({key: self.parts[key] for key in DATA})[:16]

    @property
    def model(self) -> str:
        """The name of who answers."""
        return _name({key: value for key, value in self.parts.items() if key.startswith("model.")})[:16]

    def __str__(self) -> str:
        return f"data:{self.data} model:{self.model} run:{self.run}"


def take(asked: Sequence[Asked], model: Any, setting: Setting) -> Fingerprint:
    """The fingerprint of these questions put to this model; the order of the samples is part of it."""
    columns = {
        "questions": [(one.id, one.question) for one in asked],
        "answers": [one.answers for one in asked],
        "documents": [one.document for one in asked],
        "images": [one.digest for one in asked],
        "tiers": [one.tier for one in asked],
    }
    return Fingerprint(
        {
            "schema": str(SCHEMA),
            "samples": str(len(asked)),
            **{key: _name(column)[:16] for key, column in columns.items()},
            **{f"model.{key}": value for key, value in identity(model).items()},
            "mechanism": setting.mechanism,
            "selector": str(setting.selector),
            "metric": setting.metric,
            "suffix": SUFFIX,
        }
    )


def admit(log: Path, mark: Fingerprint) -> list[Outcome]:
    """The outcomes that a log already holds of this very experiment; an empty or new log is marked as its own."""
    outcomes = read_outcomes(log) if log.exists() else []
    meta = beside(log, "meta")
    strange = next((outcome.run for outcome in outcomes if outcome.run != mark.run), None)
    if strange is not None:
        raise BadInput(
            f"{log} belongs to another experiment: {_difference(meta, strange, mark)}; "
            "give another log, or the same things again"
        )
    save_json(meta, {"run": mark.run, **mark.parts})
    return outcomes


def beside(log: Path, kind: str) -> Path:
    """The file that stands beside a log: ``log.jsonl.meta.json``."""
    return log.with_name(f"{log.name}.{kind}.json")


def save_json(path: Path, record: object) -> None:
    """Write a JSON file whole or not at all, and wait until it is on disk."""
    try:
        write_whole(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise StakesError(f"{path} cannot be written ({error.strerror}); make room or choose another place") from error


def _difference(meta: Path, run: str, mark: Fingerprint) -> str:
    try:
        then = json.loads(meta.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        then = None
    if not isinstance(then, dict) or then.pop("run", None) != run:
        return (
            f"its outcomes are of run {run:.12}, this is {mark.run:.12} (what differs is not known without {meta.name})"
        )
    keys = [key for key in {**then, **mark.parts} if then.get(key) != mark.parts.get(key)]
    return ", ".join(f"{key} was {then.get(key)!s:.40} and is {mark.parts.get(key)!s:.40}" for key in keys)


def _name(value: object) -> str:
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=dict)
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()
