"""The paper's frozen keyword rule: a question with any of 24 keywords is high, any other is low.

Paper, "Frozen cost-label rule". Keywords match as whole words ("id" is not in "provided"): 40.6 % of DocVQA's
validation questions are high. As plain substrings they would be 45.4 %, and kappa with the gold answers would fall from
0.69 to 0.65. A keyword is bounded on the sides where it has a letter or digit, so "no." is bounded on its left only
("No.5" counts) and "%" matches anywhere ("25%" counts). In a script without spaces between words, custom keywords match
anywhere.

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
from stakes.signals.prompt import Prompt

KEYWORDS: tuple[str, ...] = (
    "how much", "how many", "amount", "total", "number", "no.", "date", "when", "year", "price", "cost", "percent",
    "percentage", "%", "phone", "fax", "time", "quantity", "rate", "value", "figure", "sum", "id", "code",
)  # fmt: skip
"""The 24 keywords of the paper, verbatim and in its order."""


class KeywordRule:
    """``high`` where any keyword is in the question, else ``low``; its probability is always 1.0."""

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
        self.tiers, self.most_expensive = (high, low), high
        self.pattern = compile_keywords(self.keywords)
        self._no_keyword = Reading(low, 1.0, f"none of the {len(self.keywords)} keywords")

    def __call__(self, prompt: str | Prompt, task: str | None = None) -> Reading:  # noqa: ARG002 (every signal's call)
        """Read the tier of the question alone; ``why`` names the keyword that comes first in it."""
        question = prompt.question if isinstance(prompt, Prompt) else prompt
        keyword = self.find(question) if isinstance(question, str) else None  # ``is_blank`` refuses anything else
        if keyword is not None:
            return Reading(self.high, 1.0, f'keyword "{keyword}"')
        return undecided(self.high, 2, "the question is empty") if is_blank(question) else self._no_keyword

    def find(self, text: str) -> str | None:
        """The keyword that comes first in a text, or None."""
        match = self.pattern.search(normalize("NFC", text))
        return None if match is None else " ".join(match.group().lower().split())


def read_keywords(path: str | Path) -> list[str]:
    """Keywords of another language or domain from a file, one per line; blank lines are skipped."""
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8-sig").splitlines()]
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; keywords:FILE takes one with a keyword per line") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"no keywords can be read from {path} ({error})") from None
    if not any(lines):
        raise BadInput(f"{path} holds no keyword; write one per line")
    return [line for line in lines if line]


def compile_keywords(keywords: Iterable[str]) -> re.Pattern[str]:
    """One pattern for all keywords, grouped by how they are bounded, so that a bound is tried once per group.

    A keyword matches as a whole word between letters of a script with spaces; other scripts bound nothing.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for word in keywords:
        left = f"(?<!{SPACED})" if re.match(SPACED, word) else ""
        right = f"(?!{SPACED})" if re.search(rf"{SPACED}\Z", word) else ""
        groups.setdefault((left, right), []).append(r"\s+".join(map(re.escape, word.split())))
    parts = []
    for (left, right), words in groups.items():
        words.sort(key=len, reverse=True)  # the longer of two unbounded keywords must match first
        parts.append(f"{left}(?:{'|'.join(words)}){right}")
    return re.compile("|".join(parts), re.IGNORECASE)
