"""Amounts: a number with its sign, its power of ten, and its currency or unit.

A number is kept as the text of its exact value, so no digit is lost to rounding. What can be read in two ways has two
readings: "1.200" is 1200 and 1.2.

    >>> amount_at("€ 1.234,56", 0)
    (Amount(readings=frozenset({'1234.56'}), units=frozenset({'eur'}), glued=False, printed='1234.56'), 10)
"""

import re
from typing import NamedTuple

from stakes.evaluation.value.normalize import LETTER
from stakes.evaluation.value.units import CURRENCIES, MONEY_SCALES, SCALES, UNITS

# A number ends where no further digit can belong to it: "1,234" does not end in "1,234,56".
ENDS = r"(?!\d|[-.,:'^_/]\d)"
_SPACED = re.compile(rf"[1-9]\d{{0,2}}(?: \d{{3}})++(?:[.,]\d++)?{ENDS}(?! \d)")
_SEPARATED = re.compile(rf"\d*+(?:[.,']\d++)++{ENDS}")
_PLAIN = re.compile(rf"\d++{ENDS}")
_MIXED = re.compile(rf"(\d++) (1/2|1/4|3/4|1/8|3/8|5/8|7/8){ENDS}")  # 2 1/2, which 2½ becomes when normalized
_FRACTIONS = {"1/2": "5", "1/4": "25", "3/4": "75", "1/8": "125", "3/8": "375", "5/8": "625", "7/8": "875"}

_SYMBOL = r"[$£¥¢฿৳\u20a0-\u20cf]"
_PREFIX = re.compile(rf"({LETTER}{{1,8}}+(?:{_SYMBOL})?+|{_SYMBOL})[.,:]?+ ?+(?=[-+]?[.]?\d)")
_WORD = rf"{LETTER}{{1,14}}+(?:\^?[23])?(?!\d|{LETTER})"
_PHRASE_SUFFIX = re.compile(rf"( ?)({LETTER}{{2,14}}+ {LETTER}{{2,14}}+)(?!\d)")
_WORD_SUFFIX = re.compile(rf"([- ]?)({_WORD})[.]?")
_SYMBOL_SUFFIX = re.compile(rf"( ?)([%‰円元원万萬億亿]|°[cf](?!{LETTER})|°|{_SYMBOL})")
_GLUED_LETTER = re.compile(rf"{LETTER}|[-_^]{LETTER}|/{LETTER}(?!{LETTER})")
_WHOLE_MARK = re.compile(r"[.,]-{1,2}(?!\d)")  # 50.- and 50,--
_MINUS = re.compile(rf"-(?![\d-]|{LETTER})")


class Amount(NamedTuple):
    """Every value that the text may mean, with its unit or currency (any of ``units``; empty where none stands)."""

    readings: frozenset[str]
    units: frozenset[str]
    glued: bool  # a single letter touches the digits: 5g, R500, but also 12V; it must not be missing
    printed: str  # the digits as printed, with a decimal point and without thousands separators

    def agrees_with(self, other: "Amount") -> bool:
        """Whether both can mean one value. A missing unit is forgiven; another one is not."""
        if not self.readings & other.readings:
            return False
        if self.units and other.units:
            return bool(self.units & other.units)
        return self.units == other.units or not (self.glued or other.glued)

    def negated(self, keep: bool = False) -> "Amount":
        """The amount below zero, or with ``keep`` an amount that may be either."""
        below = frozenset(
            value[1:] if value[0] == "-" else value if value == "0" else "-" + value for value in self.readings
        )
        return self._replace(readings=below | self.readings if keep else below)


def read_number(text: str) -> tuple[str, ...]:
    """What digits with separators can mean, the likeliest first; empty where they are not one number.

    >>> read_number("1.234,56"), read_number("12,34,567"), read_number("1.200"), read_number("192.168.0.1")
    (('1234.56',), ('1234567',), ('1200', '1.200'), ())
    """
    marks = re.sub(r"\d", "", text)
    if not marks:
        return (text,) if _is_plain_head(text) else ()
    head, mark, tail = text.rpartition(marks[-1])
    if len(marks) > 1 and mark in marks[:-1]:  # 1.234.567
        return (text.replace(mark, ""),) if set(marks) == {mark} and _is_grouped(text, mark) else ()
    if len(marks) > 1:  # 1.234,56
        grouping = marks[0]
        if mark in " '" or set(marks[:-1]) != {grouping} or not _is_grouped(head, grouping):
            return ()
        return (f"{head.replace(grouping, '')}.{tail}",)
    if mark in " '":
        return (head + tail,) if _is_grouped(text, mark) else ()
    decimal = (f"{head or '0'}.{tail}",) if _is_plain_head(head or "0") else ()
    if head == "0" or not _is_grouped(text, mark):
        return decimal
    return (head + tail,) if mark == "," else (head + tail, *decimal)


