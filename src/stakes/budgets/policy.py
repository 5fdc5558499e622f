"""The policy: the calibrated file that the gateway serves from, with tiers, costs, curves, budgets and the signal.

    policy = Policy.load("policy.json")
    decision = policy.decide("What is the invoice total?")
    decision.tier, decision.budget, decision.why      # 'high', 576, 'keyword "total"'

One JSON file without timestamps, written atomically. Two policies are equal when their tiers and options are. Files of
schema 1 load too: they lack what schema 2 has added.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator, model_validator

from stakes.budgets.curve import MOST_TOKENS, Curve, above_floor
from stakes.budgets.options.tier_plan import Decision, Share, TierOption, TierPlan, Tokens
from stakes.budgets.per_request import PerRequestPlan
from stakes.errors import BadInput
from stakes.files import write_whole
from stakes.models.base import Statistic
from stakes.models.identity import ModelName
from stakes.notebooks import PolicyView
from stakes.signals import KeywordRule, Prompt, Signal, from_dict, to_dict
from stakes.signals.named import PluginSignal
from stakes.signals.prompt import as_prompt, text_of
from stakes.signals.serialize import must_be_given
from stakes.tiers import at_ratio, expected_costs, own_ratio
from stakes.vision.geometry import family as named_family

__all__ = ["Decision", "Policy", "TierPlan"]
SCHEMA: Literal[2] = 2
READABLE = (1, 2)
DIGITS = 12
Digest = Annotated[str, Field(pattern=f"^[0-9a-f]{{{DIGITS}}}$")]


class Policy(PolicyView, BaseModel):
    """Budgets by tier with everything needed to apply and to audit them."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    schema_version: Literal[2] = Field(default=SCHEMA, alias="schema")
    model: ModelName | None = None
    """How the model of the calibration was named; None in files of schema 1 and for a model that was not loaded."""
    family: str = "qwen2.5-vl"
    mechanism: Literal["resolution", "deletion"] = "resolution"
    selector: str | None = None  # which tokens deletion keeps; None in older files
    basis: Literal["answers", "legibility"] = "answers"  # legibility: what can be read, not a VLM's error
    metric: str | None = None  # what answers were graded by; None in files of schema 1
    trim: bool | None = None
    """Whether the margins of its images were cut off, as a gateway then does too; None: they were not."""
    trim_above: Tokens | None = None  # the largest budget of that calibration; None in older files: of the tiers
    confidence: Statistic | None = None
    """The statistic of an answer that thresholds are about; None where there are no thresholds."""
    menu: tuple[Tokens, ...] | None = None
    """The entries of the engine's menu, ascending, where budgets are such entries; None where any budget can be."""
    mean_budget: Tokens
    floor: Tokens = 1
    burst: int | None = Field(default=None, ge=0, le=MOST_TOKENS)
    max_harm: dict[str, Share] | None = None
    """By tier, how much its error may rise over uniform at the same tokens; None: no limit."""
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

    @field_validator("family")
    @classmethod
    def _in_one_spelling(cls, family: str) -> str:
        return named_family(family).name if "=" in family else family  # its numbers in one order: equal digests

    @model_validator(mode="before")
    @classmethod
    def _from_schema_1(cls, record: Any) -> Any:
        if isinstance(record, Mapping) and record.get("schema") == 1 and record["schema"] is not True:
            return {**record, "schema": SCHEMA}  # what schema 2 adds is empty
        return record

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, plan in self.tiers.items():
            smallest = min(plan.budget, *plan.predictor.budgets[:1]) if plan.predictor else plan.budget
            if smallest < self.floor:
                raise BadInput(f"tier {name!r} has budget {smallest}, below the floor of {self.floor}")
            if unknown := set(plan.questions or ()) - set(self.tiers):
                raise BadInput(f"the questions of tier {name!r} name {min(unknown)!r}, which is no tier of this policy")
        for name in self.max_harm or {}:
            if name not in self.tiers:
                raise BadInput(
                    f"max_harm limits tier {name!r}, which this policy does not have; its tiers are "
                    f"{', '.join(self.tiers)}"
                )
        self._check_options()
        if self.selector is not None and self.mechanism != "deletion":
            raise BadInput(f"selector {self.selector!r} says which tokens deletion keeps; this is a resolution policy")
        if self.per_request is not None:
            if self.max_harm:
                raise BadInput("max_harm is about budgets by tier, and per-request costs have none; leave one out")
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

    def _check_options(self) -> None:
        """Refuse thresholds without a statistic, attempts that the engine cannot take, and two ways of choosing."""
        changing = [name for name, option in self.options.items() if not option.fixed]
        unsure = [name for name, option in self.options.items() if option.reads_confidence]
        if unsure and self.confidence is None:
            raise BadInput(
                f"tier {unsure[0]!r} has a threshold, but the policy does not name the confidence that it is about; "
                "calibrate again"
            )
        if changing and self.per_request is not None:
            raise BadInput("per-request costs give each request a budget, and tiers have no options then")
        for name, option in self.options.items():
            if option.predictor is not None and self.menu is not None:
                raise BadInput(f"tier {name!r} has a predicted budget, and the engine has a menu of budgets")
            if option.escalate is not None and self.menu is not None and option.escalate.to not in self.menu:
                raise BadInput(
                    f"tier {name!r} escalates to {option.escalate.to} tokens, which is no entry of the engine's menu; "
                    f"give one of {', '.join(map(str, self.menu))}"
                )

    @property
    def options(self) -> dict[str, TierOption]:
        """What each tier does."""
        return {name: plan.option for name, plan in self.tiers.items()}

    @property
    def fixed(self) -> bool:
        """Whether every tier has a budget and nothing else: no prediction, no second attempt and no review."""
        return all(option.fixed for option in self.options.values())

    @property
    def reads_confidence(self) -> bool:
        """Whether some tier has a threshold."""
        return any(option.reads_confidence for option in self.options.values())

    @property
    def costs(self) -> dict[str, float]:
        """The cost of a mistake, by tier."""
        return {name: plan.cost for name, plan in self.tiers.items()}

    @property
    def counts(self) -> dict[str, int]:
        """The calibration's questions by tier as read, of the tiers for which that is known."""
        drawn = {name: max(plan.curve.counts) for name, plan in self.tiers.items() if plan.curve is not None}
        return drawn | {name: sum(plan.questions.values()) for name, plan in self.tiers.items() if plan.questions}

    def costs_as_read(self, ratio: float | None = None) -> dict[str, float]:
        """By tier as read, the mean cost of a mistake by label: what budgets are chosen at.

        ``ratio``: at this ratio of the stated costs (``tiers.at_ratio``). Where labels and readings agree, or labels
        are not known, these are the stated costs.
        """
        if ratio is None or ratio == own_ratio(self.costs):
            return {name: plan.chosen_at for name, plan in self.tiers.items()}
        stated = at_ratio(self.costs, ratio)
        return expected_costs({name: plan.questions or {} for name, plan in self.tiers.items()}, stated)

    @property
    def origin(self) -> str:
        """Where its budgets come from, in words."""
        if self.fingerprint == "uncalibrated":
            return "chosen, not calibrated"
        model = "a model that it does not name" if self.model is None else str(self.model)
        return f"calibrated with {model}" + ("" if self.metric is None else f", graded by {self.metric}")

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
        """Whether another signal than the policy's own reads tiers (``use``), or a plugin that has changed."""
        if isinstance(self._reader, PluginSignal) and self.signal.get("kind") == "plugin":
            return not self._reader.is_recorded_in(self.signal)
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
        trim = self.trims_above if self.trim and not as_prompt(prompt).asks_for_coordinates else 0
        if self.per_request is not None:
            reading, weights = self.per_request.weights(self.reader, self.costs, prompt, task, cost)
            budget = self.per_request.budget(self._curves, weights, text_of(prompt), about)
            expected = sum(weights.values())
            why = f"{reading.why}; expected cost {expected:.3g} at {self.per_request.price:.3g} a token"
            return Decision(reading.tier, budget, expected, reading.probability, why, reading.decided, trim=trim)
        if cost is not None:
            raise BadInput("a request's own cost needs a policy with per-request costs; calibrate with --per-request")
        reading = self.reader(prompt, task)
        plan = self.tiers[reading.tier]
        return Decision(
            reading.tier,
            plan.budget,
            plan.cost,
            reading.probability,
            reading.why,
            reading.decided,
            plan.escalate,
            plan.review_below,
            plan.predictor,
            trim,
        )

    @property
    def trims_above(self) -> int:
        """Margins that are cut off leave so many native tokens at least."""
        return self.trim_above or max(max(plan.known_budgets) for plan in self.tiers.values())

    @property
    def budgets(self) -> dict[str, int]:
        """Budget by tier, of the first attempt."""
        return {name: plan.budget for name, plan in self.tiers.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and (self.options, self.per_request) == (other.options, other.per_request)

    def __hash__(self) -> int:
        return hash(frozenset(self.budgets.items()))

    def save(self, path: str | Path) -> None:
        """Write the file whole or not at all: a reader never sees half a policy."""
        unused = [name for name in ("per_request", "documents", "menu") if getattr(self, name) is None]
        left_out: dict[str, Any] = dict.fromkeys(unused, True)
        left_out["tiers"] = {
            name: {field for field in ("expected_cost", "questions", "evidence") if getattr(plan, field) is None}
            for name, plan in self.tiers.items()
        }
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
            raise BadInput(
                f"{path} is not a policy file ({error}); give the file that stakes calibrate wrote"
            ) from None
        return cls.from_record(record, str(path))

    @classmethod
    def from_record(cls, record: object, source: str = "the policy") -> Self:
        """Check a policy already read from JSON; errors name the field."""
        if not isinstance(record, Mapping):
            raise BadInput(f"{source} is not a policy: it holds a {type(record).__name__}, not an object")
        if "schema" not in record:
            raise BadInput(f"{source} is not a policy file: it has no schema; stakes calibrate writes one")
        if record["schema"] not in READABLE or isinstance(record["schema"], bool):  # True equals 1
            raise BadInput(
                f"{source} has schema {record['schema']!r}; this version of stakes reads 1 and 2; update stakes, or "
                "calibrate again"
            )
        try:
            return cls.model_validate(dict(record))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "policy"
            raise BadInput(f"{source}: {where}: {first['msg'].removeprefix('Value error, ')}") from None
