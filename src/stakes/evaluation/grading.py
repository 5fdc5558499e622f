"""Was the answer right? Five metrics, each after its official definition.

| metric    | score                                                                                      |
|-----------|--------------------------------------------------------------------------------------------|
| relaxed   | 1 if, normalised, prediction and an answer are equal or one contains the other (the paper) |
| exact     | 1 if they are equal, normalised                                                            |
| anls      | 1 - edit distance / longer length, best over answers, 0 below 0.5 (DocVQA, InfographicVQA) |
| chartqa   | 1 if a number is within 5 % of the answer, or the strings are equal (ChartQA)              |
| vqa       | agreement with several people, each left out in turn (TextVQA, VQAv2)                      |

A score of 0.5 or more counts as correct in paired tests; the raw score is kept for everything else.

    >>> grade("$1,240.00 in total.", ["$1,240.00"])
    1.0
    >>> grade("Sargaso Sea", ["Sargasso Sea"], metric="anls")
    0.9166666666666666
"""

from collections.abc import Callable, Sequence
from unicodedata import normalize

from stakes.errors import BadInput
from stakes.evaluation.vqa import vqa_score

CORRECT_FROM = 0.5


def grade(prediction: str, answers: Sequence[str], metric: str = "relaxed", *, truncated: bool = False) -> float:
    """The score in [0, 1] of ``prediction`` against every acceptable answer.

    An empty prediction is never correct, although "" is contained in everything. A ``truncated`` prediction was cut
    at the answer's length limit: being a mere piece of an answer does not make it right.
    """
    if metric not in METRICS:
        raise BadInput(f"unknown metric {metric!r}; choose one of {', '.join(METRICS)}")
    if isinstance(answers, str):
        raise BadInput(f"answers is a list of acceptable answers, not the string {answers!r}; put it in a list")
    for text in (prediction, *answers):
        if not isinstance(text, str):
            raise BadInput(f"predictions and answers are text, not {text!r}; an empty prediction is an empty string")
    if not answers:
        raise BadInput("there is no answer to grade against; give at least one acceptable answer")
    if not _normalise(prediction):
        return 0.0
    if metric == "vqa":
        return vqa_score(prediction, answers)
    if metric == "relaxed" and truncated:
        return max(float(_normalise(a) in _normalise(prediction)) if _normalise(a) else 0.0 for a in answers)
    score = METRICS[metric]
    return max(score(prediction, answer) for answer in answers)


def is_correct(score: float) -> bool:
    """Whether a score counts as correct in paired tests."""
    return score >= CORRECT_FROM


def is_piece(prediction: str, answers: Sequence[str]) -> bool:
    """Whether ``relaxed`` takes a prediction only because it is part of an answer, letters or digits of which it lacks.

    >>> is_piece("1,932", ["11,932"]), is_piece("11,932", ["$11,932"])
    (True, False)
    """
    given, golds = _normalise(prediction), [_normalise(answer) for answer in answers]
    if not given or any(gold and gold in given for gold in golds):
        return False
    lacking = ["".join(gold.split(given, 1)) for gold in golds if given in gold]
    return bool(lacking) and all(any(map(str.isalnum, rest)) for rest in lacking)


def _normalise(text: str) -> str:
    """The paper's normaliser: strip white space, lower case, drop one trailing period.

    Beyond the paper, one white space is like another (a model writes "12 000" with plain spaces where the answer has
    narrow ones), and so is one Unicode form of a letter.
    """
    return " ".join(normalize("NFC", text).split()).lower().removesuffix(".").strip()


def _relaxed(prediction: str, answer: str) -> float:
    given, gold = _normalise(prediction), _normalise(answer)
    return float(bool(gold) and (gold in given or given in gold))


def _exact(prediction: str, answer: str) -> float:
    return float(_normalise(prediction) == _normalise(answer))


def _anls(prediction: str, answer: str) -> float:
    """Official ANLS@0.5: the distance is between cleaned strings, the length is that of the raw ones."""
    from rapidfuzz.distance import Levenshtein

    clean_given, clean_gold = (" ".join(text.strip().lower().split()) for text in (prediction, answer))
    longest = max(len(prediction), len(answer))
    similarity = 1 - Levenshtein.distance(clean_given, clean_gold) / longest
    return similarity if similarity >= CORRECT_FROM else 0.0


def _chartqa(prediction: str, answer: str) -> float:
    """Official relaxed accuracy; "5" is not "5%" (0.05), and a gold answer of 0 is compared as a string."""
    given, gold = _number(prediction), _number(answer)
    if given is not None and gold:
        return float(abs(given - gold) / abs(gold) <= 0.05)
    return float(prediction.lower() == answer.lower())


def _number(text: str) -> float | None:
    try:
        return float(text.rstrip("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None


METRICS: dict[str, Callable[[str, str], float]] = {
    "relaxed": _relaxed,
    "exact": _exact,
    "anls": _anls,
    "chartqa": _chartqa,
    "vqa": lambda prediction, answer: vqa_score(prediction, [answer]),
}
