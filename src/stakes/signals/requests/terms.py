"""Finds terms in the words of a clause: single words, phrases, stems, endings, and runs of unspaced characters.

>>> index = Index([Term("high", "due date"), Term("quantity", "date*"), Term("high", "*nummer")])
>>> [(hit.kind, hit.term) for hit in Matcher([[index]]).find(("due", "date", "dates", "rechnungsnummer"))]
[('high', 'due date'), ('quantity', 'dates'), ('high', 'rechnungsnummer')]
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from stakes.errors import BadInput
from stakes.signals.linear import UNSPACED
from stakes.signals.requests.text import fold, words

RANK = {
    kind: rank
    for rank, kind in enumerate(
        (
            "field", "high", "transcribe", "extract", "quantity", "command", "everything", "ignore", "reply",
            "describe", "low", "who", "recheck", "follow_up", "personal", "ask", "neutral", "and", "common",
        )
    )
}  # fmt: skip
"""Where languages disagree about the same words, the first kind in this order counts."""
LONGEST_RUN = 12
_RUN = re.compile(f"[{UNSPACED}]")


class Term(NamedTuple):
    """One entry of a vocabulary; ``tier`` is set for a user's own fields (kind ``field``)."""

    kind: str
    text: str
    tier: str = ""


class Hit(NamedTuple):
    """A term found at ``words[start:end]``; ``term``: the words as they stand there."""

    start: int
    end: int
    kind: str
    term: str
    tier: str = ""


