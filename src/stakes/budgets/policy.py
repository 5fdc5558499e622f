"""The calibrated file that the gateway serves from: tiers, costs, curves, budgets, and how a question finds its tier.

    policy = Policy.load("policy.json")
    decision = policy.decide("What is the invoice total?")
    decision.tier, decision.budget, decision.why      # 'high', 576, 'keyword "total"'

One JSON file, no timestamps, written atomically; two policies are the same when tiers and budgets are equal.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from stakes.budgets.curve import MOST_TOKENS, Curve
from stakes.budgets.per_request import SoftPlan, above
from stakes.errors import BadInput
from stakes.evaluation.items import Asked
from stakes.files import write_whole
from stakes.signals import KeywordRule, Signal, from_dict, to_dict

SCHEMA: Literal[1] = 1
"""Of any budget: far beyond every image, and far below what arithmetic overflows at."""
Digest = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]


class CurveRecord(BaseModel):
    """A curve as it stands in the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    budgets: tuple[Annotated[int, Field(le=MOST_TOKENS)], ...]
    errors: tuple[float, ...]
    counts: tuple[Annotated[int, Field(le=MOST_TOKENS)], ...]

    @model_validator(mode="after")
    def _valid(self) -> Self:
        self.curve()
        return self

    def curve(self) -> Curve:
        """The curve itself; raises BadInput where it is not one."""
        return Curve(self.budgets, self.errors, self.counts)

    @classmethod
    def of(cls, curve: Curve) -> Self:
        """The record of a curve."""
        return cls(budgets=curve.budgets, errors=curve.errors, counts=curve.counts)


