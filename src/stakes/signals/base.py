"""The protocol of a signal, and its result: a tier, how probable it is, and why.

A signal reads the tier off the request, never off the image (paper, "Frozen cost-label rule"). All signals are called
the same way, ``signal(prompt, task=None) -> Reading``, with a question or a whole ``Prompt``. One that cannot decide
returns the most expensive tier with ``decided=False``, because tokens cost less than the most expensive mistake.

>>> undecided("high", 2, "the question is empty")
Reading(tier='high', probability=0.5, why='undecided: the question is empty', decided=False)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from stakes.errors import BadInput
from stakes.signals.prompt import Prompt
from stakes.tiers import PAPER_TIERS


@dataclass(frozen=True)
class Reading:
    """One signal's result for one question.

    ``probability`` is the signal's own belief that ``tier`` is right: 1.0 from a rule (``agreement`` measures how often
    a rule is right), calibrated from a learned signal, and one over the number of tiers where nothing is known.
    """

    tier: str
    probability: float
    why: str
    decided: bool = True


class Signal(Protocol):
    """Anything that reads a tier off a question or a task."""

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers that it can return."""
        ...

    @property
    def most_expensive(self) -> str:
        """The tier that it returns when undecided."""
        ...

    def __call__(self, prompt: str | Prompt, task: str | None = None) -> Reading:
        """Read the tier of one question, or of all that a request says."""
        ...


def undecided(most_expensive: str, tiers: int, why: str) -> Reading:
    """The most expensive of so many tiers, when nothing is known."""
    return Reading(most_expensive, 1 / tiers, f"undecided: {why}", decided=False)


def is_blank(question: str) -> bool:
    """Whether the question is empty; anything but text is an error."""
    if not isinstance(question, str):
        raise BadInput(f"a question must be text, not {question!r}")
    return not question.strip()


def find_most_expensive(names: Iterable[str], most_expensive: str | None = None) -> str:
    """Which of the named tiers is the most expensive: the one given, else the first in the paper's high, medium, low.

    Other names need ``most_expensive``: a wrong guess would give the questions that matter too few tokens.
    """
    names = list(names)
    if not names:
        raise BadInput("a signal needs at least one tier")
    for name in names if most_expensive is None else (*names, most_expensive):
        if not isinstance(name, str) or not name.strip():
            raise BadInput(f"the name of a tier must be text that is not empty, not {name!r}")
    known = tuple(dict.fromkeys(names))
    if most_expensive is not None:
        return most_expensive
    if len(known) == 1:
        return known[0]
    order = [tier.name for tier in PAPER_TIERS]
    if not set(known) <= set(order):
        raise BadInput(
            f"which of the tiers {', '.join(known)} is the most expensive? Give it: most_expensive={known[0]!r}"
        )
    return min(known, key=order.index)
