"""Do two readings say the same? What counts of a text, where a word may begin in it, and the span nearest to an answer.

Of a text its key counts: letters and digits in lower case, currency and per cent signs, and ``. / : -`` between two
digits. Spaces carry no ink and an engine drops them ("TheGreat Western"); a comma between digits changes no value
("1,240" is "1240"), a point does ("1.240" is not).

    >>> spelled("Dr. O'Neil,  $1,240.50").key
    'droneil$1240.50'
    >>> spelled("13 of 3").find("3")                      # not the 3 of 13
    [(4, 5)]
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

SIGNS = "$€£¥%"
BETWEEN_DIGITS = "./:-"
DASHES = dict.fromkeys(map(ord, "‐‑‒–—―−"), "-")
GLUED_FROM = 4  # characters from which an answer may be found where a space was lost
LENGTHS = (0.7, 1.4)  # of an answer's, that a span near to it may have


@dataclass(frozen=True)
class Spelled:
    """A text, its key, and for every character of the key its place in the text."""

    text: str
    key: str
    source: tuple[int, ...]

    def opens(self, i: int, glued: bool) -> bool:
        """Whether a word may begin, or the one before it end, at character i of the key.

        ``glued``: also where letters turn into digits or back, or a small letter is followed by a capital, as where an
        engine lost a space.
        """
        if i in (0, len(self.key)):
            return True
        before, after = self.key[i - 1], self.key[i]
        if self.source[i] - self.source[i - 1] > 1 or not (before.isalnum() and after.isalnum()):
            return True
        if not glued:
            return False
        raw = self.text[self.source[i - 1]], self.text[self.source[i]]
        return before.isdigit() != after.isdigit() or (raw[0].islower() and raw[1].isupper())

    def find(self, wanted: str, *, glued: bool = False) -> list[tuple[int, int]]:
        """Every (start, stop) in the key at which the wanted key stands as whole words."""
        found, at = [], self.key.find(wanted) if wanted else -1
        while at >= 0:
            if self.opens(at, glued) and self.opens(at + len(wanted), glued):
                found.append((at, at + len(wanted)))
            at = self.key.find(wanted, at + 1)
        return found

    def nearest(self, wanted: str) -> tuple[float, int, int]:
        """(likeness, start, stop) of the span of whole words that is most like the wanted key; (0, 0, 0): none."""
        from rapidfuzz.distance import Levenshtein

        edges = [i for i in range(len(self.key) + 1) if self.opens(i, glued=True)]
        low, high = (len(wanted) * share for share in LENGTHS)
        best = (0.0, 0, 0)
        for start in edges:
            for stop in edges:
                if low <= stop - start <= high:
                    like = Levenshtein.normalized_similarity(wanted, self.key[start:stop], score_cutoff=best[0])
                    best = max(best, (like, -start, -stop))
        return best[0], -best[1], -best[2]

    def raw(self, start: int, stop: int) -> str:
        """The text that a span of the key stands for."""
        return self.text[self.source[start] : self.source[stop - 1] + 1] if stop > start else ""


def spelled(text: str) -> Spelled:
    """A text with its key."""
    chars = [(i, unicodedata.normalize("NFKC", char).translate(DASHES).casefold()) for i, char in enumerate(text)]
    inked = [(i, char) for i, part in chars for char in part if not char.isspace()]
    kept = []
    for at, (i, char) in enumerate(inked):
        sides = inked[at - 1][1] if at else "", inked[at + 1][1] if at + 1 < len(inked) else ""
        if char.isalnum() or char in SIGNS or (char in BETWEEN_DIGITS and all(side.isdigit() for side in sides)):
            kept.append((i, char))
    return Spelled(text, "".join(char for _, char in kept), tuple(i for i, _ in kept))


def digits(key: str) -> str:
    """The digits and points of a key: what a likeness may not change."""
    return "".join(char for char in key if char.isdigit() or char in "./:-")
