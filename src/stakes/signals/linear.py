"""A sparse linear model from the words and characters of a question to tier probabilities, in plain Python.

Scores are ``z_t = intercept_t + sum over the n-grams present of idf * coefficient_t`` (presence, not count). A model
with ``characters`` also has n-grams of characters, which survive typos and inflection, and scales the words and the
characters of a question to unit length each; one without them (the paper's) scales nothing. Probabilities are
``softmax(slope * z + offset)``, with slope and offsets fitted on out-of-fold scores: Platt scaling for two tiers, its
direct extension for more. Prediction needs neither scikit-learn nor numpy, and the file form is JSON, safe to load from
an untrusted source.

>>> model = LinearModel(("high", "low"), ("date",), (2.0,), ((1.5,), (0.0,)), (-1.0, 0.0), 1.0, (0.0, 0.0), ("date",))
>>> [round(p, 3) for p in model.probabilities("Which date?")]
[0.881, 0.119]
"""

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any
from unicodedata import normalize

from stakes.errors import BadInput

# Han, kana, Hangul (whose particles stick to the word), Thai, Lao, Burmese, Khmer
UNSPACED = (
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
    "\u1100-\u11ff\uac00-\ud7af\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
SPACED = rf"[^\W{UNSPACED}]"
"""A pattern for one letter or digit of a script with spaces between words."""
_WORD = re.compile(rf"%|\bno\.|{SPACED}+|[{UNSPACED}]+")
_RUN = re.compile(f"[{UNSPACED}]{{2,}}")
CHARACTERS = (3, 4)
"""The lengths of character n-grams."""
MARK = "~"
"""The first character of a character n-gram in a vocabulary. No word contains it."""
LIMIT = 8_000
"""Characters of a text that a model with character n-grams reads; longer texts would delay other requests."""


def words(question: str) -> list[str]:
    """The lower-case words of a question; in scripts without spaces between words, pairs of characters.

    >>> words("合計金額 total?")
    ['合計', '計金', '金額', 'total']
    """
    split: list[str] = []
    for word in _WORD.findall(normalize("NFC", question).lower()):
        split += [a + b for a, b in pairwise(word)] if _RUN.fullmatch(word) else [word]
    return split


def ngrams(question: str) -> list[str]:
    """The words of a question and its pairs of neighboring words, repeats included.

    Paper, "Automatic Consequence Signal Prediction": uni- and bi-grams. "%" and "no." are words, as in the keyword
    rule; scikit-learn's tokenizer drops both. On the rule's tiers of 600 DocVQA questions, 4 x 5 folds, that raises
    accuracy from 0.985 to 0.991, and from 0.959 to 0.971 with whole documents held out.

    >>> ngrams("Invoice No.5, 25%")
    ['invoice', 'no.', '5', '25', '%', 'invoice no.', 'no. 5', '5 25', '25 %']
    """
    single = words(question)
    return single + [f"{first} {second}" for first, second in pairwise(single)]


def character_ngrams(question: str) -> dict[str, str]:
    """The character n-grams of a question, each with the word in which it first starts.

    A space stands before and after every word, so that an n-gram shows where words begin and end.

    >>> list(character_ngrams("A date").items())[:4]
    [('~ a ', 'a'), ('~a d', 'a'), ('~ da', 'date'), ('~dat', 'date')]
    """
    found = _WORD.findall(normalize("NFC", question).lower())
    owners = [word for word in found for _ in range(len(word) + 1)]  # of each character: the space before, the letters
    text = f" {' '.join(found)} "
    grams: dict[str, str] = {}
    for size in CHARACTERS:
        for start in range(len(text) - size + 1):
            grams.setdefault(MARK + text[start : start + size], owners[start])
    return grams


@lru_cache(maxsize=16)  # one reading needs them twice: for the score and for its reasons
def features(question: str) -> tuple[dict[str, str], dict[str, str]]:
    """The word n-grams and the character n-grams of a question, each with the name under which a reason shows it."""
    question = question[:LIMIT]
    return {term: term for term in ngrams(question)}, character_ngrams(question)


def known_share(question: str, known: Set[str]) -> float:
    """The share of a question's words that are known; numbers are left out, and without other words it is zero."""
    counted = [word for word in words(question[:LIMIT]) if not word.isdigit()]
    return sum(word in known for word in counted) / len(counted) if counted else 0.0


Floats = tuple[float, ...]


@dataclass(frozen=True)
class LinearModel:
    """A trained model with T tiers and V n-grams; ``vocabulary`` holds those with a weight, ``known`` every word.

    ``familiar`` is the smallest share of known words with which a text counts as one like the training questions; at
    zero one known word is enough.
    """

    tiers: tuple[str, ...]  # T
    vocabulary: tuple[str, ...]  # V
    idf: Floats  # V
    coefficients: tuple[Floats, ...]  # T x V
    intercepts: Floats  # T
    slope: float
    offsets: Floats  # T
    known: tuple[str, ...]  # every word of the training questions
    characters: bool = False
    familiar: float = 0.0
    _weights: dict[str, Floats] = field(init=False, repr=False, compare=False)
    _known: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        columns = zip(*self.coefficients, strict=True)
        weights = {
            term: (*(idf * value for value in column), idf * idf)
            for term, idf, column in zip(self.vocabulary, self.idf, columns, strict=True)
        }
        if not self.characters:  # the squares are needed for unit length only
            weights = {term: weight[:-1] for term, weight in weights.items()}
        object.__setattr__(self, "_weights", weights)
        object.__setattr__(self, "_known", frozenset(self.known))

    def scores(self, question: str) -> list[float]:
        """One uncalibrated score per tier."""
        if not self.characters:
            present = [weight for term in set(ngrams(question)) if (weight := self._weights.get(term))]
            # fsum: the order of a set of strings changes from run to run, the sum must not
            return [math.fsum(column) for column in zip(self.intercepts, *present, strict=True)]
        sums = list(self.intercepts)
        for terms in features(question):
            present = [self._weights[term] for term in terms if term in self._weights]
            if present:
                *columns, squares = map(sum, zip(*present, strict=True))
                sums = [total + column / math.sqrt(squares) for total, column in zip(sums, columns, strict=True)]
        return sums

    def probabilities(self, question: str) -> list[float]:
        """One calibrated probability per tier; they sum to 1."""
        return softmax([self.slope * z + b for z, b in zip(self.scores(question), self.offsets, strict=True)])

    def knows(self, question: str) -> bool:
        """Whether enough of the question's words were seen in training: ``familiar``, and at least one."""
        if not self.familiar:
            return not self._known.isdisjoint(words(question))
        return self.share(question) >= self.familiar

    def share(self, question: str) -> float:
        """The share of the question's words that training saw."""
        return known_share(question, self._known)

    def reasons(self, question: str, tier: str, rival: str, most: int = 3) -> list[tuple[str, float]]:
        """The n-grams with the largest log-odds for ``tier`` over ``rival`` (plus) or against it (minus).

        The weight of a character n-gram counts for the word in which it starts.
        """
        mine, other = self.tiers.index(tier), self.tiers.index(rival)
        found: dict[str, float] = {}
        blocks = features(question) if self.characters else ({term: term for term in ngrams(question)},)
        for named in blocks:
            present = [(name, weight) for term, name in named.items() if (weight := self._weights.get(term))]
            length = math.sqrt(sum(weight[-1] for _, weight in present)) if self.characters else 1.0
            for name, weight in present:
                found[name] = found.get(name, 0.0) + self.slope * (weight[mine] - weight[other]) / length
        return sorted((pair for pair in found.items() if pair[1]), key=lambda pair: -abs(pair[1]))[:most]

    def to_dict(self) -> dict[str, Any]:
        """The model as plain JSON values."""
        return {
            "tiers": list(self.tiers),
            "vocabulary": list(self.vocabulary),
            "idf": list(self.idf),
            "coefficients": [list(row) for row in self.coefficients],
            "intercepts": list(self.intercepts),
            "calibration": {"slope": self.slope, "offsets": list(self.offsets)},
            "known": list(self.known),
            **({"characters": True} if self.characters else {}),
            **({"familiar": self.familiar} if self.familiar else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LinearModel":
        """Check every field of a file that may come from anybody, and build the model from it."""
        tiers = _strings(data, "tiers")
        if len(tiers) < 2:
            raise BadInput(f"a learned signal needs at least two tiers, this one names {len(tiers)}")
        vocabulary = _strings(data, "vocabulary")
        rows = data.get("coefficients")
        if not isinstance(rows, list) or len(rows) != len(tiers):
            raise BadInput(f"coefficients must have {len(tiers)} rows, one per tier")
        calibration = data.get("calibration")
        if not isinstance(calibration, Mapping):
            raise BadInput("calibration must be an object with slope and offsets")
        slope = _floats([calibration.get("slope")], "calibration slope", 1)[0]
        if slope <= 0:
            raise BadInput(f"the calibration slope must be above zero, or the order of tiers reverses; it is {slope}")
        characters = data.get("characters", False)
        if not isinstance(characters, bool):
            raise BadInput(f"characters must be true or false, not {characters!r:.40}")
        familiar = _floats([data.get("familiar", 0.0)], "familiar", 1)[0]
        if not 0 <= familiar <= 1:
            raise BadInput(f"familiar is a share of words from 0 to 1, not {familiar:g}")
        idf = _floats(data.get("idf"), "idf", len(vocabulary))
        if characters and not all(0.1 <= weight <= 1000 for weight in idf):  # unit length divides by them
            raise BadInput("idf must be between 0.1 and 1000 in a model with character n-grams")
        return cls(
            tiers=tiers,
            vocabulary=vocabulary,
            idf=idf,
            coefficients=tuple(_floats(row, "a row of coefficients", len(vocabulary)) for row in rows),
            intercepts=_floats(data.get("intercepts"), "intercepts", len(tiers)),
            slope=slope,
            offsets=_floats(calibration.get("offsets"), "calibration offsets", len(tiers)),
            known=_strings(data, "known"),
            characters=characters,
            familiar=familiar,
        )


def softmax(logits: Sequence[float]) -> list[float]:
    """Log-odds as probabilities, without overflow."""
    top = max(logits)
    powers = [math.exp(value - top) for value in logits]
    total = sum(powers)
    return [power / total for power in powers]


def _strings(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = data.get(name)
    if not isinstance(values, list) or not all(isinstance(value, str) and value.strip() for value in values):
        raise BadInput(f"{name} must be a list of non-empty strings")
    if len(set(values)) != len(values):
        raise BadInput(f"{name} holds the same entry twice")
    return tuple(values)


def _floats(values: object, name: str, length: int) -> Floats:
    if not isinstance(values, list) or len(values) != length:
        raise BadInput(f"{name} must be a list of {length} numbers")
    for value in values:
        # the bound keeps every product and sum finite; real weights are below a hundred
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= 1e100:
            raise BadInput(f"{name} holds {value!r:.40}, which is not a finite number")
    return tuple(float(value) for value in values)
