"""What does every signal say? A tier, how sure it is, and why.

A signal reads the tier off the request, never off the image (paper, "Frozen cost-label rule"). All signals are called
the same way, ``signal(question, task=None) -> Reading``. One that cannot decide falls to the dearest tier, because
tokens are cheaper than the dearest mistake, and its reading says so (``decided`` is False).

>>> undecided("high", 2, "the question is empty")
Reading(tier='high', probability=0.5, why='undecided: the question is empty', decided=False)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from stakes.errors import BadInput
from stakes.tiers import PAPER_TIERS


@dataclass(frozen=True)
class Reading:
    """One signal's word on one question.

    ``probability`` is the signal's own belief that ``tier`` is right: 1.0 from a rule, which is certain of itself
    (how often it is right is a matter for ``agreement``), calibrated from a learned signal, and one over the number
    of tiers where nothing is known.
    """

    tier: str
    probability: float
    why: str
    decided: bool = True


class Signal(Protocol):
    """Anything that reads a tier off a question or a task."""

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers it can name."""
        ...

    @property
    def dearest(self) -> str:
        """The tier it falls to when undecided."""
        ...

    def __call__(self, question: str, task: str | None = None) -> Reading:
        """Read the tier of one question."""
        ...


def undecided(dearest: str, tiers: int, why: str) -> Reading:
    """Fall to the dearest of so many tiers, knowing nothing."""
    return Reading(dearest, 1 / tiers, f"undecided: {why}", decided=False)


def is_blank(question: str) -> bool:
    """Tell whether there is no question to read; anything but text is an error."""
    if not isinstance(question, str):
        raise BadInput(f"a question must be text, not {question!r}")
    return not question.strip()


def find_dearest(names: Iterable[str], dearest: str | None = None) -> str:
    """Settle which of the named tiers is the dearest.

    Without a word from the caller, the paper's order is used (high, medium, low); it is an error to leave the choice
    open among other names, since guessing wrong would starve the questions that matter.
    """
    known = tuple(dict.fromkeys(names))
    if not known:
        raise BadInput("a signal needs at least one tier")
    for name in known:
        if not isinstance(name, str) or not name.strip():
            raise BadInput(f"a tier needs a name, and {name!r} is none")
    if dearest is not None:
        if not isinstance(dearest, str) or not dearest.strip():
            raise BadInput(f"the dearest tier needs a name, and {dearest!r} is none")
        return dearest
    if len(known) == 1:
        return known[0]
    order = [tier.name for tier in PAPER_TIERS]
    strange = [name for name in known if name not in order]
    if strange:
        raise BadInput(f"which of the tiers {', '.join(known)} is the dearest? Say so with dearest={known[0]!r}")
    return min(known, key=order.index)