class TierPlan(BaseModel):
    """What the policy knows of one tier: its error cost, its budget, its measured curve, and what was made of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    cost: float = Field(gt=0, allow_inf_nan=False)
    budget: int = Field(ge=1, le=MOST_TOKENS)
    curve: CurveRecord | None = None
    fitted: CurveRecord | None = None  # the estimator's, where that is not the measured one itself
    disagreement: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    """How often its answers differ from those at full budget, at most (``conditions.disagreements``)."""


@dataclass(frozen=True)
class Decision:
    """What one question gets, and why."""

    tier: str
    budget: int
    cost: float
    probability: float
    why: str


class Policy(BaseModel):
    """Budgets by tier with everything needed to apply and to audit them."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    schema_version: Literal[1] = Field(default=SCHEMA, alias="schema")
    family: str = "qwen2.5-vl"
    mechanism: Literal["resolution", "deletion"] = "resolution"
    selector: str | None = None  # which tokens deletion keeps; files from before it was written have none
    basis: Literal["answers", "legibility"] = "answers"  # legibility: what can be read, not a VLM's error
    mean_budget: int = Field(ge=1, le=MOST_TOKENS)
    floor: int = Field(default=1, ge=1, le=MOST_TOKENS)
    burst: int | None = Field(default=None, ge=0, le=MOST_TOKENS)
    tiers: dict[str, TierPlan] = Field(min_length=1)
    signal: dict[str, Any] = Field(default_factory=lambda: to_dict(KeywordRule()))
    estimator: str = "raw"
    certificate: dict[str, Any] | None = None
    soft: SoftPlan | None = None  # budgets by expected cost at a price, and not by tier
    fingerprint: str = ""
    documents: tuple[Digest, ...] | None = None  # what it was calibrated on (``seen``); older files do not say
    _reader: Signal | None = PrivateAttr(default=None)
    _curves: dict[str, Curve] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, plan in self.tiers.items():
            if plan.budget < self.floor:
                raise BadInput(f"tier {name!r} has budget {plan.budget}, below the floor of {self.floor}")
        if self.selector is not None and self.mechanism != "deletion":
            raise BadInput(f"selector {self.selector!r} says which tokens deletion keeps; this is a resolution policy")
        if self.soft is not None:
            drawn = {name: plan.fitted or plan.curve for name, plan in self.tiers.items()}
            self._curves = {name: above(record.curve(), self.floor) for name, record in drawn.items() if record}
            if len({curve.budgets for curve in self._curves.values()}) != 1 or len(self._curves) != len(self.tiers):
                raise BadInput("soft stakes need every tier's curve, all on the same budgets")
        # A policy whose signal cannot be built is refused now, not at the first request. A judge's endpoint is never
        # kept in a file, so whoever serves such a policy brings the judge (`use`).
        if self.signal.get("kind") != "judge":
            self.use(from_dict(self.signal))
        return self

    @property
    def costs(self) -> dict[str, float]:
        """What a mistake costs, by tier."""
        return {name: plan.cost for name, plan in self.tiers.items()}

    def use(self, signal: Signal) -> None:
        """Read tiers with this signal; every tier that it can name must be one of the policy's."""
        for tier in signal.tiers:
            if tier not in self.tiers:
                raise BadInput(
                    f"the signal can answer tier {tier!r}, which this policy does not have; "
                    f"its tiers are {', '.join(self.tiers)}"
                )
        self._reader = signal

    def decide(self, question: str, task: str | None = None, cost: float | None = None, about: str = "") -> Decision:
        """The tier of a question, its budget and the reason; an undecided signal gives the dearest tier.

        With soft stakes the budget follows the expected cost, or ``cost`` where the caller knows what a mistake costs;
        where two budgets tie, question and ``about`` settle it: give the image's digest, or any name of what is asked
        about, because without one everybody who asks the same gets the same, and the total is missed.
        """
        if self._reader is None:
            raise BadInput("this policy reads its tiers from a judge, whose endpoint no file keeps; give it with use()")
        if self.soft is not None:
            reading, weights = self.soft.weights(self._reader, self.costs, question, task, cost)
            budget, expected = self.soft.budget(self._curves, weights, question, about), sum(weights.values())
            why = f"{reading.why}; expected cost {expected:.3g} at {self.soft.price:.3g} a token"
            return Decision(reading.tier, budget, expected, reading.probability, why)
        if cost is not None:
            raise BadInput("only a policy with soft stakes can use a told cost; calibrate with --soft")
        reading = self._reader(question, task)
        plan = self.tiers[reading.tier]
        return Decision(reading.tier, plan.budget, plan.cost, reading.probability, reading.why)

    @property
    def budgets(self) -> dict[str, int]:
        """Budget by tier."""
        return {name: plan.budget for name, plan in self.tiers.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and (self.budgets, self.soft) == (other.budgets, other.soft)

    def __hash__(self) -> int:
        return hash(frozenset(self.budgets.items()))

    def save(self, path: str | Path) -> None:
        """Write the file whole or not at all: a reader never sees half a policy."""
        left_out = {name for name in ("soft", "documents") if getattr(self, name) is None}
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
        if record["schema"] != SCHEMA:
            raise BadInput(f"{source} has schema {record.get('schema')!r}; this version of stakes reads {SCHEMA}")
        try:
            return cls.model_validate(dict(record))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "policy"
            raise BadInput(f"{source}: {where}: {first['msg'].removeprefix('Value error, ')}") from None


# Has the policy seen these documents? Short digests in its file tell, and give no name away.
#
# A policy flatters itself on what it was calibrated on, and the log of a calibration is often elsewhere by the time
# that
# somebody evaluates. So the policy keeps, for every document and every image that it was calibrated on, twelve hex
# digits
# of a digest, sorted; whoever has a document can look whether it is among them, and nobody can read a name back.
# Images
# count too, because one page may go by another document's name in another file. Two sets of 1,000 documents that share
# nothing are taken for overlapping with a chance of about 1.4e-8.
#
#     policy.documents                                   # ('00a3…', '01f7…', …), None in files from before it was kept
#     unseen(policy, documents=["invoice-17"])           # True: held out; False: calibrated on it; None: not known


DIGITS = 12


def digests(names: Iterable[str]) -> set[str]:
    """Short digests of names; an image's name is its own digest."""
    return {
        hashlib.blake2b(name.encode("utf-8", "backslashreplace"), digest_size=DIGITS // 2).hexdigest() for name in names
    }


def seen_by(asked: Iterable[Asked]) -> tuple[str, ...]:
    """What a policy calibrated on these keeps."""
    return tuple(
        sorted(digests(name for one in asked for name in (one.named or one.document, one.document, one.digest)))
    )


def unseen(
    policy: Policy, documents: Collection[str], images: Collection[str] = (), calibrated_on: Collection[str] = ()
) -> bool | None:
    """Whether all of these are held out; None where neither the policy nor the caller says what was calibrated on.

    ``images``: digests of the image files, where they are known. ``calibrated_on``: names of documents that the policy
    has seen, for a policy that does not keep them itself.
    """
    if not set(documents).isdisjoint(calibrated_on):
        return False
    if policy.documents is not None:
        return digests([*documents, *images]).isdisjoint(policy.documents)
    return True if calibrated_on else None
