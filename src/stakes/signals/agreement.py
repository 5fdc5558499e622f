"""Do two ways of giving tiers agree? Confusion, agreement, Cohen's kappa, and the gold-answer check.

Paper, "Validation of Consequence Signals", Table "Label validation": kappa = (observed - chance) / (1 - chance), where
chance is the agreement of two raters who keep their own rates but do not look at the question. The objective check
calls a question quantitative if any reference answer contains a digit or a currency or percent marker.

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
from typing import Any

from stakes.errors import BadInput

PERCENT = "%\u2030\u066a\ufe6a\uff05"  # percent, per mille, and the Arabic, small and full-width percent signs


@dataclass(frozen=True)
class Confusion:
    """How often each tier of the first rater met each of the second: ``counts[first][second]``."""

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
        strange = {name for pair in pairs for name in pair} - set(names)
        if strange:
            raise BadInput(f"unknown tier {min(strange)!r}; the tiers are {', '.join(names)}")
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
        """The share of questions on which both say the same."""
        return sum(self.counts[i][i] for i in range(len(self.tiers))) / self.n

    @property
    def kappa(self) -> float:
        """Cohen's kappa; NaN where both raters only ever say one and the same tier, since chance then explains all."""
        rows = [sum(row) for row in self.counts]
        columns = [sum(column) for column in zip(*self.counts, strict=True)]
        # in whole numbers until the last division, so that "chance explains all" is exact
        chance = sum(row * column for row, column in zip(rows, columns, strict=True))
        same = sum(self.counts[i][i] for i in range(len(self.tiers))) * self.n
        whole = self.n * self.n
        return math.nan if chance == whole else (same - chance) / (whole - chance)

    def share(self, first: str, second: str) -> float:
        """Of the questions that the first rater puts in ``first``, the share that the second puts in ``second``."""
        row = self.counts[self.tiers.index(first)]
        if not sum(row):
            raise BadInput(f"the first rater puts no question in {first!r}, so no share of them is defined")
        return row[self.tiers.index(second)] / sum(row)

    def to_dict(self) -> dict[str, Any]:
        """Return counts, agreement and kappa as plain JSON values (kappa null where undefined)."""
        counts = {f"{a}/{b}": self.counts[i][j] for i, a in enumerate(self.tiers) for j, b in enumerate(self.tiers)}
        kappa = None if math.isnan(self.kappa) else self.kappa
        return {"n": self.n, "agreement": self.agreement, "kappa": kappa, "counts": counts}


def is_quantitative(answers: Iterable[str]) -> bool:
    """Tell whether any reference answer contains a digit, a percent sign or a currency sign of any country."""
    if isinstance(answers, str):
        raise BadInput(f"answers must be a list of texts, not the one text {answers!r}")
    return any(
        char.isdigit() or char in PERCENT or unicodedata.category(char) == "Sc" for text in answers for char in text
    )


def gold_check(answers: Iterable[Iterable[str]], high: str = "high", low: str = "low") -> list[str]:
    """Give each question the tier that its reference answers suggest: high where they are quantitative."""
    return [high if is_quantitative(texts) else low for texts in answers]


# Where do a rule and a check differ, and in which known way? The disagreement list with the paper's taxonomy.
#
# Paper, "Disagreement taxonomy": the rule is too high on navigational numbers (page, table, chapter; "the number at
# the
# bottom right") and on trivial times (coffee break, lunch); it is too low on transactional cues that it does not list
# (budget, tel, zip). Everything else is "other". The kinds are read off the question alone, by the patterns below.
#
# >>> kind_of("What is the page number?", too_high=True)
# 'navigational number'
# >>> kind_of("What is the zipcode?", too_high=False)
# 'missed transactional cue'


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
_ASKED = re.compile(  # the locator itself is asked for
    rf"\b{_PLACE}\s*{_NUMBER}"  # page number, table no.
    rf"|\b{_NUMBER}\s+(?:of|on|in|for)\s+(?:the\s+|this\s+|which\s+)*{_PLACE}\b"  # number of the page
    r"|\bnumber\b[^?]*\b(?:bottom|top|corner|header|footer|margin)\b",  # the number at the bottom right
    re.IGNORECASE,
)
_MENTIONED = re.compile(rf"\b{_PLACE}\s+(?:[a-z]\.?-?)?\d[\w.-]*|\bfigure\b", re.IGNORECASE)  # figure C.2, table V-13
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


@dataclass(frozen=True)
class Disagreement:
    """One question that the rule and a check put in different tiers, and the kind of mistake it looks like."""

    question: str
    rule: str
    check: str
    kind: str


def kind_of(question: str, *, too_high: bool) -> str:
    """Name the kind of a disagreement; ``too_high``: the rule's tier is the dearer one."""
    if not too_high:
        # the gold-answer check calls a page number quantitative: then the check is wrong, and no cue was missed
        if _ASKED.search(question):
            return NAVIGATIONAL
        return MISSED_CUE if _CUE.search(question) else OTHER
    if _CLOCK.search(question) and _OCCASION.search(question):
        return TRIVIAL_TIME
    return NAVIGATIONAL if _ASKED.search(question) or _MENTIONED.search(question) else OTHER


def disagreements(
    questions: Sequence[str],
    rule: Sequence[str],
    check: Sequence[str],
    order: Sequence[str] = ("high", "medium", "low"),
) -> list[Disagreement]:
    """List every question on which rule and check differ; ``order`` names the tiers, dearest first."""
    if not len(questions) == len(rule) == len(check):
        raise BadInput(f"rule and check must rate the same questions: {len(questions)}, {len(rule)}, {len(check)}")
    strange = ({*rule, *check}) - set(order)
    if strange:
        raise BadInput(f"tier {min(strange)!r} is not in the order {', '.join(order)}; name the tiers, dearest first")
    rank = {name: place for place, name in enumerate(order)}
    return [
        Disagreement(question, said, checked, kind_of(question, too_high=rank[said] < rank[checked]))
        for question, said, checked in zip(questions, rule, check, strict=True)
        if said != checked
    ]


def count_kinds(found: Iterable[Disagreement]) -> dict[str, int]:
    """Count disagreements by kind; every kind is listed, also where it has none."""
    counts = Counter(each.kind for each in found)
    return {kind: counts[kind] for kind in KINDS}
