"""Cut a text into items: amounts, dates, times, identifiers and words. An item is never cut in two.

>>> [(item.kind, item.code) for item in scan("Shelf H-514: $42.90 on 12.3.2018").items]
[('word', 'shelf'), ('id', 'h514'), ('amount', '42.90'), ('word', 'on'), ('date', '12-3-2018')]
"""

import re
from functools import lru_cache
from typing import NamedTuple

from stakes.evaluation.value.amounts import Amount, amount_at
from stakes.evaluation.value.dates import CalendarDate, ClockTime, date_at, time_at
from stakes.evaluation.value.normalize import LETTER, UNSPACED, normalize
from stakes.evaluation.value.units import CURRENCY_NAMES

_RUN = re.compile(rf"(?:\d|{LETTER})++(?:(?:[-_/^]+|(?<=\d)[.,:'](?=\d)|'(?={LETTER}))(?:\d|{LETTER})++)*+")
# Groups of digits that make one number: 212-555-0199, (212) 555 0199, 3/2, 5 - 10, 5 to 10.
_GROUPS = re.compile(
    r"(?:[(]\d++(?=[)])|\d++)(?:(?:[)] ?[-/]? ?[(]?| ?[(]| (?:to|bis) | ?[-/]+ ?|[.:'^]| )\d++)++"
    rf"(?!\d|{LETTER}|[-.,:'^_/]\d|[-_/^]{LETTER})"
)
_IBAN = re.compile(rf"[a-z]{{2}}\d\d(?: [a-z0-9]{{4}}){{2,7}}(?: [a-z0-9]{{1,3}})?(?!\d|{LETTER})")
_ADDRESSES = [
    re.compile(r"[^\s@<>()\[\]\"',;:]{1,64}@([^\s@<>()\[\]\"',;:]{1,255})"),
    re.compile(r"(?:https?://|www[.]){1,2}([^\s\"'<>]+)"),
    re.compile(r"(?:[a-z0-9-]{1,63}[.]){1,5}(?:com|org|net|gov|edu|io|co[.]uk)(?![a-z0-9])(?:/[^\s\"'<>,;]*)?()"),
]
_WEB = re.compile(r"@|://|www[.]|[.](?:com|org|net|gov|edu|io|co[.]uk)(?![a-z0-9])")
_NEGATIVE = re.compile(r"(\D{0,4})[(]([^()]*\d[^()]*)[)](\D{0,5})")
_SKIPPED = frozenset(" ,;:!?\"'*=<>[]{}|~\\")
_RANGE = re.compile(r"(?<=\d) +-+ *(?=\d)")  # 5 - 10 and 5 -10 are 5-10
_UNSPACED = re.compile(UNSPACED)
_SPLIT = re.compile(r"[-_/^]+")
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th)")
_DIGIT = re.compile(r"\d")
_GAP = re.compile(r"(?<=\d)(?:[^0-9a-z]+| to | bis )(?=\d)")
_MARKS = re.compile(r"[-_/^.,:' ()]")
_LABELS = {"no", "nr", "num", "number", "page", "pg", "p"}


class Item(NamedTuple):
    """One word or value: ``code`` is its spelling for comparisons of text, ``value`` what it means."""

    kind: str  # amount, date, time, id, word
    code: str
    value: Amount | CalendarDate | ClockTime | None = None


class Scanned(NamedTuple):
    """A normalized text and its items."""

    text: str
    items: tuple[Item, ...]


@lru_cache(maxsize=8192)
def scan(text: str) -> Scanned:
    """The items of a text, without articles and without words such as "no." and "page" before a number."""
    text = _RANGE.sub("-", normalize(text).rstrip(".").strip()).replace("( ", "(").replace(" )", ")")
    items = _in_parentheses(text) or _items(text)
    if len(items) > 1:
        items = [item for i, item in enumerate(items) if not _is_label(items, i)]
    return Scanned(text, tuple(items))


def _is_label(items: list[Item], i: int) -> bool:
    if items[i].kind != "word":
        return False
    code = items[i].code
    return code == "the" or (code in _LABELS and i + 1 < len(items) and items[i + 1].kind in ("amount", "id"))


def _in_parentheses(text: str) -> list[Item]:
    """A whole text such as (42.90) or $(42.90) is below zero; (31), a bare whole number, may be either."""
    found = _NEGATIVE.fullmatch(text)
    if not found:
        return []
    items = _items(f"{found[1]}{found[2]}{found[3]}")
    if len(items) != 1 or not isinstance(amount := items[0].value, Amount):
        return []
    below = amount.negated(keep=found[0][1:-1].isdigit())
    return [items[0]._replace(value=below)]


