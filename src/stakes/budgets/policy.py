"""The policy: the calibrated file that the gateway serves from, with tiers, costs, curves, budgets and the signal.

    policy = Policy.load("policy.json")
    decision = policy.decide("What is the invoice total?")
    decision.tier, decision.budget, decision.why      # 'high', 576, 'keyword "total"'

One JSON file without timestamps, written atomically. Two policies are equal when their tiers and budgets are.

A policy looks better than it is on what it was calibrated on. So its file holds, for every document and image of its
calibration, twelve hex digits of a digest, sorted: whoever has a document can check whether it is among them, and
nobody can read a name back. Images count too, because one page may go by another document's name in another file. Two
sets of 1,000 documents that share nothing are taken for overlapping with a probability of about 1.4e-8.

    policy.documents                                 # ('00a3…', '01f7…', …), None in files that do not have them
    is_held_out(policy, documents=["invoice-17"])    # True: held out; False: calibrated on it; None: not known
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from stakes.budgets.curve import MOST_TOKENS, Curve, above_floor
from stakes.budgets.per_request import PerRequestPlan
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.files import write_whole
from stakes.signals import KeywordRule, Prompt, Signal, from_dict, to_dict
from stakes.signals.prompt import text_of
from stakes.signals.serialize import must_be_given

SCHEMA: Literal[1] = 1
DIGITS = 12
Digest = Annotated[str, Field(pattern=f"^[0-9a-f]{{{DIGITS}}}$")]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]


class TierPlan(BaseModel):
    """One tier of a policy: its error cost, its budget, its measured curve and the estimator's."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    cost: float = Field(gt=0, allow_inf_nan=False)
    budget: Tokens
    curve: Curve | None = None
    fitted: Curve | None = None  # the estimator's curve, where it differs from the measured one
    disagreement: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    """An upper bound on how often its answers differ from those at full budget."""
    expected_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The mean cost of a mistake by label, over the calibration's questions read as this tier; None: ``cost``."""

    @property
    def chosen_at(self) -> float:
        """The cost that the budget was chosen at: of a question read as this tier."""
        return self.cost if self.expected_cost is None else self.expected_cost

    @property
    def chosen_on(self) -> Curve | None:
        """The curve that the budget was chosen on: the estimator's, else the measured one."""
        return self.fitted or self.curve


@dataclass(frozen=True)
class Decision:
    """The tier and budget of one question, and why."""

    tier: str
    budget: int
    cost: float
    probability: float
    why: str
    decided: bool = True


