"""Is this the same experiment? What a log's outcomes rest on, as readable parts and as one short name.

Every outcome carries the name in ``run``; the parts stand beside the log in ``LOG.meta.json``, so that a refusal can
say what differs. Budgets are no part: a grid may grow, and what was answered is kept.

    mark = take(asked, model, Setting("deletion", "redundancy"))
    mark.run                                  # '0f3c…', 32 hex digits
    admit(Path("log.jsonl"), mark)            # the outcomes it holds, or BadInput: another model, other images, …

No answer depends on its question's tier, nor on what its document is called, so a log that differs in these alone is
taken, with the tiers and documents of now; ``relabel`` writes them into the log before it goes on.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stakes.errors import BadInput, StakesError
from stakes.evaluation.grading import METRICS
from stakes.evaluation.items import Asked
from stakes.evaluation.outcome_log import Outcome, OutcomeLog, read_outcomes
from stakes.files import write_whole
from stakes.models.base import DEFAULT_SELECTOR, SUFFIX, Mechanism
from stakes.models.identity import identity

SCHEMA = 1  # raise it when grading or answering changes what an old log would have said
ELSEWHERE = "give --log another name"  # an option of calibrate and of evaluate
DATA = ("samples", "questions", "answers", "documents", "images")
LABELS = {"tiers": "", "documents": ""}  # what no answer depends on


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
            from stakes.vision.selectors import SELECTORS, make

            object.__setattr__(self, "selector", self.selector or DEFAULT_SELECTOR)
            if str(self.selector).partition(":")[0] not in SELECTORS:
                raise BadInput(f"no selector is called {self.selector!r}; there are {', '.join(SELECTORS)}")
            if ":" in str(self.selector):  # its options are checked now, not at the first answer
                with suppress(ImportError):  # without torch, whoever loads the model says what to install
                    make(str(self.selector))


@dataclass(frozen=True)
class Fingerprint:
    """Everything that decides an answer and its grade, by name."""

    parts: Mapping[str, str]
    tiers: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The tier of every sample, by id."""
    documents: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The document of every sample, by id."""

    @property
    def run(self) -> str:
        """The name of the whole."""
        return name_of(self.parts)

    @property
    def data(self) -> str:
        """The name of what is asked, whatever the tiers and the model."""
        return name_of({key: self.parts[key] for key in DATA})[:16]

    @property
    def model(self) -> str:
        """The name of who answers."""
        return name_of({key: value for key, value in self.parts.items() if key.startswith("model.")})[:16]

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
            **{key: name_of(column)[:16] for key, column in columns.items()},
            **{f"model.{key}": value for key, value in identity(model).items()},
            "mechanism": setting.mechanism,
            "selector": str(setting.selector),
            "metric": setting.metric,
            "suffix": SUFFIX,
        },
        {one.id: one.tier for one in asked},
        {one.id: one.document for one in asked},
    )


def admit(log: Path, mark: Fingerprint, elsewhere: str = ELSEWHERE) -> list[Outcome]:
    """The outcomes that a log already holds of this very experiment; an empty or new log is marked as its own.

    ``elsewhere``: how the caller is told to choose another log.
    """
    outcomes = read_outcomes(log) if log.exists() else []
    meta = beside(log, "meta")
    strange = next((outcome.run for outcome in outcomes if outcome.run != mark.run), None)
    if strange is not None:
        if (now := _retiered(outcomes, _parts(meta), mark)) is None:
            raise BadInput(_difference(log, strange, mark, elsewhere))
        return now  # the log itself still says otherwise, so that its mark stays
    save_json(meta, {"run": mark.run, **mark.parts})
    return outcomes


def relabel(log: Path, mark: Fingerprint) -> int:
    """Write the tiers and documents of now into a log that differs in nothing else; how many tiers change."""
    then = _parts(beside(log, "meta"))
    if not log.exists() or not _only_labels(then, mark):
        return 0
    with OutcomeLog(log):  # nobody else writes it meanwhile
        outcomes = read_outcomes(log)
        if (now := _retiered(outcomes, then, mark)) is None:
            return 0
        text = "".join(json.dumps(outcome.record(), ensure_ascii=False) + "\n" for outcome in now)
        try:
            write_whole(log, text)
        except OSError as error:
            raise StakesError(f"{log} cannot be written ({error.strerror}); make room, and start again") from error
        save_json(beside(log, "meta"), {"run": mark.run, **mark.parts})
    return len({then.sample for then, one in zip(outcomes, now, strict=True) if then.tier != one.tier})


def beside(log: Path, kind: str) -> Path:
    """The file that stands beside a log: ``log.jsonl.meta.json``."""
    return log.with_name(f"{log.name}.{kind}.json")


def save_json(path: Path, record: object) -> None:
    """Write a JSON file whole or not at all, and wait until it is on disk."""
    try:
        write_whole(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise StakesError(f"{path} cannot be written ({error.strerror}); make room or choose another place") from error


def _parts(meta: Path) -> dict[str, Any]:
    """What stands beside a log, ``run`` among it; empty where nothing can be read."""
    try:
        then = json.loads(meta.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return then if isinstance(then, dict) else {}


def _only_labels(then: Mapping[str, Any], mark: Fingerprint) -> bool:
    parts = {key: value for key, value in then.items() if key != "run"}
    return parts != mark.parts and {**parts, **LABELS} == {**mark.parts, **LABELS}


def _retiered(outcomes: Sequence[Outcome], then: Mapping[str, Any], mark: Fingerprint) -> list[Outcome] | None:
    """The same answers with the labels of now; None where they are not all of one run that differs in these alone."""
    if not _only_labels(then, mark) or any(o.run != then["run"] or o.sample not in mark.tiers for o in outcomes):
        return None
    return [
        replace(outcome, tier=mark.tiers[outcome.sample], document=mark.documents[outcome.sample], run=mark.run)
        for outcome in outcomes
    ]


def _difference(log: Path, run: str, mark: Fingerprint, elsewhere: str) -> str:
    """What the log holds instead, in words first; digests tell nobody anything and are left out."""
    meta = beside(log, "meta")
    then = _parts(meta)
    if then.pop("run", None) != run:
        return (
            f"{log} belongs to another experiment: its outcomes are of run {run:.12}, this is {mark.run:.12} (what "
            f"differs is not known without {meta.name}); {elsewhere}, or delete it"
        )
    keys = [key for key in {**then, **mark.parts} if then.get(key) != mark.parts.get(key)]
    told = [
        f"{key} was {then.get(key)!s:.40} and is {mark.parts.get(key)!s:.40}"
        for key in keys
        if key not in (*DATA, "tiers")
    ]
    also = f" ({', '.join(told[:3])})" if told else ""
    if "samples" in keys or "questions" in keys:
        held, here = then.get("samples"), mark.parts["samples"]
        return f"{log} holds answers to {held} other questions than these {here}{also}; {elsewhere}, or delete it"
    if data := [key for key in DATA if key in keys]:
        return (
            f"{log} holds answers to these questions with other {' and '.join(data)}{also}; {elsewhere}, or delete it"
        )
    return f"{log} belongs to another experiment: {', '.join(told[:3])}; {elsewhere}, or the same things again"


def name_of(value: object) -> str:
    """A short name of anything that JSON can write: the same for the same, whatever the order of its keys."""
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=dict)
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()
