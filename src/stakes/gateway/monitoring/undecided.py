"""Undecided requests: their share, and masked example texts that are kept in memory only where asked.

    texts = UndecidedTexts(keep=50, hours=24)
    texts.add(example_text(Prompt("Lies Feld 12 für anna@example.com")))
    texts.records()          # [{"text": "Lies Feld ## für [e-mail]", "count": 1, "seconds_ago": 0}]

Digits and e-mail addresses are masked before a text is kept. Names and other words are not. Nothing here is written to
a disk, and it ends with the process.
"""

import asyncio
import re
import time
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from stakes.signals.prompt import Prompt
from stakes.signals.requests.clauses import read_question
from stakes.signals.requests.text import clauses, cut, without_examples
from stakes.signals.requests.vocabulary import Vocabulary

HIGH_SHARE = 0.10
"""A larger share of undecided requests comes with advice."""
ADVICE = "extend the vocabulary with the words of these requests (docs/signals.md)"
SEE_EXAMPLES = "stakes serve --keep-undecided 50 keeps masked examples for the dashboard"
LONGEST_TEXT = 300
_SEARCHED = 20_000  # characters of a text
_SWEEP_S = 60.0
_E_MAIL = re.compile(r"(?<!\S)[^\s@＠﹫]*[@＠﹫]\S*")  # the whole word; it matches at word starts only, in linear time
_JOINERS = "\u200c\u200d"  # part of the spelling of Arabic and Indic words
_NEUTRAL = ("nothing", "recheck", "follow_up")


@dataclass(frozen=True)
class UndecidedShare:
    """How many image requests were undecided, of all whose tier was chosen."""

    undecided: int
    requests: int

    @classmethod
    def of(cls, undecided: float, requests: Iterable[tuple[Mapping[str, str], float]]) -> "UndecidedShare":
        """From ``stakes_undecided_total`` and the labels and values of ``stakes_requests_total``.

        Text, bypassed and refused requests have no tier and do not count.
        """
        return cls(round(undecided), round(sum(count for labels, count in requests if labels["tier"])))

    @property
    def share(self) -> float | None:
        """None before the first image request."""
        return self.undecided / self.requests if self.requests else None

    @property
    def high(self) -> bool:
        """Whether the share is above ``HIGH_SHARE``."""
        return (self.share or 0.0) > HIGH_SHARE

    def advice(self, keeping: bool = False) -> str:
        """What to do about a high share, else ""; ``keeping``: texts are kept already."""
        return (ADVICE if keeping else f"{ADVICE}; {SEE_EXAMPLES}") if self.high else ""


@dataclass
class _Seen:
    count: int
    last: float


class UndecidedTexts:
    """The last ``keep`` different texts; each is dropped ``hours`` after it was last seen. Used by one thread."""

    def __init__(self, keep: int = 0, hours: float = 24.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.keep, self.hours, self._clock = keep, hours, clock
        self._texts: OrderedDict[str, _Seen] = OrderedDict()  # the one seen longest ago comes first

    def add(self, text: str) -> None:
        """Count a text; beyond ``keep`` the oldest one is dropped."""
        self.drop_old()
        seen = self._texts.setdefault(text, _Seen(0, 0.0))
        seen.count, seen.last = seen.count + 1, self._clock()
        self._texts.move_to_end(text)
        if len(self._texts) > self.keep:
            self._texts.popitem(last=False)

    def drop_old(self) -> None:
        """Drop what was last seen more than ``hours`` ago."""
        oldest = self._clock() - 3600 * self.hours
        while self._texts and next(iter(self._texts.values())).last < oldest:
            self._texts.popitem(last=False)

    async def sweep(self) -> None:
        """Drop old texts every minute until cancelled, also where no request comes and nobody looks."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.drop_old()

    def records(self) -> list[dict[str, Any]]:
        """The texts as JSON, the last seen first."""
        self.drop_old()
        now = self._clock()
        return [
            {"text": text, "count": seen.count, "seconds_ago": round(now - seen.last)}
            for text, seen in reversed(self._texts.items())
        ]


def example_text(prompt: Prompt) -> str:
    """What was not recognised, masked and cut: the question, the fields of the schema, and the system text's beginning.

    The system text is included only where the question is neutral ("Process this document.").
    """
    parts = [prompt.question]
    if prompt.schema:
        parts.append("fields: " + ", ".join(field.name for field in prompt.schema))
    if prompt.system.strip() and is_neutral(prompt.question):
        parts.append(f"system: {prompt.system}")
    return _cut(" · ".join(filter(None, map(mask, parts))))


def mask(text: str) -> str:
    """The beginning of a text in one line, with "#" for each digit of any script and without e-mail addresses.

    E-mail addresses are masked first, so that cutting leaves no part of one: a text too long to search is cut between
    two words.
    """
    if len(text) > _SEARCHED:
        text = text[:_SEARCHED].rsplit(None, 1)[0]
    words = _E_MAIL.sub("[e-mail]", text)[: 4 * LONGEST_TEXT].split()
    return _cut("".join(map(_masked, " ".join(words))).strip())


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def _masked(character: str) -> str:
    """A character as it is kept; control characters and other invisible ones are left out."""
    if character.isascii():
        return "#" if character.isdigit() else character if character.isprintable() else ""
    # also of the circled, the bold and the fractions; "㏠" is written "1日" as well
    if any(unicodedata.category(one)[0] == "N" for one in (character, *unicodedata.normalize("NFKC", character))):
        return "#"
    return character if character.isprintable() or character in _JOINERS else ""


def is_neutral(question: str) -> bool:
    """Whether a question says nothing of its own, by the built-in vocabulary."""
    text = without_examples(cut(question))
    said = clauses(text)
    matcher = _vocabulary().matcher(text, (word for clause in said for word in clause.words))
    return all(read_question(clause, matcher).wants in _NEUTRAL for clause in said)


@lru_cache(maxsize=1)
def _vocabulary() -> Vocabulary:
    return Vocabulary()
