"""Where do a rule and a check differ, and in which known way? The disagreement list with the paper's taxonomy.

Paper, "Disagreement taxonomy": the rule is too high on navigational numbers (page, table, chapter; "the number at the
bottom right") and on trivial times (coffee break, lunch); it is too low on transactional cues that it does not list
(budget, tel, zip). Everything else is "other". The kinds are read off the question alone, by the patterns below.

>>> kind_of("What is the page number?", too_high=True)
'navigational number'
>>> kind_of("What is the zipcode?", too_high=False)
'missed transactional cue'
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stakes.errors import BadInput

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
