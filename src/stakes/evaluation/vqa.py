"""The VQA consensus score: agreement with ten people, each left out in turn.

Official definition (VQAv2 and TextVQA evaluation): normalise prediction and answers alike, then

    score = mean over annotators i of min(1, matches among the other annotators / 3)

The official normaliser's quirks are part of the definition and are kept: all punctuation vanishes from a text that
has a comma between digits, otherwise it becomes a space; a period stays only before a digit; "none" reads as "0".
"""

import re
from collections import Counter
from collections.abc import Sequence

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


def vqa_normalise(text: str) -> str:
    """The official answer normaliser: ``"The  two-door cars."`` becomes ``"2 door cars"``."""
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
    """The consensus score in [0, 1] of ``prediction`` against one answer per annotator (usually ten)."""
    if len(answers) < 3:
        raise BadInput(
            f"metric vqa compares with the answers of several people, and this sample has {len(answers)}, with which "
            "no prediction can be right; give each annotator's answer, or grade with exact or anls"
        )
    given = vqa_normalise(prediction)
    people = Counter(vqa_normalise(answer) for answer in answers)
    matches, n = people[given], len(answers)
    # An annotator who gave this very answer sees one match fewer among the others.
    return (matches * min(1, (matches - 1) / 3) + (n - matches) * min(1, matches / 3)) / n
