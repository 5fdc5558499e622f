"""What would a calibration have seen, were these the true curves? Paired outcomes of imagined questions.

Every question has a latent difficulty, so that its answers at different budgets hang together as they do in reality:

    z(q, b) = sqrt(d) (sqrt(a) D + sqrt(1 - a) Q) + sqrt(1 - d) N,     wrong at b  <=>  Phi(z(q, b)) < e(b)

with D, Q and N standard normal: D shared by all questions of a document, Q of the question, N afresh at each budget.
``dependence`` d = 1 gives every question one needed budget and answers that only ever turn from wrong to right (where
the curve falls); below 1 there is label noise on top. ``likeness`` a is how much of the difficulty is the page's.
The error rate at each budget is e(b) exactly, whatever the dependence and whatever the shape of the curve.

The paper's discordant answers on DocVQA were 54 : 4 between 304 and 512 tokens and 65 : 5 between 304 and 576;
d = 0.8, the default, gives 55.2 : 5.2 and 62.9 : 2.9 on average.
"""

from collections.abc import Mapping

import numpy as np

from stakes.budgets.by_document import ByDocument
from stakes.budgets.curve import Curve
from stakes.errors import BadInput

PAPER_DEPENDENCE = 0.8


def simulate(
    truth: Mapping[str, Curve],
    counts: Mapping[str, int],
    rng: np.random.Generator,
    *,
    dependence: float = PAPER_DEPENDENCE,
    per_document: float = 1.0,
    likeness: float = 0.0,
) -> ByDocument:
    """Ask ``counts[tier]`` imagined questions of each tier, ``per_document`` on a page on average, at every budget."""
    from scipy.special import ndtri

    for name, share in (("dependence", dependence), ("likeness", likeness)):
        if not 0 <= share <= 1:
            raise BadInput(f"{name} is a share between 0 and 1, not {share}")
    if per_document < 1:
        raise BadInput(f"a document has at least one question, not {per_document}")
    grids = {curve.budgets for curve in truth.values()}
    if len(grids) != 1:
        raise BadInput("all tiers need the same measured budgets to imagine answers from; give curves on one grid")
    budgets, total = grids.pop(), sum(counts[tier] for tier in truth)
    number = min(total, max(2, round(total / per_document)))
    # One question a page first, so that none is empty and the mean is what was asked for; the others land on any page
    # alike, so pages differ in how many they hold and of which tier.
    pages = rng.permutation(np.concatenate([np.arange(number), rng.integers(0, number, total - number)]))
    page = rng.standard_normal(number)
    wrong, asked, start = {}, {}, 0
    for tier, curve in truth.items():
        n = counts[tier]
        mine = pages[start : start + n]
        start += n
        own = np.sqrt(likeness) * page[mine] + np.sqrt(1 - likeness) * rng.standard_normal(n)
        latent = np.sqrt(dependence) * own[:, None]
        if dependence < 1:
            latent = latent + np.sqrt(1 - dependence) * rng.standard_normal((n, len(budgets)))
        failed = latent < ndtri(np.array(curve.errors))
        table = np.zeros((number, len(budgets)), dtype=np.int64)
        np.add.at(table, mine, failed)
        wrong[tier] = table
        asked[tier] = np.repeat(np.bincount(mine, minlength=number)[:, None], len(budgets), axis=1).astype(np.int64)
    return ByDocument(tuple(f"page {i}" for i in range(number)), budgets, wrong, asked)
