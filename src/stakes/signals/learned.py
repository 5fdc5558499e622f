"""A signal learned from labelled questions: TF-IDF n-grams and logistic regression, calibrated.

Paper, "Automatic Consequence Signal Prediction", here with character n-grams beside words. Trained from labelled
questions (the rule's tiers, a judge's, or your own), saved as JSON that is safe to load from an untrusted source. Only
``fit`` needs scikit-learn. ``crossval`` measures such a signal on questions that it has not seen.

>>> signal = LearnedSignal().fit(["What is the date?", "Who signed?"] * 5, ["high", "low"] * 5)
>>> signal("Which date is it?").tier
'high'
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from stakes.aliases import with_new_keys
from stakes.errors import BadInput
from stakes.files import write_whole
from stakes.signals.base import Reading, Signal, find_most_expensive, is_blank, undecided
from stakes.signals.linear import LinearModel
from stakes.signals.prompt import Prompt, text_of
from stakes.tiers import as_tiers

SCHEMAS = (1, 2)
"""Files of the first schema have words only, and no costs."""


class LearnedSignal:
    """A signal learned from labelled questions.

    ``costs``: what a mistake costs by tier. The tier with the largest ``sqrt(cost) * probability`` is read, so that a
    high-cost question is missed less often; without costs the most probable one is. Probabilities are not affected.

    A question is undecided, and so gets the most expensive tier, if too few of its words were seen in training, or if
    the best probability is below ``undecided_below``: 0.5 by default, 0 with costs. With two tiers and no costs the
    best is never below 0.5; a higher value sends more doubtful questions to the most expensive tier.

    ``characters=False`` is the paper's recipe: words and pairs of words only.
    """

    def __init__(
        self,
        *,
        most_expensive: str | None = None,
        costs: Mapping[str, float] | None = None,
        undecided_below: float | None = None,
        characters: bool = True,
        folds: int = 5,
        seed: int = 0,
    ) -> None:
        below = (0.0 if costs else 0.5) if undecided_below is None else undecided_below
        if isinstance(below, bool) or not 0 <= below <= 1:
            raise BadInput(f"undecided_below is a probability from 0 to 1, not {undecided_below!r}")
        if folds < 2:
            raise BadInput(f"a learned signal needs at least two folds, not {folds!r}")
        self.costs = None if costs is None else {name: tier.cost for name, tier in as_tiers(costs).items()}
        if self.costs and most_expensive is None:
            most_expensive = max(self.costs, key=self.costs.__getitem__)
        self.undecided_below, self.folds, self.seed, self.characters = float(below), folds, seed, characters
        self._most_expensive = most_expensive
        self.model_: LinearModel | None = None
        self.training_: dict[str, Any] = {}  # what training chose (strength, idf) and the digests of its questions
        self._trained_on: frozenset[str] = frozenset()

    def fit(
        self, questions: Sequence[str | Prompt], tiers: Sequence[str], groups: Sequence[str] | None = None
    ) -> "LearnedSignal":
        """Train on labelled questions; with ``groups`` (documents) no inner fold splits a group."""
        find_most_expensive(tiers, self._most_expensive)  # fail before training, not after
        _check_costs(tiers, self.costs)
        from stakes.signals.training import train

        texts = [text_of(question) for question in questions]
        trained = train(texts, tiers, groups, folds=self.folds, seed=self.seed, characters=self.characters)
        self.model_ = trained.model
        self._trained_on = frozenset(map(_question_digest, texts))
        self.training_ = {
            "questions": len(questions),
            "strength": trained.strength,
            "idf": trained.idf,
            "digests": " ".join(sorted(self._trained_on)),
        }
        return self

    def trained_on(self, question: str | Prompt) -> bool:
        """Whether this text was among the training questions, so that a correct reading proves nothing."""
        return _question_digest(text_of(question)) in self._trained_on

    @property
    def model(self) -> LinearModel:
        """The fitted model."""
        if self.model_ is None:
            raise BadInput("this learned signal has not been trained; call fit, or load one from a file")
        return self.model_

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers that it can return."""
        return tuple(dict.fromkeys([*self.model.tiers, self.most_expensive]))

    @property
    def most_expensive(self) -> str:
        """The tier that it returns when undecided."""
        return find_most_expensive(self.model.tiers, self._most_expensive)

    def model_for(self, text: str) -> LinearModel:  # noqa: ARG002 (``HeldOutSignal`` has several)
        """The model that reads a text."""
        return self.model

    def __call__(self, prompt: str | Prompt, task: str | None = None) -> Reading:  # noqa: ARG002 (every signal's call)
        """Read the tier; ``why`` names the n-grams with the most weight, in log-odds over the next likely tier."""
        text = text_of(prompt)
        if is_blank(text):
            return undecided(self.most_expensive, len(self.tiers), "the question is empty")
        model = self.model_for(text)
        if not model.knows(text):
            return undecided(self.most_expensive, len(self.tiers), _why_unfamiliar(model, text))
        probability = dict(zip(model.tiers, model.probabilities(text), strict=True))
        likeliest = max(model.tiers, key=lambda name: probability[name])
        if probability[likeliest] < self.undecided_below:
            why = f"undecided: {likeliest} is likeliest at {probability[likeliest]:.2f}, below {self.undecided_below:g}"
            return Reading(self.most_expensive, probability.get(self.most_expensive, 0.0), why, decided=False)
        tier, rival = sorted(model.tiers, key=lambda name: -self._weight(name) * probability[name])[:2]
        by_cost = ""
        if tier != likeliest:
            rival, by_cost = (
                likeliest,
                f"; {likeliest} is likelier ({probability[likeliest]:.2f}), a missed {tier} costs more",
            )
        weights = [(term, weight) for term, weight in model.reasons(text, tier, rival) if abs(weight) >= 0.05]
        reasons = ", ".join(f'"{term}" {weight:+.1f}' for term, weight in weights)
        return Reading(tier, probability[tier], f"{reasons or 'no distinctive word'} for {tier} over {rival}{by_cost}")

    def _weight(self, tier: str) -> float:
        return math.sqrt(self.costs[tier]) if self.costs else 1.0

    def predict_proba(self, questions: Sequence[str | Prompt]) -> list[dict[str, float]]:
        """Each question's calibrated probability of every tier."""
        texts = [text_of(question) for question in questions]
        return [dict(zip(self.model.tiers, self.model_for(text).probabilities(text), strict=True)) for text in texts]

    def to_dict(self) -> dict[str, Any]:
        """The signal as plain JSON values."""
        return {
            "schema": 2 if self.model.characters or self.costs else 1,
            "kind": "learned",
            "most_expensive": self.most_expensive,
            "undecided_below": self.undecided_below,
            "training": self.training_,
            **({"costs": self.costs} if self.costs else {}),
            **self.model.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LearnedSignal":
        """Build a signal from plain JSON values, checking every one."""
        if not isinstance(data, Mapping) or data.get("kind") != "learned":
            raise BadInput("this is not a learned signal: its kind is not 'learned'")
        if data.get("schema") not in SCHEMAS or isinstance(data["schema"], bool):  # True == 1
            raise BadInput(f"this learned signal has schema {data.get('schema')!r:.40}; only 1 and 2 are known")
        data = with_new_keys(data)
        if not (
            isinstance(data.get("most_expensive"), str)
            and isinstance(data.get("undecided_below"), int | float)
            and isinstance(data.get("training"), Mapping)
        ):
            raise BadInput("a learned signal needs most_expensive (text), undecided_below (number), training (object)")
        model = LinearModel.from_dict(data)
        find_most_expensive(model.tiers, data["most_expensive"])
        costs = data.get("costs")
        if costs is not None and not isinstance(costs, Mapping):
            raise BadInput("the costs of a learned signal must be an object of tier to cost")
        _check_costs(model.tiers, costs)
        below = data["undecided_below"]
        signal = cls(
            most_expensive=data["most_expensive"],
            costs=costs,
            undecided_below=below,
            characters=model.characters,
        )
        signal.model_, signal.training_ = model, dict(data["training"])
        digests = signal.training_.get("digests", "")  # the first files have none
        if not isinstance(digests, str):
            raise BadInput("the digests of a learned signal's training questions must be one text")
        signal._trained_on = frozenset(digests.split())
        return signal

    def save(self, path: str | Path) -> None:
        """Write the signal to a JSON file, whole or not at all."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)  # on lines of its own each, a third more
        try:
            write_whole(Path(path), text + "\n")
        except OSError as error:
            raise BadInput(f"cannot write the learned signal to {path}: {error.strerror}") from None

    @classmethod
    def load(cls, path: str | Path) -> "LearnedSignal":
        """Read a signal from a JSON file; anything unexpected is one clear error, and nothing is executed."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_no_constant)
            return cls.from_dict(data)
        except OSError as error:
            raise BadInput(f"cannot read the learned signal {path}: {error.strerror}") from None
        except RecursionError:
            raise BadInput(f"{path} is not a learned signal: it is nested too deeply") from None
        except BadInput as error:
            raise BadInput(f"{path} is not a usable learned signal: {error}") from None
        except ValueError as error:  # not JSON, or not UTF-8
            raise BadInput(f"{path} is not a learned signal in JSON: {error}") from None


def _check_costs(tiers: Iterable[str], costs: Mapping[str, float] | None) -> None:
    for tier in tiers:
        if costs and tier not in costs:
            raise BadInput(f"tier {tier!r} has no cost; the costs are those of {', '.join(map(str, costs))}")


def _why_unfamiliar(model: LinearModel, text: str) -> str:
    share = model.share(text)
    if not share:
        return "no word of the question was seen in training"
    return f"only {share:.0%} of the question's words were seen in training, less than {model.familiar:.0%}"


def _question_digest(question: str) -> str:
    """Eight hex digits of a question's words, the same for any case and spacing."""
    return hashlib.blake2b(" ".join(question.lower().split()).encode(), digest_size=4).hexdigest()


def _no_constant(name: str) -> NoReturn:
    raise BadInput(f"it holds {name}, which is not a number")


def tier_probabilities(
    signal: Signal, prompt: str | Prompt, task: str | None = None
) -> tuple[Reading, dict[str, float]]:
    """The signal's reading and the probability of each of its tiers, which weight the per-request costs.

    A learned signal gives its calibrated probabilities. Any other gives the probability of its reading; the other tiers
    share the rest evenly. An undecided reading counts as the most expensive tier, with probability 1.

    >>> from stakes.signals.keywords import KeywordRule
    >>> tier_probabilities(KeywordRule(), "What is the total?")[1]
    {'high': 1.0, 'low': 0.0}
    """
    reading = signal(prompt, task)
    if not reading.decided:
        return reading, {tier: float(tier == signal.most_expensive) for tier in signal.tiers}
    if isinstance(signal, LearnedSignal):
        probabilities = signal.predict_proba([prompt])[0]
        return reading, {tier: probabilities.get(tier, 0.0) for tier in signal.tiers}
    others = len(signal.tiers) - 1
    rest = (1 - reading.probability) / others if others else 0.0
    return reading, {tier: reading.probability if tier == reading.tier else rest for tier in signal.tiers}
