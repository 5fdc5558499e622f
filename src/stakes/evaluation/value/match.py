"""Whether a prediction states the answer: its values are those of the answer, or its words contain the answer's.

>>> is_right("The total is 1.234,56 €", "1,234.56"), is_right("4", "42.90"), is_right("42.90 or 43.00", "42.90")
(True, False, False)
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from stakes.evaluation.value.amounts import Amount
from stakes.evaluation.value.dates import CalendarDate, ClockTime, compact_date
from stakes.evaluation.value.scan import Item, Scanned, scan

MOST_FURTHER_WORDS = 20  # a sentence around the answer has fewer; a transcript of the page has more
LONG_NUMBER = 7  # from so many digits on, as in phone and account numbers, marks between digits may be left out

_OR = {"or", "oder", "ou"}
_NOT = {"not", "non", "never", "without", "isnt", "wasnt", "cannot", "nicht", "kein", "keine", "pas", "ohne", "sans"}
_ALTERNATIVES = re.compile(r"(?<=\s)(?:and|und|et|or|oder|ou)(?=\s)|[&/]", re.IGNORECASE)
_BETWEEN_DIGITS = re.compile(r"(?<=\d)-(?=\d)")
_LISTED = re.compile(r"[,;|\n]+|" + _ALTERNATIVES.pattern, re.IGNORECASE)


def is_right(prediction: str, answer: str) -> bool:
    """Whether the prediction states the answer."""
    gold, given = scan(answer), scan(prediction)
    if gold.text and gold.text == given.text:
        return True
    if not gold.items or not given.items or len(given.items) > len(gold.items) + MOST_FURTHER_WORDS:
        return False
    if all(item.value is not None for item in gold.items):
        if _states_values(given.items, gold.items):
            return True
        if any(item.kind == "amount" for item in given.items):
            return False  # what follows is for 12345678 written as 1234 5678
    places = _places(given.items, gold.items)
    return any(_is_alone(given, gold, *place) for place in places) and not _is_one_of_several(prediction, answer)


def _states_values(given: Sequence[Item], gold: Sequence[Item]) -> bool:
    """Whether the values of each kind are those of gold, and there are no others of that kind."""
    given, gold = _with_compact_dates(given, gold), _with_compact_dates(gold, given)
    for kind in {item.kind for item in gold}:
        wanted = [item for item in gold if item.kind == kind]
        stated = [item for item in given if item.kind == kind]
        if len(wanted) == 1:
            wanted *= len(stated)
        if not stated or len(stated) != len(wanted) or not all(map(_agree, stated, wanted)):
            return False
        if any(after.kind == kind and before.code in _NOT for before, after in pairwise(given)):
            return False
    return True


def _with_compact_dates(items: Sequence[Item], others: Sequence[Item]) -> Sequence[Item]:
    """Items with 20180312 read as a date, where there is no other date and the other text has one."""
    kinds = {item.kind for item in items}
    if "amount" not in kinds or "date" in kinds or all(item.kind != "date" for item in others):
        return items
    dates = [compact_date(item.code) for item in items]
    return [Item("date", item.code, date) if date else item for item, date in zip(items, dates, strict=True)]


def _agree(given: Item, gold: Item) -> bool:
    match given.value, gold.value:
        case Amount() as one, Amount() as other:
            return one.agrees_with(other)
        case CalendarDate() as one, CalendarDate() as other:
            return one.agrees_with(other)
        case ClockTime() as one, ClockTime() as other:
            return one.agrees_with(other)
    return False


def _places(given: Sequence[Item], gold: Sequence[Item]) -> Iterator[tuple[int, int]]:
    """Where gold stands in the prediction as whole items, as (first item, last item). Spaces do not count."""
    digits = sum(char.isdigit() for item in gold for char in item.code)
    is_long = digits >= LONG_NUMBER and 2 * digits >= sum(len(item.code) for item in gold)
    wanted, _, _ = _spell(gold, is_long)
    text, starts, ends = _spell(given, is_long)
    at = text.find(wanted)
    while at >= 0:
        if at in starts and at + len(wanted) in ends:
            yield starts[at], ends[at + len(wanted)]
        at = text.find(wanted, at + 1)


def _spell(items: Sequence[Item], is_long: bool) -> tuple[str, dict[int, int], dict[int, int]]:
    """The items as one text without spaces, and which of them start and end where. Digits of two items stay apart."""
    text, starts, ends = "", {}, {}
    for i, item in enumerate(items):
        code = _BETWEEN_DIGITS.sub("", item.code) if is_long else item.code
        if not is_long and text[-1:].isdigit() and code[:1].isdigit():
            text += "-"
        starts[len(text)] = i
        text += code
        ends[len(text)] = i
    return text, starts, ends


def _is_alone(given: Scanned, gold: Scanned, first: int, last: int) -> bool:
    """Whether the prediction states gold at this place: not denied, and beside no other value of the same kind."""
    before = given.items[first - 1].code if first else ""
    after = given.items[last + 1].code if last + 1 < len(given.items) else ""
    has_digits = any(map(str.isdigit, gold.text))
    if before in _NOT or (before == "no" and not has_digits) or before in _OR or after in _OR:
        return False
    kinds = {item.kind for item in gold.items} - {"word"}
    codes = {item.code for item in gold.items}
    others = (*given.items[:first], *given.items[last + 1 :])
    if any(item.kind in kinds and item.code not in codes for item in others):
        return False
    return all(map(_units_agree, _amounts(given.items[first : last + 1]), _amounts(gold.items)))


def _amounts(items: Sequence[Item]) -> list[Amount]:
    return [item.value for item in items if isinstance(item.value, Amount)]


def _units_agree(one: Amount, other: Amount) -> bool:
    return not one.units or not other.units or bool(one.units & other.units)


def _is_one_of_several(prediction: str, answer: str) -> bool:
    """Whether the prediction is a list, and the answer, which is none, one of its parts."""
    if any(map(str.isdigit, answer)) or not _LISTED.search(prediction) or _LISTED.search(answer.strip()):
        return False
    parts = [part for part in _LISTED.split(prediction) if part.strip(" .\t")]
    if len(parts) < 3 and not _ALTERNATIVES.search(prediction):
        return False
    wanted = _spell(scan(answer).items, False)[0]
    short = [part for part in parts if len(part) < len(answer) + 12]  # a longer part is more than the answer
    return len(parts) > 1 and any(_spell(scan(part).items, False)[0] == wanted for part in short)