def _is_plain_head(digits: str) -> bool:
    return digits == "0" or not digits.startswith("0")


def _is_grouped(text: str, mark: str) -> bool:
    """Whether groups are of three digits, or of two and a last one of three, as in India."""
    head, *middle, last = text.split(mark)
    if not 0 < len(head) <= 3 or head[0] == "0" or len(last) != 3:
        return False
    sizes = set(map(len, middle))
    return sizes <= {3} or (sizes == {2} and mark == "," and len(head) <= 2)


def _exact(number: str, power: int = 0) -> str:
    """The shortest text of a value: 042.90 and 42.9 are the same, 1.5 with the power 6 is 1500000."""
    whole, _, rest = number.partition(".")
    if power:
        rest = rest.ljust(power, "0")
        whole, rest = whole + rest[:power], rest[power:]
    whole, rest = whole.lstrip("0") or "0", rest.rstrip("0")
    return f"{whole}.{rest}" if rest else whole


def amount_at(text: str, start: int) -> tuple[Amount, int] | None:
    """The amount that begins at ``start``, with the position after it. A currency or a sign may come first."""
    at, below, units, glued = start, False, frozenset[str](), False
    if text[at] in "+-":
        at, below = at + 1, text[at] == "-"
    if prefix := _PREFIX.match(text, at):
        units = CURRENCIES.get(prefix[1]) or frozenset()
        if not units:
            return None
        at, glued = prefix.end(), len(prefix[0]) == 1 and prefix[0].isalpha()
        if text[at] in "+-":
            at, below = at + 1, below or text[at] == "-"
    if (number := _number_at(text, at)) is None:
        return None
    readings, at = number
    amount = Amount(
        frozenset(map(_exact, readings)), units, glued, readings[-1] if "." in readings[-1] else readings[0]
    )
    if mark := _WHOLE_MARK.match(text, at):
        at = mark.end()
    elif mark := _MINUS.match(text, at):
        at, below = mark.end(), not below
    amount, at = _with_suffixes(amount, text, at)
    if _GLUED_LETTER.match(text, at):
        return None
    return (amount.negated() if below else amount), at


def _number_at(text: str, at: int) -> tuple[tuple[str, ...], int] | None:
    if mixed := _MIXED.match(text, at):
        return ((f"{mixed[1]}.{_FRACTIONS[mixed[2]]}",), mixed.end()) if _is_plain_head(mixed[1]) else None
    for pattern in (_SPACED, _SEPARATED, _PLAIN):
        if found := pattern.match(text, at):
            readings = read_number(found[0])
            return (readings, found.end()) if readings else None
    return None


def _with_suffixes(amount: Amount, text: str, at: int) -> tuple[Amount, int]:
    """The amount with the powers of ten, the currency or the unit that follow it, as in "5 million US dollars"."""
    for _ in range(3):
        for pattern in (_PHRASE_SUFFIX, _WORD_SUFFIX, _SYMBOL_SUFFIX):
            found = pattern.match(text, at)
            if found and (longer := _with_suffix(amount, found[1], found[2])):
                amount, at = longer, found.end()
                break
        else:
            break
    return amount, at


def _with_suffix(amount: Amount, gap: str, name: str) -> Amount | None:
    power = SCALES.get(name) or (MONEY_SCALES.get(name) if amount.units else None)
    if power:
        readings = frozenset(_exact(value, power) for value in amount.readings)
        return amount._replace(readings=readings, printed=_exact(amount.printed, power))
    is_letter = len(name) == 1 and name.isascii() and name.isalpha()
    units = UNITS.get(name)
    if not units or (is_letter and gap == "-"):  # 12-A is a house, not a current
        return None
    if amount.units:
        both = amount.units & units
        return amount._replace(units=both) if both else None
    return amount._replace(units=units, glued=amount.glued or (is_letter and not gap))
