"""Grade answers by one of seven metrics: ``value`` or ``fields`` for your own data, five by their official definitions.

| metric    | score                                                                                      |
|-----------|--------------------------------------------------------------------------------------------|
| value     | 1 if the values are equal: amounts, dates, whole identifiers, whole words (docs/metrics.md)|
| fields    | ``anls`` where the answer is text with words, such as a name or an address; else ``value``  |
| relaxed   | 1 if, normalized, prediction and an answer are equal or one contains the other (the paper) |
| exact     | 1 if they are equal, normalized                                                            |
| anls      | 1 - edit distance / longer length, best over answers, 0 below 0.5 (DocVQA, InfographicVQA) |
| chartqa   | 1 if a number is within 5 % of the answer, or the strings are equal (ChartQA)              |
| vqa       | agreement with several people, each left out in turn (TextVQA, VQAv2)                      |

A score of 0.5 or more counts as correct in paired tests; the raw score is kept for everything else.

    >>> grade("$1,240.00 in total.", ["$1,240.00"])
    1.0
    >>> grade("1.240,00 €", ["1,240.00"]), grade("4", ["42.90"]), grade("4", ["42.90"], metric="relaxed")
    (1.0, 0.0, 1.0)
    >>> grade("Sargaso Sea", ["Sargasso Sea"], metric="anls")
    0.9166666666666666
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from unicodedata import normalize

from stakes.errors import BadInput

_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_COMMA_IN_NUMBER = re.compile(r"(?<=\d),+(?=\d)")
_PERIOD = re.compile(r"\.(?!\d)")
_MAX_PERIODS = 32  # the official code passes re.UNICODE (32) where re.sub expects the number of replacements
_NUMBERS = {
    word: str(value)
    for value, word in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    )
} | {"none": "0"}
_ARTICLES = {"a", "an", "the"}

# Every contraction that the official table repairs; it repairs each when exactly one apostrophe is missing.
_CONTRACTIONS = """
ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've
he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't not've
o'clock oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's
someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've there're
there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's what've
when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've wouldn't
wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've
""".split()
_REPAIRS = {
    whole[:i] + whole[i + 1 :]: whole for whole in _CONTRACTIONS for i, char in enumerate(whole) if char == "'"
} | {"somebody'd": "somebodyd"}  # the one entry that the official table has the wrong way round


def vqa_normalize(text: str) -> str:
    """The official answer normalizer: ``"The  two-door cars."`` becomes ``"2 door cars"``.

    Its quirks are part of the definition and are kept: all punctuation vanishes from a text that has a comma between
    digits, otherwise it becomes a space; a period stays only before a digit; "none" reads as "0".
    """
    text = text.lower().replace(",", "").replace("?", "").replace("'s", " 's").strip()
    return _digits_and_articles(_punctuation(text.replace("\n", " ").replace("\t", " ").strip()))


def _punctuation(text: str) -> str:
    glued = _COMMA_IN_NUMBER.search(text) is not None
    out = text
    for mark in _PUNCTUATION:
        beside_space = mark + " " in text or " " + mark in text
        out = out.replace(mark, "" if beside_space or glued else " ")
    return _PERIOD.sub("", out, count=_MAX_PERIODS)


def _digits_and_articles(text: str) -> str:
    words = (_NUMBERS.get(word, word) for word in text.lower().split())
    return " ".join(_REPAIRS.get(word, word) for word in words if word not in _ARTICLES)


def vqa_score(prediction: str, answers: Sequence[str]) -> float:
    """The consensus score in [0, 1] of ``prediction`` against one answer per annotator (usually ten).

    Official definition (VQAv2 and TextVQA evaluation): normalize prediction and answers alike, then

        score = mean over annotators i of min(1, matches among the other annotators / 3)
    """
    if len(answers) < 3:
        raise BadInput(
            f"metric vqa compares with the answers of several people, and this sample has {len(answers)}, with which "
            "no prediction can be right; give each annotator's answer, or grade with exact or anls"
        )
    given = vqa_normalize(prediction)
    people = Counter(vqa_normalize(answer) for answer in answers)
    matches, n = people[given], len(answers)
    # An annotator who gave this very answer sees one match fewer among the others.
    return (matches * min(1, (matches - 1) / 3) + (n - matches) * min(1, matches / 3)) / n


CORRECT_FROM = 0.5
DEFAULT_METRIC = "value"
"""For users' own data. The paper's tables are graded by ``relaxed`` (``experiments``)."""


def grade(prediction: str, answers: Sequence[str], metric: str = DEFAULT_METRIC, *, truncated: bool = False) -> float:
    """The score in [0, 1] of ``prediction`` against every acceptable answer.

    An empty prediction is never correct, although "" is contained in everything. A ``truncated`` prediction was cut
    at the answer's length limit: being a mere piece of an answer does not make it right. For ``value`` its last word,
    which may have been cut, does not count.
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
    if not _normalize(prediction):
        return 0.0
    if metric == "vqa":
        return vqa_score(prediction, answers)
    if metric == "fields":
        return max(grade(prediction, [answer], _metric_of(answer), truncated=truncated) for answer in answers)
    if metric == "relaxed" and truncated:
        return max(float(_normalize(a) in _normalize(prediction)) if _normalize(a) else 0.0 for a in answers)
    if metric == "value" and truncated:
        prediction = " ".join(prediction.split()[:-1])
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
    given, golds = _normalize(prediction), [_normalize(answer) for answer in answers]
    if not given or any(gold and gold in given for gold in golds):
        return False
    lacking = ["".join(gold.split(given, 1)) for gold in golds if given in gold]
    return bool(lacking) and all(any(map(str.isalnum, rest)) for rest in lacking)


def _normalize(text: str) -> str:
    """The paper's normalizer: strip white space, lower case, drop one trailing period.

    Beyond the paper, one white space is like another (a model writes "12 000" with plain spaces where the answer has
    narrow ones), and so is one Unicode form of a letter.
    """
    return " ".join(normalize("NFC", text).split()).lower().removesuffix(".").strip()


def _relaxed(prediction: str, answer: str) -> float:
    given, gold = _normalize(prediction), _normalize(answer)
    return float(bool(gold) and (gold in given or given in gold))


def _value(prediction: str, answer: str) -> float:
    from stakes.evaluation.value.match import is_right  # not at the top: its patterns take time to compile

    return float(is_right(prediction, answer))


def _metric_of(answer: str) -> str:
    """``value`` for amounts, dates, times and identifiers; ``anls`` for text, in which a misread letter is forgiven."""
    from stakes.evaluation.value.scan import scan

    return "anls" if any(item.kind == "word" for item in scan(answer).items) else "value"


def _exact(prediction: str, answer: str) -> float:
    return float(_normalize(prediction) == _normalize(answer))


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
    "value": _value,
    "fields": lambda prediction, answer: grade(prediction, [answer], "fields"),
    "relaxed": _relaxed,
    "exact": _exact,
    "anls": _anls,
    "chartqa": _chartqa,
    "vqa": lambda prediction, answer: vqa_score(prediction, [answer]),
}
