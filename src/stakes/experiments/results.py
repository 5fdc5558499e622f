"""The results file of ``stakes reproduce paper``: every table, and the samples and answers from which they follow.

The file has a schema (``PaperResults``) and holds no text or image of a data set. A sample is its id, tier, size,
density, image number and document. An answer is its budget, its realised tokens where they differ, and under which of
``METRICS`` it was right, as a sum: 1 relaxed, 2 exact, 4 ANLS.

    "docvqa_val_3040": "high 756x1008 0.6127 0 xfjv0228_3"
    "docvqa_val_3040": "96:0 304:5 512:7"            by resolution "304/300:7"

So the tables can be computed again without the model and the data (``replay``).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import model_digest
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.runner import Key
from stakes.models.identity import family_of, native_tokens

if TYPE_CHECKING:
    from stakes.experiments.study import Study

SCHEMA = 1
METRICS = ("relaxed", "exact", "anls")
PAPER = (
    "within-task", "cross-task", "frontier", "curves", "cross-dataset", "invariance", "models", "mixed", "metrics",
    "diagnostics", "proportional", "labels", "latency",
)  # fmt: skip
"""The tables of the paper, in the order in which they are measured."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class AnsweringModel(_Part):
    """A model: its family, the digest of weights and settings, and native tokens by size where deletion counts them."""

    family: str
    digest: str
    native: dict[str, int] = {}
    """By ``widthxheight``, where the checkpoint's own bounds count otherwise than the family's."""


class SampleSet(_Part):
    """Samples of one draw, by id; ``rows``: which rows of the benchmark were scanned, if it is one."""

    rows: dict[str, Any] | None
    samples: dict[str, str]


class TableRecord(_Part):
    """One table as ``stakes reproduce`` makes it."""

    name: str
    title: str
    columns: list[str]
    rows: list[list[str | int | float | None]]
    findings: list[str]
    meta: dict[str, Any]


class PaperResults(_Part):
    """The whole file."""

    version: Literal[1] = Field(1, alias="schema")
    command: str
    model: str
    others: dict[str, str]
    limit: int | None
    versions: dict[str, str]
    models: dict[str, AnsweringModel]
    tables: dict[str, TableRecord]
    left_out: dict[str, str]
    samples: dict[str, SampleSet]
    answers: dict[str, dict[str, str]]

    @classmethod
    def load(cls, path: Path) -> "PaperResults":
        """The results in a file; one sentence says what is wrong with another file."""
        try:
            return cls.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise BadInput(f"there is no file {path}; check the path") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise BadInput(f"{path} is not a results file of schema {SCHEMA}: {where}: {first['msg']}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise BadInput(f"{path} cannot be read as JSON ({error})") from None

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return self.model_dump(by_alias=True)


@dataclass
class Recording:
    """Collects samples and answers while tables are measured."""

    answers: dict[str, dict[str, dict[int, str]]] = field(default_factory=dict)
    models: dict[str, AnsweringModel] = field(default_factory=dict)
    densities: dict[str, float] = field(default_factory=dict)
    drawn: dict[str, tuple[list[Sample], dict[str, Any] | None]] = field(default_factory=dict)

    def add_samples(self, name: str, samples: list[Sample], rows: dict[str, Any] | None) -> None:
        """The samples of a draw; a second time they are the same."""
        self.drawn[name] = samples, rows

    def add_answers(self, log: str, study: "Study", samples: Sequence[Sample], outcomes: Mapping[Key, Outcome]) -> None:
        """The answers of one log, by a study's model."""
        by_id, held = {sample.id: sample for sample in samples}, self.answers.setdefault(log, {})
        for (name, budget), outcome in outcomes.items():
            if budget not in (kept := held.setdefault(name, {})):
                kept[budget] = _format_answer(study, outcome, by_id[name])
        if study.name not in self.models:
            self.models[study.name] = AnsweringModel(family=family_of(study.model), digest=model_digest(study.model))
        native = self.models[study.name].native
        for sample in samples:
            size = "{}x{}".format(*sample.size)
            if size not in native:
                native[size] = native_tokens(study.model, *sample.size, "deletion")

    def parts(self) -> dict[str, Any]:
        """The file's ``samples``, ``answers`` and ``models``."""
        images: dict[str, int] = {}
        sets = {}
        for name, (samples, rows) in self.drawn.items():
            lines = {}
            for sample in samples:
                number = images.setdefault(sample.digest, len(images))
                size, density = "{}x{}".format(*sample.size), self.densities.get(sample.digest, "-")
                lines[sample.id] = f"{sample.tier} {size} {density} {number} {sample.document}"
            sets[name] = SampleSet(rows=rows, samples=lines)
        answers = {
            log: {name: " ".join(kept[budget] for budget in sorted(kept)) for name, kept in held.items()}
            for log, held in self.answers.items()
        }
        return {"samples": sets, "answers": answers, "models": self.models}


def _format_answer(study: "Study", outcome: Outcome, sample: Sample) -> str:
    spent = "" if outcome.realised == outcome.budget else f"/{outcome.realised}"
    right = sum(2**i for i, metric in enumerate(METRICS) if study.regrade(outcome, sample, metric).correct)
    return f"{outcome.budget}{spent}:{right}"


def parse_answers(text: str) -> Iterator[tuple[int, int, int]]:
    """(budget, realised tokens, right under which metrics) of each answer.

    >>> list(parse_answers("96:0 304/300:5"))
    [(96, 96, 0), (304, 300, 5)]
    """
    for word in text.split():
        tokens, _, right = word.partition(":")
        budget, _, spent = tokens.partition("/")
        yield int(budget), int(spent or budget), int(right)
