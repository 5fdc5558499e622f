"""A tier's option, and its plan in a policy: a fixed or predicted budget, or two attempts, each with or without review.

    option = TierOption(304, Escalation(to=576, below=0.9), review_below=0.6)
    option.next_budget(0.72)          # 576: the first answer is unsure, so the question is asked again
    option.next_budget(0.95)          # None: the first answer stands
    option.flags(0.41)                # True: a person reviews the final answer
    option.most_tokens                # 880: both attempts count

One rule for both thresholds: an answer is unsure if its confidence is below the threshold, or if it has none. The
second answer replaces the first, whatever their confidences. Review is decided on the answer that is returned.
"""

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from stakes.budgets.curve import MOST_TOKENS, Curve
from stakes.errors import BadInput
from stakes.vision.image.statistics import STATISTICS

Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Threshold = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
# Of a predictor. Far from what a calibration writes, and near enough that no product of them overflows to NaN.
Number = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
Positive = Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)]
FAR, REFERENCE = 4.0, 256  # standard deviations; tokens


def is_unsure(confidence: float | None, below: float) -> bool:
    """Whether an answer counts as unsure; one without a confidence does."""
    return confidence is None or confidence < below


class Escalation(BaseModel):
    """Ask again with ``to`` tokens where the confidence of the first answer is below ``below``."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    to: Tokens
    below: Threshold


class BudgetPredictor(BaseModel):
    """A budget predicted from the image: the one whose expected error and price of tokens add up to least.

    P(right | image, budget) = 1 / (1 + exp(-(level . z + log(budget / 256) slope . z)))
    budget = argmin over ``budgets`` of  1 - P(right) + price budget

    z is 1 and the image's statistics (``vision.image.statistics``), standardised by ``center`` and ``scale``. A tier's
    cost and the total are in ``price``, which the allocation chooses. An image with a statistic more than FAR standard
    deviations from the calibration's mean gets no less than the tier's fixed budget. A policy has plain numbers only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    statistics: tuple[str, ...]
    center: tuple[Number, ...]
    scale: tuple[Positive, ...]
    level: tuple[Number, ...]
    slope: tuple[Number, ...]
    budgets: tuple[Tokens, ...] = Field(min_length=1)
    price: float = Field(ge=0, le=1, allow_inf_nan=False)
    """Of a token, in units of a mistake."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.statistics != STATISTICS:
            raise BadInput(
                f"the predictor is about {', '.join(self.statistics)}, and this version of stakes measures "
                f"{', '.join(STATISTICS)}; calibrate again"
            )
        count = len(STATISTICS)
        lengths = [len(part) for part in (self.center, self.scale, self.level, self.slope)]
        if lengths != [count, count, count + 1, count + 1]:
            raise BadInput(f"a predictor has {count} centers and scales, and a level and a slope for each and one more")
        if list(self.budgets) != sorted(set(self.budgets)):
            raise BadInput("a predictor's budgets are in rising order")
        return self

    def right(self, statistics: ArrayLike) -> NDArray[np.float64]:
        """[images, budgets]: the probability of a right answer, from [images, statistics]."""
        level, slope = (self._standard(statistics) @ np.array(part) for part in (self.level, self.slope))
        logs = np.log(np.array(self.budgets) / REFERENCE)
        return np.asarray(1 / (1 + np.exp(-np.clip(level[:, None] + slope[:, None] * logs, -50, 50))))

    def predict(self, statistics: ArrayLike, least: int) -> NDArray[np.int64]:
        """[images]: the budget of each; ``least``: of images unlike those of the calibration."""
        budgets = np.array(self.budgets)
        best = budgets[np.argmin(1 - self.right(statistics) + self.price * budgets, axis=1)]
        unlike = (np.abs(self._standard(statistics)[:, 1:]) > FAR).any(axis=1)
        return np.asarray(np.where(unlike, np.maximum(best, least), best))

    def _standard(self, statistics: ArrayLike) -> NDArray[np.float64]:
        values = (np.asarray(statistics, float) - np.array(self.center)) / np.array(self.scale)
        return np.column_stack([np.ones(len(values)), values])


@dataclass(frozen=True)
class TierOption:
    """One thing that a tier can do; ``budget`` is that of the first attempt."""

    budget: int
    escalate: Escalation | None = None
    review_below: float | None = None
    predictor: BudgetPredictor | None = None
    """Predicts the budget from the image; ``budget`` is then for an image that it cannot judge."""

    def next_budget(self, confidence: float | None) -> int | None:
        """The budget of a second attempt after a first answer of this confidence; None: the answer stands."""
        if self.escalate is None or not is_unsure(confidence, self.escalate.below):
            return None
        return self.escalate.to

    def flags(self, confidence: float | None) -> bool:
        """Whether a person reviews the answer that is returned, which has this confidence."""
        return self.review_below is not None and is_unsure(confidence, self.review_below)

    @property
    def fixed(self) -> bool:
        """Whether it is a budget and nothing else."""
        return not self.reads_confidence and self.predictor is None

    @property
    def reads_confidence(self) -> bool:
        """Whether it has a threshold."""
        return self.escalate is not None or self.review_below is not None

    @property
    def most_tokens(self) -> int:
        """Tokens of one image in the worst case: both attempts."""
        largest = self.budget if self.predictor is None else self.predictor.budgets[-1]
        return largest + (0 if self.escalate is None else self.escalate.to)

    def __str__(self) -> str:
        words = str(self.budget)
        if self.predictor is not None:
            words = f"{self.predictor.budgets[0]} to {self.predictor.budgets[-1]} by image"
        if self.escalate is not None:
            words += f", then {self.escalate.to} below {self.escalate.below:.3g}"
        return words + ("" if self.review_below is None else f", review below {self.review_below:.3g}")


class OptionEvidence(BaseModel):
    """What a tier's option did on documents that it was not chosen on.

    ``tokens``: per question, both attempts. ``escalated``, ``flagged``: shares of all questions. ``error``: among the
    answers that were not flagged, of which ``upper`` is an upper bound with probability ``level``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    questions: int = Field(ge=1)
    documents: int = Field(ge=1)
    tokens: float = Field(gt=0, allow_inf_nan=False)
    escalated: Share
    flagged: Share
    error: Share | None
    """None where every answer was flagged."""
    upper: Share | None
    """None where no bound can be given: every answer was flagged, or few documents hold many of the questions."""
    level: Share


