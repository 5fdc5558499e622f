"""Agreement of two raters of tiers: confusion, Cohen's kappa, the gold-answer check, and kinds of disagreement.

Paper, "Validation of Consequence Signals", Table "Label validation": kappa = (observed - chance) / (1 - chance), where
chance is the agreement of two raters who keep their own rates but do not look at the question. The objective check
calls a question quantitative if any reference answer contains a digit or a currency or percent marker.

Paper, "Disagreement taxonomy": the rule is too high on navigational numbers (page, table, chapter; "the number at the
bottom right") and on trivial times (coffee break, lunch). It is too low on transactional cues that it does not list
(budget, tel, zip). Everything else is "other". The kind is read off the question alone.

>>> round(Confusion.two(hh=271, ll=204, hl=29, lh=96).kappa, 3)
0.583
>>> is_quantitative(["ten", "$ ten"]), is_quantitative(["President"])
(True, False)
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stakes.errors import BadInput
from stakes.tiers import PAPER_TIERS

PERCENT = "%\u2030\u066a\ufe6a\uff05"  # percent, per mille, and the Arabic, small and full-width percent signs


@dataclass(frozen=True)
class Confusion:
    """How often each tier of the first rater occurs with each of the second: ``counts[first][second]``."""

    tiers: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        size = len(self.tiers)
        if len(set(self.tiers)) != size or len(self.counts) != size or any(len(row) != size for row in self.counts):
            raise BadInput(f"a confusion of {size} different tiers needs {size} rows of {size} counts")
        if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for row in self.counts for n in row):
            raise BadInput("the counts of a confusion must be whole numbers, zero or more")
        if self.n == 0:
            raise BadInput("a confusion needs at least one question")

    @classmethod
    def of(cls, first: Sequence[str], second: Sequence[str], tiers: Iterable[str] | None = None) -> "Confusion":
        """Count two raters' tiers of the same questions; the tiers' order is as given, else sorted."""
        if len(first) != len(second):
            raise BadInput(f"two raters must rate the same questions, not {len(first)} and {len(second)}")
        names = tuple(sorted({*first, *second})) if tiers is None else tuple(tiers)
        pairs = Counter(zip(first, second, strict=True))
        unknown = {name for pair in pairs for name in pair} - set(names)
        if unknown:
            raise BadInput(f"unknown tier {min(unknown)!r}; the tiers are {', '.join(names)}")
        return cls(names, tuple(tuple(pairs[a, b] for b in names) for a in names))

    @classmethod
    def two(cls, *, hh: int, ll: int, hl: int, lh: int, high: str = "high", low: str = "low") -> "Confusion":
        """Build a confusion from the paper's four cells (``hl``: first rater high, second low)."""
        return cls((high, low), ((hh, hl), (lh, ll)))

    @property
    def n(self) -> int:
        """How many questions were rated."""
        return sum(map(sum, self.counts))

    @property
    def agreement(self) -> float:
        """The share of questions that both put in the same tier."""
        return sum(self.counts[i][i] for i in range(len(self.tiers))) / self.n

    @property
    def kappa(self) -> float:
        """Cohen's kappa; NaN where both raters put every question in one tier, so that it is not defined."""
        rows = [sum(row) for row in self.counts]
        columns = [sum(column) for column in zip(*self.counts, strict=True)]
        # in whole numbers until the last division, so that the test for "not defined" is exact
        chance = sum(row * column for row, column in zip(rows, columns, strict=True))
        same = sum(self.counts[i][i] for i in range(len(self.tiers))) * self.n
        whole = self.n * self.n
        return math.nan if chance == whole else (same - chance) / (whole - chance)


def is_quantitative(answers: Iterable[str]) -> bool:
    """Whether any reference answer contains a digit, a percent sign or a currency sign of any country."""
    if isinstance(answers, str):
        raise BadInput(f"answers must be a list of texts, not the one text {answers!r}")
    return any(
        char.isdigit() or char in PERCENT or unicodedata.category(char) == "Sc" for text in answers for char in text
    )


def gold_check(answers: Iterable[Iterable[str]], high: str = "high", low: str = "low") -> list[str]:
    """The tier of each question by its reference answers: high where they are quantitative."""
    return [high if is_quantitative(texts) else low for texts in answers]