class Policy(BaseModel):
    """Budgets by tier with everything needed to apply and to audit them."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    schema_version: Literal[1] = Field(default=SCHEMA, alias="schema")
    family: str = "qwen2.5-vl"
    mechanism: Literal["resolution", "deletion"] = "resolution"
    selector: str | None = None  # which tokens deletion keeps; None in older files
    basis: Literal["answers", "legibility"] = "answers"  # legibility: what can be read, not a VLM's error
    mean_budget: Tokens
    floor: Tokens = 1
    burst: int | None = Field(default=None, ge=0, le=MOST_TOKENS)
    tiers: dict[str, TierPlan] = Field(min_length=1)
    signal: dict[str, Any] = Field(default_factory=lambda: to_dict(KeywordRule()))
    estimator: str = "raw"
    certificate: dict[str, Any] | None = None
    per_request: PerRequestPlan | None = Field(default=None, alias="soft")  # budgets by expected cost, not by tier
    fingerprint: str = ""
    documents: tuple[Digest, ...] | None = None  # digests of what it was calibrated on; None in older files
    _reader: Signal | None = PrivateAttr(default=None)
    _own_reader: Signal | None = PrivateAttr(default=None)
    _curves: dict[str, Curve] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, plan in self.tiers.items():
            if plan.budget < self.floor:
                raise BadInput(f"tier {name!r} has budget {plan.budget}, below the floor of {self.floor}")
        if self.selector is not None and self.mechanism != "deletion":
            raise BadInput(f"selector {self.selector!r} says which tokens deletion keeps; this is a resolution policy")
        if self.per_request is not None:
            drawn = {name: curve for name, plan in self.tiers.items() if (curve := plan.chosen_on)}
            self._curves = above_floor(drawn, self.floor)
            if len({curve.budgets for curve in self._curves.values()}) != 1 or len(drawn) != len(self.tiers):
                raise BadInput("per-request costs need every tier's curve, all on the same budgets")
        # A policy whose signal cannot be built is refused now, not at the first request. The endpoint of a judge is
        # never stored in a file, so whoever serves such a policy supplies the judge (``use``).
        if not must_be_given(self.signal):
            self.use(from_dict(self.signal))
            self._own_reader = self._reader
        return self

    @property
    def costs(self) -> dict[str, float]:
        """The cost of a mistake, by tier."""
        return {name: plan.cost for name, plan in self.tiers.items()}

    @property
    def reader(self) -> Signal:
        """The signal that reads tiers."""
        if self._reader is None:
            raise BadInput(
                f"this policy reads its tiers by a {self.signal.get('kind')}, which is in no file; give it with use()"
            )
        return self._reader

    @property
    def reads_otherwise(self) -> bool:
        """Whether another signal than the policy's own reads tiers (``use``)."""
        return self._own_reader is not None and self._reader is not self._own_reader

    def use(self, signal: Signal) -> None:
        """Read tiers with this signal; every tier that it can name must be one of the policy's."""
        for tier in signal.tiers:
            if tier not in self.tiers:
                raise BadInput(
                    f"the signal can answer tier {tier!r}, which this policy does not have; "
                    f"its tiers are {', '.join(self.tiers)}"
                )
        self._reader = signal

    def decide(
        self, prompt: str | Prompt, task: str | None = None, cost: float | None = None, about: str = ""
    ) -> Decision:
        """The tier of a request, its budget and the reason; an undecided signal gives the most expensive tier.

        With per-request costs the budget follows the expected cost, or ``cost`` where the caller knows what a mistake
        costs. Where two budgets tie, question and ``about`` decide: give the digest of the image, or any name of what
        is asked about. Without one, everybody who asks the same question gets the same budget, and the total is missed.
        """
        if self.per_request is not None:
            reading, weights = self.per_request.weights(self.reader, self.costs, prompt, task, cost)
            budget = self.per_request.budget(self._curves, weights, text_of(prompt), about)
            expected = sum(weights.values())
            why = f"{reading.why}; expected cost {expected:.3g} at {self.per_request.price:.3g} a token"
            return Decision(reading.tier, budget, expected, reading.probability, why, reading.decided)
        if cost is not None:
            raise BadInput("a request's own cost needs a policy with per-request costs; calibrate with --per-request")
        reading = self.reader(prompt, task)
        plan = self.tiers[reading.tier]
        return Decision(reading.tier, plan.budget, plan.cost, reading.probability, reading.why, reading.decided)

    @property
    def budgets(self) -> dict[str, int]:
        """Budget by tier."""
        return {name: plan.budget for name, plan in self.tiers.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and (self.budgets, self.per_request) == (other.budgets, other.per_request)

    def __hash__(self) -> int:
        return hash(frozenset(self.budgets.items()))

    def save(self, path: str | Path) -> None:
        """Write the file whole or not at all: a reader never sees half a policy."""
        left_out: dict[str, Any] = {name: True for name in ("per_request", "documents") if getattr(self, name) is None}
        left_out["tiers"] = {name: {"expected_cost"} for name, plan in self.tiers.items() if plan.expected_cost is None}
        text = json.dumps(self.model_dump(by_alias=True, exclude=left_out), indent=1, ensure_ascii=False) + "\n"
        write_whole(Path(path), text)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read and check a policy file."""
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BadInput(f"there is no policy file {path}; make one with `stakes calibrate`") from None
        except (OSError, ValueError, RecursionError) as error:
            raise BadInput(f"{path} is not a policy file ({error})") from None
        return cls.from_record(record, str(path))

    @classmethod
    def from_record(cls, record: object, source: str = "the policy") -> Self:
        """Check a policy already read from JSON; errors name the field."""
        if not isinstance(record, Mapping):
            raise BadInput(f"{source} is not a policy: it holds a {type(record).__name__}, not an object")
        if "schema" not in record:
            raise BadInput(f"{source} is not a policy file: it has no schema; stakes calibrate writes one")
        if record["schema"] != SCHEMA or isinstance(record["schema"], bool):  # True equals 1
            raise BadInput(f"{source} has schema {record.get('schema')!r}; this version of stakes reads {SCHEMA}")
        try:
            return cls.model_validate(dict(record))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "policy"
            raise BadInput(f"{source}: {where}: {first['msg'].removeprefix('Value error, ')}") from None


def sealed(policy: Policy) -> Policy:
    """The policy with digests of all that its certificate rests on in the certificate; unchanged without one."""
    if policy.certificate is None:
        return policy
    return policy.model_copy(update={"certificate": {**policy.certificate, "digest": _part_digests(policy)}})


def edited_parts(policy: Policy) -> list[str]:
    """What was changed since the certificate was made, such as ``costs``; of an old one, budgets only are compared."""
    certificate = policy.certificate or {}
    if isinstance(before := certificate.get("digest"), Mapping):
        edited = {name for name, digest in _part_digests(policy).items() if before.get(name) != digest}
    else:
        edited = set() if certificate.get("budgets") == policy.budgets else {"budgets"}
    return sorted(edited | ({"signal"} if policy.reads_otherwise else set()))


def _part_digests(policy: Policy) -> dict[str, str]:
    """A digest of each part that a certificate rests on."""
    certificate, tiers = policy.certificate or {}, policy.tiers.items()
    parts = {
        "budgets": [policy.budgets, certificate.get("budgets"), policy.floor],
        "costs": {name: [plan.cost, plan.expected_cost] for name, plan in tiers},
        "mean": policy.mean_budget,
        "signal": policy.signal,
        "confidence": certificate.get("confidence"),
        "curves": {name: plan.model_dump(include={"curve", "fitted"}) for name, plan in tiers},
        "bounds": {key: value for key, value in certificate.items() if key not in ("digest", "confidence", "budgets")},
        "setting": [policy.family, policy.mechanism, policy.selector, policy.basis],
    }
    texts = {name: json.dumps(part, sort_keys=True, default=str) for name, part in parts.items()}
    return {name: hashlib.blake2b(text.encode(), digest_size=8).hexdigest() for name, text in texts.items()}


def document_digests(names: Iterable[str]) -> set[str]:
    """Short digests of names of documents and images; an image's name is its own digest."""
    encoded = [name.encode("utf-8", "backslashreplace") for name in names]
    return {hashlib.blake2b(name, digest_size=DIGITS // 2).hexdigest() for name in encoded}


def calibration_digests(samples: Iterable[Sample]) -> tuple[str, ...]:
    """The digests that a policy calibrated on these samples stores."""
    names = [name for one in samples for name in (one.named or one.document, one.document, one.digest)]
    return tuple(sorted(document_digests(names)))


def is_held_out(
    policy: Policy, documents: Collection[str], images: Collection[str] = (), calibrated_on: Collection[str] = ()
) -> bool | None:
    """Whether the policy was calibrated on none of these; None where it is not known what it was calibrated on.

    ``images``: digests of the image files, where they are known. ``calibrated_on``: names of documents that the policy
    was calibrated on, for a policy that does not store them itself.
    """
    if not set(documents).isdisjoint(calibrated_on):
        return False
    if policy.documents is not None:
        return document_digests([*documents, *images]).isdisjoint(policy.documents)
    return True if calibrated_on else None