class TierPlan(BaseModel):
    """One tier of a policy: its error cost, its option, its measured curve and the estimator's."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    cost: float = Field(gt=0, allow_inf_nan=False)
    budget: Tokens
    """Of the first attempt; without ``escalate`` the only one. With ``predictor``, of an image that it cannot judge."""
    curve: Curve | None = None
    fitted: Curve | None = None  # the estimator's curve, where it differs from the measured one
    disagreement: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    """An upper bound on how often its answers differ from those at full budget."""
    expected_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The mean cost of a mistake by label, over the calibration's questions read as this tier; None: ``cost``."""
    questions: dict[str, Annotated[int, Field(ge=0)]] | None = None
    """The calibration's questions read as this tier, by label (without labels, all as its own); None: not known."""
    escalate: Escalation | None = None
    """The second attempt of unsure answers; None: there is none."""
    review_below: Threshold | None = None
    """The confidence below which a person reviews the answer that is returned; None: no review."""
    evidence: OptionEvidence | None = None
    """What the option did on held-out documents; None for a fixed budget."""
    predictor: BudgetPredictor | None = None
    """How a budget is predicted from the image; None: it is not."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.predictor is not None and self.escalate is not None:
            raise BadInput("a tier has a predicted budget or a second attempt, not both; set one of them to null")
        if self.escalate is not None and self.escalate.to <= self.budget:
            raise BadInput(
                f"escalate.to is {self.escalate.to}, and the first attempt takes {self.budget} tokens; a second one "
                "takes more"
            )
        return self

    @property
    def option(self) -> TierOption:
        """What the tier does."""
        return TierOption(self.budget, self.escalate, self.review_below, self.predictor)

    @property
    def known_budgets(self) -> list[int]:
        """The budgets of its curve and of its attempts."""
        measured = () if self.curve is None else self.curve.budgets
        return [self.budget, *measured, *([] if self.escalate is None else [self.escalate.to])]

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
    """Of the first attempt; where the tier has a predictor, of an image that it cannot judge."""
    cost: float
    probability: float
    why: str
    decided: bool = True
    escalate: Escalation | None = None
    review_below: float | None = None
    predictor: BudgetPredictor | None = None
    trim: int = 0
    """Margins are cut off where so many native tokens are left, as by ``fit`` with ``trim=decision.trim``; 0: never."""

    @property
    def option(self) -> TierOption:
        """What happens to the question: its attempts, and whether a person reviews its answer."""
        return TierOption(self.budget, self.escalate, self.review_below, self.predictor)
