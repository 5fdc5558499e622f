"""Dates and times in the forms that documents use.

>>> date_at("mar 12, 2018", 0)
(CalendarDate(year=2018, short=False, day_first=(3, 12), month_first=(3, 12)), 12)
>>> date_at("03/04/18", 0)
(CalendarDate(year=2018, short=True, day_first=(4, 3), month_first=(3, 4)), 8)
"""

import re
from typing import NamedTuple

from stakes.evaluation.value.normalize import LETTER

# English, German, French, Spanish, Italian, Portuguese and Dutch, with their abbreviations.
_MONTHS = [
    "january jan januar janvier janv enero ene gennaio gen janeiro januari jänner",
    "february feb februar février fevrier févr fév febrero febbraio fevereiro fev februari",
    "march mar märz maerz mär mars marzo março marco maart mrt",
    "april apr avril avr abril abr aprile",
    "may mai mayo maggio mag maio mei",
    "june jun juni juin junio giugno giu junho",
    "july jul juli juillet juil julio luglio lug julho",
    "august aug août aout agosto ago augustus",
    "september sept sep septembre septiembre settembre setembro",
    "october oct oktober okt octobre octubre ottobre ott outubro out",
    "november nov novembre noviembre novembro",
    "december dec dezember dez décembre decembre déc diciembre dic dicembre dezembro",
]
_MONTH = {name: number for number, names in enumerate(_MONTHS, start=1) for name in names.split()}
_WEEKDAYS = (
    "monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun montag "
    "dienstag mittwoch donnerstag freitag samstag sonntag lundi mardi mercredi jeudi vendredi samedi dimanche lunes "
    "martes miércoles jueves viernes sábado domingo lunedì martedì mercoledì giovedì venerdì sabato domenica"
).split()
_LAST_DAY = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_STARTS = {name[:3] for name in (*_MONTH, *_WEEKDAYS)}  # no date in words begins with anything else


_M = rf"(?P<name>{LETTER}{{3,11}}+)[.]?"  # any word here; whether it names a month is looked up
_D = r"(?P<day>\d{1,2})"
_Y = r"(?P<year>\d{4})"
_SHORT_Y = r"(?P<year>'?\d{4}|'?\d{2})"
_ENDS = rf"(?!\d|{LETTER}|[-.,:'/]\d|[-_/]{LETTER})"
_IN_WORDS = [
    rf"{_M}[ -]?{_D}(?:st|nd|rd|th)?(?:[, -]{{1,2}}(?P<year>'?\d{{4}}|'\d{{2}}|(?<=, )\d{{2}}))?",  # Mar 12, 2018
    rf"{_M},?[ /-]*(?P<year>\d{{4}}|'\d{{2}})",  # March 2018
]
_IN_DIGITS = [
    rf"{_Y}(?P<mark>[-/.]) ?(?P<month>\d{{1,2}})(?P=mark) ?{_D}[.]?",  # 2018-03-12
    rf"{_Y} ?[年년] ?(?P<month>\d{{1,2}}) ?[月월](?: ?{_D} ?[日일])?",  # 2018年3月12日
    r"(?P<one>\d{1,2})(?P<mark>[-/.]) ?(?P<two>\d{1,2})(?P=mark) ?(?P<year>\d{4}|\d{2})",  # 12/03/18
    r"(?P<one>\d{1,2}) (?P<two>\d{1,2}) (?P<year>(?:19|20)\d\d)",  # 12 03 2018
    rf"{_D}(?:st|nd|rd|th|er|o|[.])?[ /.-]*(?:of |de )?{_M}(?:(?:,? ?(?:of |de )?|[-/.]){_SHORT_Y})?",  # 12 March 2018
    rf"{_Y}[ ,/-]*{_M}[ /-]*{_D}",  # 2018-Mar-12
    rf"(?P<month>\d{{1,2}})/{_Y}",  # 03/2018
    r"(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)",  # 2018-03
]
_DIGITS_FIRST = [re.compile(form + _ENDS) for form in _IN_DIGITS]
_WORDS_FIRST = [re.compile(form + _ENDS) for form in _IN_WORDS]
_ANY_WEEKDAY = rf"(?:{'|'.join(sorted(_WEEKDAYS, key=len, reverse=True))})(?!{LETTER})"
_WEEKDAY_FIRST = re.compile(rf"{_ANY_WEEKDAY}[.]?,? ")
_WEEKDAY_LAST = re.compile(rf",? ?[(]?{_ANY_WEEKDAY}[)]?| ?[(][月火水木金土日월화수목금토일][)]")

