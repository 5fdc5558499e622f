"""The errors that stakes raises on purpose. A message is one sentence: what is wrong, which value, what to do.

All of them are ``ValueError``, so that code without knowledge of stakes still catches them. The command line prints the
sentence on stderr and exits with status 2.
"""


class StakesError(ValueError):
    """The root of every error that stakes raises on purpose."""


class BadInput(StakesError):
    """A value that a person or a file gave cannot be used."""


class InfeasibleBudget(StakesError):
    """No choice of budgets can satisfy the request; the message names the smallest feasible total."""


class LedgerBreach(StakesError):
    """Arms that should spend the same total did not, or a budget exceeds an image's native tokens."""


class UnknownFamily(StakesError):
    """No token geometry is known under this model family's name."""


class UnreadableImage(StakesError):
    """The bytes given as an image cannot be decoded, or are too large to decode safely."""
