"""What are the true curves, given noisy ones? Ways to draw them from the same answers.

The plain argmin of measured curves takes luck for merit. These draw on what else is known: that errors tend to fall
(``isotonic``, ``smooth``), that tiers tend to fall alike (``pooled``), what another reader's curves look like
(``hybrid:FILE``), that another draw of documents might have chosen otherwise (``bootstrap``). None is evidence: a
certificate rests on other documents and on no estimator.

    >>> from stakes.budgets.curve import Curve
    >>> fit("isotonic", {"high": Curve([32, 64, 96], [0.5, 0.7, 0.1], 10)})["high"].errors
    (0.6, 0.6, 0.1)
"""

from collections.abc import Callable, Collection, Mapping

from stakes.budgets.curve import Curve
from stakes.calibration.by_document import ByDocument
from stakes.calibration.estimators.hybrid import hybrid, read_prior
from stakes.calibration.estimators.pooled import pooled
from stakes.calibration.estimators.smooth import smooth
from stakes.errors import BadInput

Estimator = Callable[[Mapping[str, Curve], ByDocument | None], dict[str, Curve]]

DEFAULT = "pooled"  # benchmarks/estimators.py; docs/decisions.md


def raw(curves: Mapping[str, Curve], _: ByDocument | None = None) -> dict[str, Curve]:
    """The curves as measured: the paper's choice."""
    return dict(curves)


def isotonic(curves: Mapping[str, Curve], _: ByDocument | None = None) -> dict[str, Curve]:
    """The nearest curves that never rise."""
    return {tier: curve.isotonic() for tier, curve in curves.items()}


CURVES: dict[str, Estimator] = {"raw": raw, "isotonic": isotonic, "pooled": pooled, "smooth": smooth}
"""Estimators that give curves; they need no more than counts, and use documents where they have them."""
CHOICES = ("bootstrap", "auto")
"""Estimators that give a choice, and need documents to resample."""
NAMES = (*CURVES, *CHOICES)


HYBRID = "hybrid:"
"""What the name of an estimator with a prior begins with; the prior's file follows."""


def check_name(name: str) -> str:
    """The name, if it is one of an estimator."""
    if name not in NAMES and not (name.startswith(HYBRID) and name != HYBRID):
        raise BadInput(f"there is no estimator {name!r}; choose one of {', '.join(NAMES)}, or hybrid:FILE with a prior")
    return name


def named(name: str, unseen: Collection[str] = ()) -> Estimator | None:
    """The estimator that gives curves under this name, None where it is none of those.

    ``unseen``: documents to be tested on, which a prior must not have seen.
    """
    if not name.startswith(HYBRID):
        return CURVES.get(name)
    prior = read_prior(name.removeprefix(HYBRID), unseen)
    return lambda curves, measured: hybrid(curves, prior, measured)


def fit(name: str, curves: Mapping[str, Curve], measured: ByDocument | None = None) -> dict[str, Curve]:
    """The curves that estimator ``name`` makes of the measured ones."""
    estimator = named(check_name(name))
    if estimator is None:
        raise BadInput(f"the estimator {name!r} resamples documents, and curves have none; give a log of outcomes")
    return estimator(curves, measured)
