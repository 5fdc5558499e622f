"""What would the curves be if errors fell along one smooth S? A parametric fit, tier by tier.

    e(b) = floor + (1 - floor) / (1 + exp(k (log b - m)))

by maximum likelihood on the counts of wrong answers: from "almost nothing can be read" down to ``floor``, what stays
wrong at any resolution; ``m`` is the middle of the fall in log tokens, ``k`` its steepness. With fewer than four
budgets, or where the optimiser does not settle, the isotonic fit is taken for that tier.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import Curve
from stakes.calibration.by_document import ByDocument

Array = NDArray[np.float64]


def smooth(curves: Mapping[str, Curve], _: ByDocument | None = None) -> dict[str, Curve]:
    """One S-shaped curve for each tier."""
    return {tier: _fit(curve) or curve.isotonic() for tier, curve in curves.items()}


def _fit(curve: Curve) -> Curve | None:
    from scipy.optimize import minimize

    if len(curve.budgets) < 4:
        return None
    x, n = np.log(curve.budgets), np.array(curve.counts, dtype=float)
    wrong = np.array(curve.errors) * n

    def loss(parameters: Array) -> tuple[float, Array]:
        """Mean negative log-likelihood of (logit floor, log k, m), and its gradient."""
        floor, k = 1 / (1 + math.exp(-parameters[0])), math.exp(parameters[1])
        drop = 1 / (1 + np.exp(np.clip(k * (x - parameters[2]), -50, 50)))
        e = np.clip(floor + (1 - floor) * drop, 1e-9, 1 - 1e-9)
        value = -(wrong * np.log(e) + (n - wrong) * np.log(1 - e)).sum() / n.sum()
        by_e = -(wrong / e - (n - wrong) / (1 - e)) / n.sum()
        by_drop = by_e * (1 - floor) * drop * (1 - drop)
        gradient = [
            float((by_e * (1 - drop)).sum() * floor * (1 - floor)),
            float((-by_drop * (x - parameters[2])).sum() * k),
            float(by_drop.sum() * k),
        ]
        return float(value), np.array(gradient)

    middle = float(np.interp(0.5, np.array(curve.isotonic().errors)[::-1], x[::-1]))
    bounds = [(-8.0, 3.0), (math.log(0.05), math.log(50.0)), (x[0] - 5.0, x[-1] + 5.0)]
    found = minimize(loss, [-2.5, math.log(2.5), middle], jac=True, method="L-BFGS-B", bounds=bounds)
    if not found.success or not np.isfinite(found.x).all():
        return None
    floor, k, m = 1 / (1 + math.exp(-found.x[0])), math.exp(found.x[1]), found.x[2]
    fitted = floor + (1 - floor) / (1 + np.exp(np.clip(k * (x - m), -50, 50)))
    return Curve(curve.budgets, [float(min(1.0, e)) for e in fitted], curve.counts)
