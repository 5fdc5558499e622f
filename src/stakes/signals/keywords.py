"""Does the question ask for something that costs? The paper's frozen keyword rule, over the question's text alone.

Paper, "Frozen cost-label rule": any of 24 keywords makes the question high, none makes it low. Matched as whole words
("id" is not in "provided": 40.6 % of DocVQA's validation questions are high; as plain substrings 45.4 %, and kappa
with the gold answers falls from 0.69 to 0.65). A keyword is bounded on the sides where it has a letter or digit, so
"no." is bounded on its left only ("No.5" counts) and "%" stands anywhere ("25%" counts). Keywords of one's own in a
script that writes no spaces between words stand anywhere.

>>> KeywordRule()("What is the total amount?")
Reading(tier='high', probability=1.0, why='keyword "total"', decided=True)
"""

import re
from collections.abc import Iterable
from pathlib import Path
from unicodedata import normalize

from stakes.errors import BadInput
from stakes.signals.base import Reading, is_blank, undecided
from stakes.signals.linear import SPACED

KEYWORDS: tuple[str, ...] = (
    "how much", "how many", "amount", "total", "number", "no.", "date", "when", "year", "price", "cost", "percent",
    "percentage", "%", "phone", "fax", "time", "quantity", "rate", "value", "figure", "sum", "id", "code",
)  # fmt: skip
"""The 24 keywords of the paper, verbatim and in its order."""


class KeywordRule:
    """High where any keyword stands in the question, else low; certain of itself, so its probability is 1.0."""

    def __init__(self, keywords: Iterable[str] = KEYWORDS, high: str = "high", low: str = "low") -> None:
        if isinstance(keywords, str):
            raise BadInput(f"keywords must be a list of words, not the one string {keywords!r}")
        # "Total" and "total", or "how  much" and "how much", are one keyword: case and spacing never matter
        self.keywords = tuple(dict.fromkeys(" ".join(normalize("NFC", word).lower().split()) for word in keywords))
        if not self.keywords or "" in self.keywords:
            raise BadInput("a keyword rule needs at least one keyword, and none of them may be empty")
        if not high.strip() or not low.strip() or high == low:
            raise BadInput(f"a keyword rule needs two different tier names, not {high!r} and {low!r}")
        self.high, self.low = high, low
        self.pattern = compile_keywords(self.keywords)
        self._missing = Reading(low, 1.0, f"none of the {len(self.keywords)} keywords")

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers it can name."""
        return (self.high, self.low)

    @property
    def dearest(self) -> str:
        """The tier it falls to when undecided."""
        return self.high

    def __call__(self, question: str, task: str | None = None) -> Reading:  # noqa: ARG002 (every signal's call)
        """Read the tier; ``why`` names the keyword that stands first."""
        if is_blank(question):
            return undecided(self.high, 2, "the question is empty")
        found = self.find(question)
        return self._missing if found is None else Reading(self.high, 1.0, f'keyword "{found}"')

    def find(self, text: str) -> str | None:
        """Return the keyword that stands first in a text, or None."""
        match = self.pattern.search(normalize("NFC", text))
        return None if match is None else " ".join(match.group().lower().split())


def read_keywords(path: str | Path) -> list[str]:
    """Keywords of another language or domain from a file, one a line; blank lines are passed over."""
    try:
        words = [line.strip() for line in Path(path).read_text(encoding="utf-8-sig").splitlines()]
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; keywords:FILE takes one with a keyword a line") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"no keywords can be read from {path} ({error})") from None
    if not any(words):
        raise BadInput(f"{path} holds no keyword; write one a line")
    return [word for word in words if word]


def compile_keywords(keywords: Iterable[str]) -> re.Pattern[str]:
    """Make one pattern of all keywords, grouped by how they are bounded: the bounds are then tried once a group.

    A keyword stands between letters of its own kind as a whole word; scripts that write no spaces bound nothing.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for word in keywords:
        left = f"(?<!{SPACED})" if re.match(SPACED, word) else ""
        right = f"(?!{SPACED})" if re.search(rf"{SPACED}\Z", word) else ""
        groups.setdefault((left, right), []).append(r"\s+".join(map(re.escape, word.split())))
    parts = []
    for (left, right), words in groups.items():
        words.sort(key=len, reverse=True)  # the longer of two unbounded keywords names itself first
        parts.append(f"{left}(?:{'|'.join(words)}){right}")
    return re.compile("|".join(parts), re.IGNORECASE)