_HALF = r"(?P<half>[ap])[.]?m(?:[.]|(?!\w))"
_CLOCK = [
    re.compile(form + rf"(?!\d|{LETTER}|[-.,:'/]\d)")
    for form in (
        rf"(?P<hour>\d{{1,2}})[:h](?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.]\d+)?)?(?: ?(?:{_HALF}|uhr|hrs?|h))?"
        r"(?: ?z| ?[+]\d\d:?\d\d|(?<=:\d\d:\d\d)-\d\d:?\d\d)?",  # 14:30-16:00 is no time zone
        rf"(?P<hour>\d{{1,2}})[.](?P<minute>\d\d) ?(?:{_HALF}|uhr|hrs)(?P<second>)",
        rf"(?P<hour>\d{{1,2}}) ?(?:{_HALF}|uhr|o'clock)(?P<minute>)(?P<second>)",
    )
]


class CalendarDate(NamedTuple):
    """A day as (month, day) read with the day first and with the month first; the two differ in 03/04/2018 only."""

    year: int | None
    short: bool  # the year has two digits
    day_first: tuple[int, int]
    month_first: tuple[int, int]

    def agrees_with(self, gold: "CalendarDate") -> bool:
        """Whether this can be the day of ``gold``. What gold leaves open, the day or the year, may be stated."""
        if gold.year is not None:
            if self.year is None:
                return False
            century = 100 if self.short or gold.short else 10_000
            if (self.year - gold.year) % century:
                return False
        return _same_day(self.day_first, gold.day_first) or _same_day(self.month_first, gold.month_first)


def _same_day(given: tuple[int, int], gold: tuple[int, int]) -> bool:
    return given[0] == gold[0] and gold[1] in (0, given[1])


class ClockTime(NamedTuple):
    """A time of day; ``hour`` counts to 24, ``printed`` is the hour as it stands and ``half`` is "a", "p" or ""."""

    hour: int
    minute: int
    second: int
    printed: int
    half: str

    def agrees_with(self, gold: "ClockTime") -> bool:
        """Whether this is the time of ``gold``. A gold time without am or pm may be completed, not the other way."""
        completed = not gold.half and bool(self.half) and self.printed == gold.printed
        return self[1:3] == gold[1:3] and (completed or self.hour == gold.hour)


def _is_day(month: int, day: int) -> bool:
    return 1 <= month <= 12 and 0 <= day <= _LAST_DAY[month - 1]


def date_at(text: str, start: int) -> tuple[CalendarDate, int] | None:
    """The date that begins at ``start``, with the position after it. A weekday may come first."""
    at = start
    if not text[at].isdigit():
        if text[at : at + 3] not in _STARTS:
            return None
        if weekday := _WEEKDAY_FIRST.match(text, at):
            at = weekday.end()
    for form in _DIGITS_FIRST if text[at : at + 1].isdigit() else _WORDS_FIRST:
        if (found := form.match(text, at)) and (date := _date(found.groupdict(""))):
            weekday = _WEEKDAY_LAST.match(text, found.end())
            return date, (weekday or found).end()
    return None


def _full_year(short: int) -> int:
    return short + (1900 if short > 68 else 2000)


def _date(part: dict[str, str]) -> CalendarDate | None:
    year_text = part.get("year", "").lstrip("'")
    year, short = int(year_text) if year_text else None, len(year_text) == 2
    if year is not None and short:
        year = _full_year(year)
    if "one" not in part:
        month = _MONTH.get(part["name"], 0) if "name" in part else int(part["month"])
        day = int(part.get("day") or 0)
        if not _is_day(month, day) or (part.get("day") and not day):
            return None
        return CalendarDate(year, short, (month, day), (month, day))
    one, two = int(part["one"]), int(part["two"])
    days = [(two, one) if one and _is_day(two, one) else None, (one, two) if two and _is_day(one, two) else None]
    day_first, month_first = days[0] or days[1], days[1] or days[0]
    if day_first and month_first:
        return CalendarDate(year, short, day_first, month_first)
    last = int(year_text)
    if short and one > 31 and last and _is_day(two, last):  # 99/12/31
        return CalendarDate(_full_year(one), True, (two, last), (two, last))
    return None


def compact_date(digits: str) -> CalendarDate | None:
    """The date in eight digits such as 20180312."""
    if len(digits) != 8 or not digits.isdigit() or digits[:2] not in ("19", "20"):
        return None
    return _date({"year": digits[:4], "month": digits[4:6], "day": digits[6:]})


def time_at(text: str, start: int) -> tuple[ClockTime, int] | None:
    """The time of day that begins at ``start``, with the position after it."""
    for form in _CLOCK:
        if found := form.match(text, start):
            hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
            half = found["half"] or ""
            if hour > (12 if half else 24) or minute > 59 or second > 59:
                return None
            full = hour % 12 + 12 * (half == "p") if half else hour
            return ClockTime(full, minute, second, hour, half), found.end()
    return None
