"""A signal learned from labelled questions: TF-IDF n-grams and logistic regression, calibrated.

Paper, "Automatic Consequence Signal Prediction". Trained from labelled questions (the rule's tiers, a judge's, or your
own), saved as JSON that is safe to load from an untrusted source. Only ``fit`` needs scikit-learn. ``crossval``
measures such a signal on questions that it has not seen.

>>> signal = LearnedSignal().fit(["What is the date?", "Who signed?"] * 5, ["high", "low"] * 5)
>>> signal("Which date is it?").tier
'high'
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from stakes.aliases import with_new_keys
from stakes.errors import BadInput
from stakes.files import write_whole
from stakes.signals.base import Reading, Signal, find_most_expensive, is_blank, undecided
from stakes.signals.linear import LinearModel

SCHEMA = 1


class LearnedSignal:
    """A signal learned from labelled questions.

    A question is undecided, and so gets the most expensive tier, if training saw none of its words, or if its best
    probability is below ``undecided_below``. With two tiers the best is never below the default of 0.5; a higher value
    sends more doubtful questions to the most expensive tier.
    """

    def __init__(
        self, *, most_expensive: str | None = None, undecided_below: float = 0.5, folds: int = 5, seed: int = 0
    ) -> None:
        if isinstance(undecided_below, bool) or not 0 <= undecided_below <= 1:
            raise BadInput(f"undecided_below is a probability from 0 to 1, not {undecided_below!r}")
        if folds < 2:
            raise BadInput(f"a learned signal needs at least two folds, not {folds!r}")
        self.undecided_below, self.folds, self.seed = float(undecided_below), folds, seed
        self._most_expensive = most_expensive
        self.model_: LinearModel | None = None
        self.training_: dict[str, Any] = {}  # what training chose (strength, idf) and the digests of its questions
        self._trained_on: frozenset[str] = frozenset()

    def fit(
        self, questions: Sequence[str], tiers: Sequence[str], groups: Sequence[str] | None = None
    ) -> "LearnedSignal":
        """Train on labelled questions; with ``groups`` (documents) no inner fold splits a group."""
        find_most_expensive(tiers, self._most_expensive)  # fail before training, not after
        from stakes.signals.training import train

        trained = train(questions, tiers, groups, folds=self.folds, seed=self.seed)
        self.model_ = trained.model
        self._trained_on = frozenset(map(_question_digest, questions))
        self.training_ = {
            "questions": len(questions),
            "strength": trained.strength,
            "idf": trained.idf,
            "digests": " ".join(sorted(self._trained_on)),
        }
        return self

    def trained_on(self, question: str) -> bool:
        """Whether this text was among the training questions, so that a correct reading proves nothing."""
        return _question_digest(question) in self._trained_on

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

    def __call__(self, question: str, task: str | None = None) -> Reading:  # noqa: ARG002 (every signal's call)
        """Read the tier; ``why`` names the n-grams with the most weight, in log-odds over the next likely tier."""
        model = self.model
        if is_blank(question):
            return undecided(self.most_expensive, len(self.tiers), "the question is empty")
        if not model.knows(question):
            return undecided(self.most_expensive, len(self.tiers), "no word of the question was seen in training")
        probability = dict(zip(model.tiers, model.probabilities(question), strict=True))
        tier, rival = sorted(model.tiers, key=lambda name: -probability[name])[:2]
        if probability[tier] < self.undecided_below:
            why = f"undecided: {tier} is likeliest at {probability[tier]:.2f}, below {self.undecided_below:g}"
            return Reading(self.most_expensive, probability.get(self.most_expensive, 0.0), why, decided=False)
        weights = [(term, weight) for term, weight in model.reasons(question, tier, rival) if abs(weight) >= 0.05]
        reasons = ", ".join(f'"{term}" {weight:+.1f}' for term, weight in weights)
        return Reading(tier, probability[tier], f"{reasons or 'no distinctive word'} for {tier} over {rival}")

    def predict_proba(self, questions: Sequence[str]) -> list[dict[str, float]]:
        """Each question's calibrated probability of every tier."""
        return [dict(zip(self.model.tiers, self.model.probabilities(text), strict=True)) for text in questions]

    def to_dict(self) -> dict[str, Any]:
        """The signal as plain JSON values."""
        return {
            "schema": SCHEMA,
            "kind": "learned",
            "most_expensive": self.most_expensive,
            "undecided_below": self.undecided_below,
            "training": self.training_,
            **self.model.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LearnedSignal":
        """Build a signal from plain JSON values, checking every one."""
        if not isinstance(data, Mapping) or data.get("kind") != "learned":
            raise BadInput("this is not a learned signal: its kind is not 'learned'")
        if data.get("schema") != SCHEMA:
            raise BadInput(f"this learned signal has schema {data.get('schema')!r:.40}; only schema {SCHEMA} is known")
        data = with_new_keys(data)
        if not (
            isinstance(data.get("most_expensive"), str)
            and isinstance(data.get("undecided_below"), int | float)
            and isinstance(data.get("training"), Mapping)
        ):
            raise BadInput("a learned signal needs most_expensive (text), undecided_below (number), training (object)")
        model = LinearModel.from_dict(data)
        find_most_expensive(model.tiers, data["most_expensive"])
        signal = cls(most_expensive=data["most_expensive"], undecided_below=data["undecided_below"])
        signal.model_, signal.training_ = model, dict(data["training"])
        digests = signal.training_.get("digests", "")  # the first files have none
        if not isinstance(digests, str):
            raise BadInput("the digests of a learned signal's training questions must be one text")
        signal._trained_on = frozenset(digests.split())
        return signal

    def save(self, path: str | Path) -> None:
        """Write the signal to a JSON file, whole or not at all."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=1)
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


def _question_digest(question: str) -> str:
    """Eight hex digits of a question's words, the same for any case and spacing."""
    return hashlib.blake2b(" ".join(question.lower().split()).encode(), digest_size=4).hexdigest()


def _no_constant(name: str) -> NoReturn:
    raise BadInput(f"it holds {name}, which is not a number")


def tier_probabilities(signal: Signal, question: str, task: str | None = None) -> tuple[Reading, dict[str, float]]:
    """The signal's reading and the probability of each of its tiers, which weight the per-request costs.

    A learned signal gives its calibrated probabilities. Any other gives the probability of its reading; the other tiers
    share the rest evenly. An undecided reading counts as the most expensive tier, with probability 1.

    >>> from stakes.signals.keywords import KeywordRule
    >>> tier_probabilities(KeywordRule(), "What is the total?")[1]
    {'high': 1.0, 'low': 0.0}
    """
    reading = signal(question, task)
    if not reading.decided:
        return reading, {tier: float(tier == signal.most_expensive) for tier in signal.tiers}
    if isinstance(signal, LearnedSignal):
        probabilities = signal.predict_proba([question])[0]
        return reading, {tier: probabilities.get(tier, 0.0) for tier in signal.tiers}
    others = len(signal.tiers) - 1
    rest = (1 - reading.probability) / others if others else 0.0
    return reading, {tier: reading.probability if tier == reading.tier else rest for tier in signal.tiers}
