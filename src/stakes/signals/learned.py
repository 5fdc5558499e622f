"""Can a small model tell the tier from the question's words? TF-IDF n-grams and logistic regression, calibrated.

Paper, "Automatic Consequence Signal Prediction". Trained from labelled questions (the rule's tiers, a judge's, or your
own), saved as JSON that is safe to load from a stranger. Only ``fit`` and ``cross_validate`` need scikit-learn.

>>> signal = LearnedSignal().fit(["What is the date?", "Who signed?"] * 5, ["high", "low"] * 5)
>>> signal("Which date is it?").tier
'high'
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from stakes.errors import BadInput
from stakes.signals.base import Reading, Signal, find_dearest, is_blank, undecided
from stakes.signals.linear import LinearModel

if TYPE_CHECKING:
    from stakes.signals.crossval import Report


SCHEMA = 1


class LearnedSignal:
    """A signal learned from labelled questions.

    Undecided, and so in the dearest tier: a question no word of which was seen in training, and one whose best
    probability is below ``undecided_below`` (with two tiers the best is never below 0.5, the default; raise it to send
    more doubtful questions to the dearest tier).
    """

    def __init__(
        self, *, dearest: str | None = None, undecided_below: float = 0.5, folds: int = 5, seed: int = 0
    ) -> None:
        if isinstance(undecided_below, bool) or not 0 <= undecided_below <= 1:
            raise BadInput(f"undecided_below is a probability from 0 to 1, not {undecided_below!r}")
        if folds < 2:
            raise BadInput(f"a learned signal needs at least two folds, not {folds!r}")
        self.undecided_below, self.folds, self.seed = float(undecided_below), folds, seed
        self._dearest = dearest
        self.model_: LinearModel | None = None
        self.chosen_: dict[str, Any] = {}  # what training chose: strength, idf; and on which questions, by digest
        self._seen: frozenset[str] = frozenset()

    def fit(
        self, questions: Sequence[str], tiers: Sequence[str], groups: Sequence[str] | None = None
    ) -> "LearnedSignal":
        """Train on labelled questions; ``groups`` (documents) makes the inner folds keep a group together."""
        find_dearest(tiers, self._dearest)  # fail before training, not after
        from stakes.signals.training import train

        trained = train(questions, tiers, groups, folds=self.folds, seed=self.seed)
        self.model_ = trained.model
        self._seen = frozenset(map(question_digest, questions))
        self.chosen_ = {"questions": len(questions), "strength": trained.strength, "idf": trained.idf}
        self.chosen_["digests"] = " ".join(sorted(self._seen))
        return self

    def trained_on(self, question: str) -> bool:
        """Whether this very text was among the training questions, so that reading it right is no test."""
        return question_digest(question) in self._seen

    def cross_validate(
        self,
        questions: Sequence[str],
        tiers: Sequence[str],
        groups: Sequence[str] | None = None,
        repeats: int = 10,
    ) -> "Report":
        """Measure this kind of signal on labelled questions; the fitted model is left as it is."""
        from stakes.signals.crossval import cross_validate

        dearest = find_dearest(tiers, self._dearest)
        return cross_validate(
            questions, tiers, groups, dearest=dearest, repeats=repeats, folds=self.folds, seed=self.seed
        )

    @property
    def model(self) -> LinearModel:
        """The fitted model."""
        if self.model_ is None:
            raise BadInput("this learned signal has not been trained; call fit, or load one from a file")
        return self.model_

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers it can name."""
        return tuple(dict.fromkeys([*self.model.tiers, self.dearest]))

    @property
    def dearest(self) -> str:
        """The tier it falls to when undecided."""
        return find_dearest(self.model.tiers, self._dearest)

    def __call__(self, question: str, task: str | None = None) -> Reading:  # noqa: ARG002 (every signal's call)
        """Read the tier; ``why`` names the n-grams that weighed most, in log-odds over the next likely tier."""
        model = self.model
        if is_blank(question):
            return undecided(self.dearest, len(self.tiers), "the question is empty")
        if not model.knows(question):
            return undecided(self.dearest, len(self.tiers), "no word of the question was seen in training")
        chances = dict(zip(model.tiers, model.probabilities(question), strict=True))
        tier, rival = sorted(model.tiers, key=lambda name: -chances[name])[:2]
        if chances[tier] < self.undecided_below:
            why = f"undecided: {tier} is likeliest at {chances[tier]:.2f}, below {self.undecided_below:g}"
            return Reading(self.dearest, chances.get(self.dearest, 0.0), why, decided=False)
        loud = [(term, weight) for term, weight in model.reasons(question, tier, rival) if abs(weight) >= 0.05]
        reasons = [f'"{term}" {weight:+.1f}' for term, weight in loud]
        return Reading(tier, chances[tier], f"{', '.join(reasons) or 'no telling word'} for {tier} over {rival}")

    def predict_proba(self, questions: Sequence[str]) -> list[dict[str, float]]:
        """Return each question's calibrated probability of every tier."""
        return [dict(zip(self.model.tiers, self.model.probabilities(text), strict=True)) for text in questions]

    def to_dict(self) -> dict[str, Any]:
        """Return the signal as plain JSON values."""
        return {
            "schema": SCHEMA,
            "kind": "learned",
            "dearest": self.dearest,
            "undecided_below": self.undecided_below,
            "training": self.chosen_,
            **self.model.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LearnedSignal":
        """Build a signal from plain JSON values, checking every one."""
        if not isinstance(data, Mapping) or data.get("kind") != "learned":
            raise BadInput("this is not a learned signal: its kind is not 'learned'")
        if data.get("schema") != SCHEMA:
            raise BadInput(f"this learned signal has schema {data.get('schema')!r:.40}; only schema {SCHEMA} is known")
        dearest, threshold, training = data.get("dearest"), data.get("undecided_below"), data.get("training")
        if not isinstance(dearest, str) or not isinstance(threshold, (int, float)) or not isinstance(training, Mapping):
            raise BadInput("a learned signal needs dearest (text), undecided_below (number) and training (object)")
        model = LinearModel.from_dict(data)
        find_dearest(model.tiers, dearest)
        signal = cls(dearest=dearest, undecided_below=threshold)
        signal.model_, signal.chosen_ = model, dict(training)
        digests = training.get("digests", "")  # files from before they were kept have none
        if not isinstance(digests, str):
            raise BadInput("the digests of a learned signal's training questions must be one text")
        signal._seen = frozenset(digests.split())
        return signal

    def save(self, path: str | Path) -> None:
        """Write the signal to a JSON file, whole or not at all."""
        target = Path(path)
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=1)
        unfinished = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            unfinished.write_text(text + "\n", encoding="utf-8")
            unfinished.replace(target)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise BadInput(f"cannot write the learned signal to {target}: {error.strerror}") from None

    @classmethod
    def load(cls, path: str | Path) -> "LearnedSignal":
        """Read a signal from a JSON file; anything out of order is one clear error, and nothing is executed."""
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


