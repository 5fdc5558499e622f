"""How likely is each tier? What soft stakes weigh costs by, from any signal.

A learned signal gives its calibrated probabilities; any other gives its reading's, the rest shared evenly by the other
tiers. An undecided reading goes to the dearer side whole: the dearest tier, for certain.

>>> from stakes.signals.keywords import KeywordRule
>>> chances(KeywordRule(), "What is the total?")[1]
{'high': 1.0, 'low': 0.0}
"""

from stakes.signals.base import Reading, Signal
from stakes.signals.learned import LearnedSignal


def gives_chances(signal: Signal) -> bool:
    """Whether the signal's probabilities are meant as such, and not a rule's certainty of itself."""
    return isinstance(signal, LearnedSignal)


def chances(signal: Signal, question: str, task: str | None = None) -> tuple[Reading, dict[str, float]]:
    """The signal's reading, and the probability of each of its tiers."""
    reading = signal(question, task)
    if not reading.decided:
        return reading, {tier: float(tier == signal.dearest) for tier in signal.tiers}
    if isinstance(signal, LearnedSignal):
        found = signal.predict_proba([question])[0]
        return reading, {tier: found.get(tier, 0.0) for tier in signal.tiers}
    others = len(signal.tiers) - 1
    rest = (1 - reading.probability) / others if others else 0.0
    return reading, {tier: reading.probability if tier == reading.tier else rest for tier in signal.tiers}
