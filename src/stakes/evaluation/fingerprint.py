"""Fingerprint an experiment: what a log's outcomes depend on, as readable parts and as one digest.

Every outcome carries the digest in ``run``. The parts stand beside the log in ``LOG.meta.json``, so that a refusal can
name the difference. Budgets are not part of it: a grid may grow, and existing answers are kept.

    fingerprint = fingerprint_of(samples, model, Setting("deletion", "redundancy"))
    fingerprint.run                                    # '0f3c…', 32 hex digits
    resumable_outcomes(Path("log.jsonl"), fingerprint) # those in the log, or BadInput: another model, other images, …

No answer depends on its question's tier or on the name of its document. A log that differs in these alone is accepted
with the current tiers and documents; ``relabel`` writes them into the log before the run goes on.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stakes.data.sample import Sample
from stakes.errors import BadInput, StakesError
from stakes.evaluation.grading import DEFAULT_METRIC, METRICS
from stakes.evaluation.outcome_log import Outcome, OutcomeLog, read_outcomes
from stakes.files import write_whole
from stakes.models.base import DEFAULT_SELECTOR, SUFFIX, Mechanism
from stakes.models.identity import identity

SCHEMA = 1  # increase it when grading or answering changes what an old log would say
OTHER_LOG = "give --log another name"  # an option of calibrate and of evaluate
DATA = ("samples", "questions", "answers", "documents", "images")
LABELS = {"tiers": "", "documents": ""}  # no answer depends on these
IN_WORDS = {
    "model.weights": "other weights of the model",
    "model.prompt": "another prompt template",
    "model.pixels": "other image processing",
    "model.words": "another vocabulary",
    "model.decoding": "other settings of decoding",
    "selector.source": "another source of the selector",
}
"""Parts that are stored as digests, which mean nothing to a person."""
_DIGEST = re.compile("[0-9a-f]{12}")


@dataclass(frozen=True)
class Setting:
    """How budgets are realised and answers graded; ``selector`` is a name with options, for deletion only.

    ``zero_mask``: a control in place of deletion, in which the other tokens stay in the sequence as zero vectors.
    """

    mechanism: Mechanism = "resolution"
    selector: str | None = None
    metric: str = DEFAULT_METRIC
    zero_mask: bool = False

    def __post_init__(self) -> None:
        if self.mechanism not in ("resolution", "deletion"):
            raise BadInput(f"the mechanism is resolution or deletion, not {self.mechanism!r}")
        if self.metric not in METRICS:
            raise BadInput(f"unknown metric {self.metric!r}; choose one of {', '.join(METRICS)}")
        if self.mechanism == "resolution" and self.selector is not None:
            raise BadInput("a selector says which tokens deletion keeps; give the mechanism deletion with it")
        if self.mechanism == "deletion":
            from stakes.vision.selectors import make, split

            object.__setattr__(self, "selector", self.selector or DEFAULT_SELECTOR)
            split(str(self.selector))  # refuses an unknown name
            if str(self.selector) != DEFAULT_SELECTOR:  # class and options are checked now, not at the first answer
                with suppress(ImportError):  # without torch, loading the model says what to install
                    make(str(self.selector))

    @property
    def requested(self) -> Mechanism:
        """The mechanism of each request."""
        return "zero-mask" if self.zero_mask else self.mechanism


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
        """The digest of all parts."""
        return json_digest(self.parts)

    @property
    def data(self) -> str:
        """The digest of the samples, whatever their tiers and the model."""
        return json_digest({key: self.parts[key] for key in DATA})[:16]

    @property
    def model(self) -> str:
        """The digest of the model."""
        return _model_digest(self.parts)

    @property
    def plugin(self) -> str:
        """The digest of the package and source of a selector that does not ship with stakes; else empty."""
        parts = {key: value for key, value in self.parts.items() if key.startswith("selector.")}
        return json_digest(parts)[:16] if parts else ""

    def __str__(self) -> str:
        plugin = f" plugin:{self.plugin}" if self.plugin else ""
        return f"data:{self.data} model:{self.model}{plugin} run:{self.run}"


def model_digest(model: Any) -> str:
    """The digest of a model as in ``Fingerprint.model``, before anything is asked."""
    return _model_digest({f"model.{key}": value for key, value in identity(model).items()})


def _model_digest(parts: Mapping[str, str]) -> str:
    return json_digest({key: value for key, value in parts.items() if key.startswith("model.")})[:16]


def fingerprint_of(samples: Sequence[Sample], model: Any, setting: Setting) -> Fingerprint:
    """The fingerprint of these samples answered by this model; the order of the samples is part of it."""
    columns = {
        "questions": [(sample.id, sample.asked) for sample in samples],
        "answers": [sample.answers for sample in samples],
        "documents": [sample.document for sample in samples],
        "images": [sample.digest for sample in samples],
        "tiers": [sample.tier for sample in samples],
    }
    return Fingerprint(
        {
            "schema": str(SCHEMA),
            "samples": str(len(samples)),
            **{key: json_digest(column)[:16] for key, column in columns.items()},
            **{f"model.{key}": value for key, value in identity(model).items()},
            "mechanism": setting.requested,
            "selector": str(setting.selector),
            **{f"selector.{key}": value for key, value in _plugin(setting).items()},
            "metric": setting.metric,
            "suffix": SUFFIX,
        },
        {sample.id: sample.tier for sample in samples},
        {sample.id: sample.document for sample in samples},
    )


def _plugin(setting: Setting) -> dict[str, str]:
    """Package and source of a selector that does not ship with stakes."""
    from stakes.vision.selectors import plugin_identity

    return plugin_identity(setting.selector) if setting.selector is not None else {}


def resumable_outcomes(log: Path, fingerprint: Fingerprint, other_log: str = OTHER_LOG) -> list[Outcome]:
    """The outcomes that a log already holds of this experiment; a new or empty log gets this fingerprint.

    ``other_log``: the error's advice on how to choose another log, in the caller's options.
    """
    outcomes = read_outcomes(log) if log.exists() else []
    meta = sidecar(log, "meta")
    other_run = next((outcome.run for outcome in outcomes if outcome.run != fingerprint.run), None)
    if other_run is not None:
        if (current := _relabeled(outcomes, _read_meta(meta), fingerprint)) is None:
            raise BadInput(_describe_difference(log, other_run, fingerprint, other_log))
        return current  # the log itself keeps its old labels, so its meta file stays as it is
    save_json(meta, {"run": fingerprint.run, **fingerprint.parts})
    return outcomes


def relabel(log: Path, fingerprint: Fingerprint) -> int:
    """Write current tiers and documents into a log that differs in nothing else; returns how many tiers change."""
    before = _read_meta(sidecar(log, "meta"))
    if not log.exists() or not _differs_in_labels_only(before, fingerprint):
        return 0
    with OutcomeLog(log):  # locked, so no other process writes it meanwhile
        outcomes = read_outcomes(log)
        if (current := _relabeled(outcomes, before, fingerprint)) is None:
            return 0
        text = "".join(json.dumps(outcome.record(), ensure_ascii=False) + "\n" for outcome in current)
        try:
            write_whole(log, text)
        except OSError as error:
            raise StakesError(f"{log} cannot be written ({error.strerror}); free some space and start again") from error
        save_json(sidecar(log, "meta"), {"run": fingerprint.run, **fingerprint.parts})
    return len({old.sample for old, new in zip(outcomes, current, strict=True) if old.tier != new.tier})


def sidecar(log: Path, kind: str) -> Path:
    """The file of this kind beside a log: ``log.jsonl.meta.json``."""
    return log.with_name(f"{log.name}.{kind}.json")


def save_json(path: Path, record: object) -> None:
    """Write a JSON file whole or not at all, and wait until it is on disk."""
    try:
        write_whole(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise StakesError(
            f"{path} cannot be written ({error.strerror}); free some space or choose another path"
        ) from error


def _read_meta(meta: Path) -> dict[str, Any]:
    """The parts beside a log, ``run`` among them; empty where nothing can be read."""
    try:
        parts = json.loads(meta.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return parts if isinstance(parts, dict) else {}


def _differs_in_labels_only(before: Mapping[str, Any], fingerprint: Fingerprint) -> bool:
    parts = {key: value for key, value in before.items() if key != "run"}
    return parts != fingerprint.parts and {**parts, **LABELS} == {**fingerprint.parts, **LABELS}


def _relabeled(
    outcomes: Sequence[Outcome], before: Mapping[str, Any], fingerprint: Fingerprint
) -> list[Outcome] | None:
    """The same answers with current labels; None where they are not all of one run that differs in labels alone."""
    if not _differs_in_labels_only(before, fingerprint):
        return None
    tiers, documents = fingerprint.tiers, fingerprint.documents
    if any(outcome.run != before["run"] or outcome.sample not in tiers for outcome in outcomes):
        return None
    return [
        replace(outcome, tier=tiers[outcome.sample], document=documents[outcome.sample], run=fingerprint.run)
        for outcome in outcomes
    ]


def _describe_difference(log: Path, run: str, fingerprint: Fingerprint, other_log: str) -> str:
    """What the log holds instead, in words; digests mean nothing to a person and are left out."""
    meta = sidecar(log, "meta")
    before, now = _read_meta(meta), fingerprint.parts
    if before.pop("run", None) != run:
        return (
            f"{log} belongs to another experiment (what differs is not known without {meta.name}, which is missing or "
            f"another run's); {other_log}, or delete it"
        )
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    settings = [(key, before.get(key), now.get(key)) for key in keys if key not in (*DATA, "tiers")]
    settings.sort(key=lambda one: _is_digest(*one[1:]))  # what can be read comes first
    changes = ", ".join(_describe_change(*one) for one in settings[:3])
    also = f" ({changes})" if changes else ""
    if "samples" in keys or "questions" in keys:
        held, here = before.get("samples"), now["samples"]
        return f"{log} holds answers to {held} other questions than these {here}{also}; {other_log}, or delete it"
    if data := [key for key in DATA if key in keys]:
        hint = ", or with whole images where margins are cut off now (--no-trim)" if data == ["images"] else ""
        what = f"{log} holds answers to these questions with other {' and '.join(data)}{hint}"
        return f"{what}{also}; {other_log}, or delete it"
    return f"{log} belongs to another experiment: {changes}; {other_log}, or restore the earlier setting"


def _describe_change(key: str, before: object, now: object) -> str:
    if _is_digest(before, now):
        return IN_WORDS.get(key, f"another {key}")
    was, is_now = ("not set" if value is None else f"{value!s:.40}" for value in (before, now))
    return f"{key} was {was} and is {is_now}"


def _is_digest(*values: object) -> bool:
    return any(_DIGEST.search(str(value)) for value in values)


def json_digest(value: object) -> str:
    """A digest of anything that JSON can write; the order of keys does not matter."""
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=dict)
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()