def question_digest(question: str) -> str:
    """Eight hex digits of a question's words: enough to know it again, whatever its case and spacing."""
    return hashlib.blake2b(" ".join(question.lower().split()).encode(), digest_size=4).hexdigest()


def _no_constant(name: str) -> NoReturn:
    raise BadInput(f"it holds {name}, which is not a number")


# How likely is each tier? What soft stakes weigh costs by, from any signal.
#
# A learned signal gives its calibrated probabilities; any other gives its reading's, the rest shared evenly by the
# other
# tiers. An undecided reading goes to the dearer side whole: the dearest tier, for certain.
#
# >>> from stakes.signals.keywords import KeywordRule
# >>> chances(KeywordRule(), "What is the total?")[1]
# {'high': 1.0, 'low': 0.0}


def gives_chances(signal: Signal) -> bool:
    """Whether the signal's probabilities are meant as such, and not a rule's certainty of itself."""
    return isinstance(signal, LearnedSignal)


def chances(signal: Signal, question: str, task: str | None = None) -> tuple[Reading, dict[str, float]]:
    """The signal's reading, and the probability of each of its tiers."""
    reading = signal(question, task)
    if not reading.decided:
        return reading, {tier: float(tier == signal.dearest) for tier in signal.tiers}
    if isinstance(signal, LearnedSignal):
        found = signal.predict_proba([question])[0]
        return reading, {tier: found.get(tier, 0.0) for tier in signal.tiers}
    others = len(signal.tiers) - 1
    rest = (1 - reading.probability) / others if others else 0.0
    return reading, {tier: reading.probability if tier == reading.tier else rest for tier in signal.tiers}