NAVIGATIONAL, TRIVIAL_TIME, MISSED_CUE, OTHER = KINDS = (
    "navigational number",
    "trivial time",
    "missed transactional cue",
    "other",
)

_PLACE = (
    r"(?:page|table|chapter|figure|fig|section|slide|exhibit|appendix|annexure|question|point|paragraph|row|column|line"
    r"|item|sheet|box|attachment|schedule)"
)
_NUMBER = r"(?:number|no\b\.?|#)"
_LOCATOR_ASKED = re.compile(  # the locator itself is asked for
    rf"\b{_PLACE}\s*{_NUMBER}"  # page number, table no.
    rf"|\b{_NUMBER}\s+(?:of|on|in|for)\s+(?:the\s+|this\s+|which\s+)*{_PLACE}\b"  # number of the page
    r"|\bnumber\b[^?]*\b(?:bottom|top|corner|header|footer|margin)\b",  # the number at the bottom right
    re.IGNORECASE,
)
_LOCATOR_MENTIONED = re.compile(
    rf"\b{_PLACE}\s+(?:[a-z]\.?-?)?\d[\w.-]*|\bfigure\b", re.IGNORECASE
)  # figure C.2, table V-13
_CLOCK = re.compile(r"\b(?:time|when)\b", re.IGNORECASE)
_OCCASION = re.compile(
    r"\b(?:coffee|tea|lunch\w*|dinner|breakfast|break|recess|meals?|schedul\w*|agenda|session|registration|reception"
    r"|cocktails?|opening|welcome|closing|adjourn\w*|remarks|introduction|talk|speech|presentation|discussion|tour)\b",
    re.IGNORECASE,
)
_CUE = re.compile(
    r"[$€£¥₹]|#|\b(?:budget\w*|tel|telephone|mobile|cell|extension|zip|zip\s*code|zipcode|pin\s*code|pincode|postal"
    r"|invoice|voucher|fund\w*|serial|account|balance|charges?|charged|fees?|fare|paid|pay\w*|salary|wages?|stipend|tips?"
    r"|expens\w*|expenditures?|costs|prices|revenues?|sales|profits?|income|earnings|assets|liabilit\w*|dividends?|tax\w*"
    r"|interest|loans?|debt|deposits?|dollars?|currency|net\s+worth|turnover|margin|ratio|no|nos|numbers|dates|years|dated"
    r"|amounts|totals|values|rates|percentages|quantities|codes|ids|age|dos(?:e|age))\b",
    re.IGNORECASE,
)


def kind_of(question: str, *, too_high: bool) -> str:
    """The kind of a disagreement; ``too_high``: the rule's tier is the more expensive one.

    >>> kind_of("What is the page number?", too_high=True)
    'navigational number'
    >>> kind_of("What is the zipcode?", too_high=False)
    'missed transactional cue'
    """
    if not too_high:
        # the gold-answer check calls a page number quantitative: then the check is wrong, and no cue was missed
        if _LOCATOR_ASKED.search(question):
            return NAVIGATIONAL
        return MISSED_CUE if _CUE.search(question) else OTHER
    if _CLOCK.search(question) and _OCCASION.search(question):
        return TRIVIAL_TIME
    return NAVIGATIONAL if _LOCATOR_ASKED.search(question) or _LOCATOR_MENTIONED.search(question) else OTHER


def disagreements(questions: Sequence[str], rule: Sequence[str], check: Sequence[str]) -> list[tuple[str, str]]:
    """Every question on which rule and check differ, with its kind; their tiers are the paper's."""
    order = [tier.name for tier in PAPER_TIERS]  # most expensive first
    if not len(questions) == len(rule) == len(check):
        raise BadInput(f"rule and check must rate the same questions: {len(questions)}, {len(rule)}, {len(check)}")
    unknown = ({*rule, *check}) - set(order)
    if unknown:
        raise BadInput(f"tier {min(unknown)!r} is not in {', '.join(order)}")
    return [
        (question, kind_of(question, too_high=order.index(ours) < order.index(theirs)))
        for question, ours, theirs in zip(questions, rule, check, strict=True)
        if ours != theirs
    ]
