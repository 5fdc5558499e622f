"""Text normalization and matching that tolerate what an OCR engine changes without changing a value.

A text is compared by its key: letters and digits in lower case, currency and percent signs, and ``. / : -`` between two
digits. Spaces are dropped, because engines lose them ("TheGreat Western"). A comma between digits changes no value
("1,240" is "1240"), a point does ("1.240" is not).

    >>> normalize("Dr. O'Neil,  $1,240.50").key
    'droneil$1240.50'
    >>> normalize("13 of 3").find("3")                      # not the 3 of 13
    [(4, 5)]
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

SIGNS = "$€£¥%"
BETWEEN_DIGITS = "./:-"
DASHES = dict.fromkeys(map(ord, "‐‑‒–—―−"), "-")
LENGTHS = (0.7, 1.4)  # range of a span's length, relative to the key that it is compared with


@dataclass(frozen=True)
class NormalizedText:
    """A text, its key, and for every character of the key its index in the text."""

    text: str
    key: str
    source: tuple[int, ...]

    def is_boundary(self, i: int, lost_spaces: bool) -> bool:
        """Whether a word may start, or the one before it end, at character i of the key.

        ``lost_spaces``: also between letters and digits and before a capital after a lower-case letter, where an
        engine may have lost a space.
        """
        if i in (0, len(self.key)):
            return True
        before, after = self.key[i - 1], self.key[i]
        if self.source[i] - self.source[i - 1] > 1 or not (before.isalnum() and after.isalnum()):
            return True
        case_change = self.text[self.source[i - 1]].islower() and self.text[self.source[i]].isupper()
        return lost_spaces and (before.isdigit() != after.isdigit() or case_change)

    def find(self, key: str, *, lost_spaces: bool = False) -> list[tuple[int, int]]:
        """Every (start, stop) at which ``key`` occurs in this key as whole words."""
        starts = [match.start() for match in re.finditer(f"(?={re.escape(key)})", self.key)] if key else []
        spans = [(start, start + len(key)) for start in starts]  # they may overlap
        return [span for span in spans if all(self.is_boundary(at, lost_spaces) for at in span)]

    def nearest(self, key: str) -> tuple[float, int, int]:
        """(similarity, start, stop) of the span of whole words that is most similar to ``key``; (0, 0, 0): none."""
        from rapidfuzz.distance import Levenshtein

        edges = [i for i in range(len(self.key) + 1) if self.is_boundary(i, lost_spaces=True)]
        low, high = (len(key) * share for share in LENGTHS)
        best = (0.0, 0, 0)
        for start in edges:
            for stop in edges:
                if low <= stop - start <= high:
                    similarity = Levenshtein.normalized_similarity(key, self.key[start:stop], score_cutoff=best[0])
                    best = max(best, (similarity, -start, -stop))
        return best[0], -best[1], -best[2]

    def raw(self, start: int, stop: int) -> str:
        """The text that a span of the key represents."""
        return self.text[self.source[start] : self.source[stop - 1] + 1] if stop > start else ""


def normalize(text: str) -> NormalizedText:
    """A text with its key."""
    chars = [(i, unicodedata.normalize("NFKC", char).translate(DASHES).casefold()) for i, char in enumerate(text)]
    visible = [(i, char) for i, part in chars for char in part if not char.isspace()]
    digit = [False, *(char.isdigit() for _, char in visible), False]
    used = [
        (i, char)
        for at, (i, char) in enumerate(visible)
        if char.isalnum() or char in SIGNS or (char in BETWEEN_DIGITS and digit[at] and digit[at + 2])
    ]
    return NormalizedText(text, "".join(char for _, char in used), tuple(i for i, _ in used))


def digits(key: str) -> str:
    """The digits and separators of a key, which a fuzzy match must not change."""
    return "".join(char for char in key if char.isdigit() or char in BETWEEN_DIGITS)