class Index:
    """The terms of one language, by their first word; the longest of several is found first."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self.terms = tuple(terms)
        self._exact: dict[str, list[tuple[tuple[str, ...], Term]]] = {}
        self._stems: dict[str, list[tuple[tuple[str, ...], Term]]] = {}
        self._endings: dict[str, Term] = {}
        self.runs: dict[str, Term] = {}
        self.run_phrases: list[tuple[tuple[str, ...], Term]] = []  # Korean has spaces, and endings before them
        for term in sorted(self.terms, key=lambda term: -RANK[term.kind]):  # of the same words the last one stays
            self._add(parse_term(term.text), term)
        for index in (self._exact, self._stems):
            for entries in index.values():
                entries.sort(key=lambda entry: (-len(entry[0]), RANK[entry[1].kind]))
        self._shortest = min(map(len, self._stems), default=0), min(map(len, self._endings), default=0)
        self._beginnings = {stem[: self._shortest[0]] for stem in self._stems}  # most words match none of these
        self._tails = {ending[len(ending) - self._shortest[1] :] for ending in self._endings}

    def _add(self, parts: tuple[str, ...], term: Term) -> None:
        if _RUN.search(parts[0]):
            self.runs["".join(parts)] = term
            if len(parts) > 1:
                self.run_phrases.append((parts, term))
        elif parts[0].startswith("*"):
            self._endings[parts[0][1:]] = term
        elif parts[0].endswith("*"):
            self._stems.setdefault(parts[0][:-1], []).append((parts, term))
        else:
            self._exact.setdefault(parts[0], []).append((parts, term))

    def longest(self, spoken: Sequence[str], at: int) -> tuple[int, Term] | None:
        """The longest term that begins at a word: how many words it takes, and the term."""
        word, best = spoken[at], None
        for parts, term in self._exact.get(word, ()):
            if _agrees(parts, spoken, at):
                best = len(parts), term
                break
        if word[: self._shortest[0]] in self._beginnings:
            for end in range(len(word), self._shortest[0] - 1, -1):
                for parts, term in self._stems.get(word[:end], ()):
                    if (best is None or _order((len(parts), term)) < _order(best)) and _agrees(parts, spoken, at):
                        best = len(parts), term
        if best is None and word[len(word) - self._shortest[1] :] in self._tails:
            best = next(((1, self._endings[word[i:]]) for i in range(len(word)) if word[i:] in self._endings), None)
        return best


class Matcher:
    """The terms of the languages of a text.

    ``groups``: of indexes, the likeliest languages first. The longest term counts, of equally long ones that of the
    first group: in a German text "ein" is no EIN. ``head_first``: what is asked for stands before what qualifies it.
    ``own``: a user's terms, which come first.
    """

    def __init__(self, groups: Sequence[Sequence[Index]], head_first: bool = True, own: Index | None = None) -> None:
        self.head_first = head_first
        self._own, self._groups = own, groups if own is None else [[own], *groups]
        self._indexes = [index for group in self._groups for index in group]

    def find(self, spoken: Sequence[str]) -> list[Hit]:
        """The terms in a clause, in order and without overlap; the longest of several counts."""
        hits: list[Hit] = []
        at = 0
        while at < len(spoken):
            found = self._phrase(spoken, at) if _RUN.match(spoken[at]) else self._longest(spoken, at)
            if found is None and _RUN.match(spoken[at]):
                hits += [Hit(at, at + 1, *term) for term in self._inside(spoken[at])]
            if found is None:
                at += 1
                continue
            length, term = found
            if self._own is not None and length > 1:
                term = self._own_within(spoken, at, length) or term
            hits.append(Hit(at, at + length, term.kind, " ".join(spoken[at : at + length]), term.tier))
            at += length
        return hits

    def _own_within(self, spoken: Sequence[str], at: int, length: int) -> Term | None:
        """A user's field inside a longer built-in term: ``date`` says what "due date" is."""
        assert self._own is not None
        inside = (self._own.longest(spoken[: at + length], i) for i in range(at, at + length))
        return next((found[1] for found in inside if found is not None and found[1].tier), None)

    def _longest(self, spoken: Sequence[str], at: int) -> tuple[int, Term] | None:
        best: tuple[int, Term] | None = None
        for group in self._groups:
            found = [one for index in group if (one := index.longest(spoken, at)) is not None]
            first = None if not found else found[0] if len(found) == 1 else min(found, key=_order)
            if first is not None and (best is None or first[0] > best[0]):
                best = first
        return best

    def _phrase(self, spoken: Sequence[str], at: int) -> tuple[int, Term] | None:
        """A term of several unspaced words, each of which may have an ending."""
        for index in self._indexes:
            for parts, term in index.run_phrases:
                if len(parts) <= len(spoken) - at and all(spoken[at + i].startswith(p) for i, p in enumerate(parts)):
                    return len(parts), term
        return None

    def _inside(self, run: str) -> Iterator[Term]:
        """The terms inside a run of characters without spaces, the longest first at each place."""
        at = 0
        while at < len(run):
            for length in range(min(LONGEST_RUN, len(run) - at), 0, -1):
                piece = run[at : at + length]
                found = [index.runs[piece] for index in self._indexes if piece in index.runs]
                if found:
                    yield min(found, key=lambda term: RANK[term.kind])
                    at += length
                    break
            else:
                at += 1


def _order(found: tuple[int, Term]) -> tuple[int, int]:
    length, term = found
    return -length, RANK[term.kind]


@cache  # each term is parsed by whoever checks, indexes or counts it
def parse_term(text: str) -> tuple[str, ...]:
    """The words of a term; a star stays with its word."""
    parts: list[str] = []
    for piece in fold(text).split():
        inner = list(words(piece.strip("*")))
        if inner and piece.startswith("*"):
            inner[0] = "*" + inner[0]
        if inner and piece.endswith("*"):
            inner[-1] += "*"
        parts += inner
    if not parts:
        raise BadInput(f"the term {text!r} holds no word; write letters or digits")
    if len(parts) > 1 and any(part.startswith("*") for part in parts):
        raise BadInput(f"the term {text!r} has a * at the beginning of a word; only a single word may")
    return tuple(parts)


def _agrees(parts: Sequence[str], spoken: Sequence[str], at: int) -> bool:
    """Whether a term stands at a word."""
    if at + len(parts) > len(spoken):
        return False
    for i, part in enumerate(parts):
        word = spoken[at + i]
        if word != part and not (part[-1] == "*" and word.startswith(part[:-1])):
            return False
    return True