def _items(text: str) -> list[Item]:
    items: list[Item] = []
    has_values, at = bool(_DIGIT.search(text) or _WEB.search(text)), 0
    while at < len(text):
        if text[at] in _SKIPPED:
            at += 1
            continue
        found, at = _item_at(text, at) if has_values else _run_at(text, at)
        items += found
    return items


def _item_at(text: str, at: int) -> tuple[list[Item], int]:
    """The item or the words that begin at a position, with the position after them."""
    char = text[at]
    if char.isdigit() or char == "(":
        found = _value_at(text, at)
    elif char.isalpha():
        found = _named_value_at(text, at)
    else:
        found = _signed_at(text, at)
    return found or _run_at(text, at)


def _value_at(text: str, at: int) -> tuple[list[Item], int] | None:
    """A date, a time, an amount, or groups of digits."""
    amount = None
    if text[at] != "(":
        if date := date_at(text, at):
            return [_of_date(date[0])], date[1]
        if time := time_at(text, at):
            return [Item("time", f"{time[0].hour}:{time[0].minute:02}:{time[0].second:02}", time[0])], time[1]
        amount = amount_at(text, at)
    groups = _GROUPS.match(text, at)
    if text[at] == "(" and not groups:
        return _bracketed_at(text, at)
    if amount and not (groups and groups.end() > amount[1] and "." not in amount[0].printed):
        return [_of_amount(amount[0])], amount[1]
    return ([_identifier(groups[0])], groups.end()) if groups else None


def _bracketed_at(text: str, at: int) -> tuple[list[Item], int] | None:
    """In a sentence, (42.90) may be below zero or not."""
    found = amount_at(text, at + 1) if text[at + 1 : at + 2].strip() else None
    if not found or text[found[1] : found[1] + 1] != ")":
        return None
    return [_of_amount(found[0].negated(keep=True))], found[1] + 1


def _named_value_at(text: str, at: int) -> tuple[list[Item], int] | None:
    """A date in words, an amount after its currency, an IBAN, or an address of the web."""
    if date := date_at(text, at):
        return [_of_date(date[0])], date[1]
    if amount := amount_at(text, at):
        return [_of_amount(amount[0])], amount[1]
    if iban := _IBAN.match(text, at):
        return [_identifier(iban[0])], iban.end()
    for pattern in _ADDRESSES:
        if found := pattern.match(text, at):
            address = found[0] if "@" in found[0] else found[1] or found[0]
            return [Item("id", address.rstrip("./"))], found.end()
    return None


def _signed_at(text: str, at: int) -> tuple[list[Item], int] | None:
    """An amount after its sign or the symbol of its currency. A dash and a space may begin a list as well."""
    before = text[at - 1] if at else " "
    if text[at] in ",'" or at + 1 == len(text) or (text[at] in "-+." and before not in " (:=$€£"):
        return None
    if text[at] == "+" and text[at + 1].isdigit():
        return _value_at(text, at + 1)  # +49 30 1234567
    is_bullet = text[at] == "-" and at == 0 and text[1] == " "
    found = amount_at(text, at + 2 * is_bullet) if len(text) > at + 2 or not is_bullet else None
    if not found:
        return None
    amount, after = found
    return [_of_amount(amount.negated(keep=True) if is_bullet else amount)], after


def _run_at(text: str, at: int) -> tuple[list[Item], int]:
    """An identifier, words, one character of a script without spaces, or nothing."""
    run = _RUN.match(text, at)
    if run is None:
        word = "and" if text[at] == "&" else text[at] if _UNSPACED.match(text, at) else ""
        return ([Item("word", word)] if word else []), at + 1
    if run[0].isalpha():
        return [Item("word", run[0])], run.end()
    if _DIGIT.search(run[0]) and not _ORDINAL.fullmatch(run[0]):
        return [_identifier(run[0])], run.end()
    return [Item("word", word.replace("'", "")) for word in _SPLIT.split(run[0]) if word], run.end()


def _identifier(text: str) -> Item:
    """Marks between two digits count, all alike; others do not: H-514 is H514, 3/2 is 3-2 and not 32."""
    return Item("id", _MARKS.sub("", _GAP.sub("\0", text)).replace("\0", "-"))


def _of_amount(amount: Amount) -> Item:
    names = amount.units - CURRENCY_NAMES
    unit = min(names) if names and names == amount.units and "%" not in names else ""
    sign = "minus" if all(value[0] == "-" for value in amount.readings) else ""
    return Item("amount", f"{sign}{amount.printed}{unit}", amount)


def _of_date(date: CalendarDate) -> Item:
    """A date in text: year, month and day, or as printed where day and month are unclear."""
    parts = (date.year, *date.month_first) if date.day_first == date.month_first else (*date.month_first, date.year)
    return Item("date", "-".join(str(part) for part in parts if part), date)
