"""Ways of spending one and the same total: uniform, cost, anti, content, proportional, or any tier map.

The cost arm's spend fixes the total B (paper, "Equal-budget protocol"); every other arm hands out exactly B:

    uniform       floor(B / N) to every image, the remainder one each to the first samples
    anti          the tiers' budgets in reverse order of cost, shifted evenly to B where tier sizes differ
    mirrored      the same where every sample has a budget of its own: in reverse order of its expected cost
    content       in proportion to each image's information density, within [floor, native], redistributed to B
    proportional  a share of each image's native tokens, larger for the high-cost tier, solved to the mean share

Nothing is clamped silently: an arm that cannot be realised raises, and ``comparison.EqualTotals`` checks each again.

    >>> uniform(3, 10)
    (4, 3, 3)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stakes.errors import BadInput, InfeasibleBudget

Budgets = tuple[int, ...]  # one budget per sample, in the samples' order
PATCH = 28
PATCH_FEATURES = "patches-28"


def by_tier(tiers: Sequence[str], budgets: Mapping[str, int]) -> Budgets:
    """Each sample gets its tier's budget: the cost arm, or any other map from tier to budget."""
    if not tiers:
        raise BadInput("an arm needs at least one sample")
    for tier in tiers:
        if tier not in budgets:
            raise BadInput(f"tier {tier!r} has no budget; the map knows {', '.join(budgets)}")
    return tuple(budgets[tier] for tier in tiers)


def uniform(samples: int, total: int) -> Budgets:
    """``floor(total / samples)`` each, the remainder one each to the first samples."""
    if samples < 1:
        raise BadInput("an arm needs at least one sample")
    if total < samples:
        raise InfeasibleBudget(f"{total} tokens cannot give each of {samples} samples one; {samples} is the least")
    share, rest = divmod(total, samples)
    return tuple(share + (i < rest) for i in range(samples))


def anti(
    tiers: Sequence[str],
    budgets: Mapping[str, int],
    costs: Mapping[str, float],
    total: int | None = None,
    *,
    native: Sequence[int] | None = None,
    floor: int = 1,
) -> Budgets:
    """The direction control: the most expensive tier gets the cheapest tier's budget, and so on inwards.

    Where tier sizes differ this spends another total than the cost arm; the difference is shared evenly over all
    samples, within [floor, native], so that the arm spends ``total`` (by default the cost arm's).
    """
    total = sum(by_tier(tiers, budgets)) if total is None else total
    order = sorted(budgets, key=lambda tier: (costs[tier], tier))
    mirrored = dict(zip(order, (budgets[tier] for tier in reversed(order)), strict=True))
    target = np.array(by_tier(tiers, mirrored), dtype=float)
    low, high = np.full(len(tiers), float(floor)), _native(native, len(tiers))
    return _exactly(target, low, high, total, weights=np.ones(len(tiers)))


def mirrored(
    budgets: Sequence[int], expected: Sequence[float], *, native: Sequence[int] | None = None, floor: int = 1
) -> Budgets:
    """The direction control of budgets by sample: the most expensive one gets the smallest budget, and so on inwards.

    ``expected``: each sample's expected cost; of equal ones the larger budget counts as the more expensive. The total
    is that of ``budgets``; what an image cannot take is shared evenly over the others, within [floor, native].
    """
    rising = sorted(range(len(budgets)), key=lambda i: (expected[i], budgets[i], i))
    target = np.empty(len(budgets))
    target[rising] = np.sort(budgets)[::-1]
    low, high = np.full(len(budgets), float(floor)), _native(native, len(budgets))
    return _exactly(target, low, high, sum(budgets), weights=np.ones(len(budgets)))


def content(density: Sequence[float], total: int, *, native: Sequence[int], floor: int = 1) -> Budgets:
    """Share ``total`` in proportion to information density, within [floor, native], exact in total.

    ``density`` is 1 - mean pairwise cosine similarity of an image's visual features: 0 for a solid color.
    """
    weights = np.asarray(density, dtype=float)
    if weights.ndim != 1 or len(weights) != len(native) or not len(weights):
        raise BadInput(f"content needs one density per sample, got {weights.size} for {len(native)} samples")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise BadInput("a density is a finite number of at least 0; check the features")
    high = _native(native, len(weights))
    low = np.minimum(float(floor), high)  # an image smaller than the floor is kept whole
    return _exactly(np.zeros(len(weights)), low, high, total, weights=weights)


def proportional(
    tiers: Sequence[str], native: Sequence[int], high_cost: str, high_cost_share: float, mean_share: float = 0.5
) -> Budgets:
    """Keep ``high_cost_share`` of the native tokens in tier ``high_cost``; the others' share is solved so that in all
    ``floor(mean_share * sum(native))`` tokens are kept. The paper's earlier design, kept for comparison: on dense
    pages a change of share moves few tokens relative to what matters.
    """
    if not 0 < mean_share <= 1 or not 0 < high_cost_share <= 1:
        raise BadInput(f"shares lie in (0, 1], not {high_cost_share} and {mean_share}")
    if high_cost not in tiers or len(set(tiers)) < 2:
        raise BadInput(f"a proportional shift needs samples of tier {high_cost!r} and of another")
    size, is_high_cost = _native(native, len(tiers)), np.array([tier == high_cost for tier in tiers])
    total = int(mean_share * size.sum())
    rest_share = (total - high_cost_share * size[is_high_cost].sum()) / size[~is_high_cost].sum()
    if not 0 < rest_share <= 1:
        raise InfeasibleBudget(
            f"keeping {high_cost_share:.0%} of tier {high_cost!r} leaves the others a share of {rest_share:.2f}; "
            "choose a share that leaves them between 0 and 1"
        )
    target = np.where(is_high_cost, high_cost_share, rest_share) * size
    return _whole(target, np.ones(len(tiers)), size, total)


def _native(native: Sequence[int] | None, samples: int) -> NDArray[np.float64]:
    if native is None:
        return np.full(samples, np.inf)
    if len(native) != samples:
        raise BadInput(f"native tokens are needed for each of {samples} samples, got {len(native)}")
    return np.asarray(native, dtype=float)


def _exactly(
    base: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    total: int,
    *,
    weights: NDArray[np.float64],
) -> Budgets:
    """``clip(base + s * weights, low, high)`` with ``s`` chosen so that it sums to ``total``, in whole tokens.

    Clamping and redistributing in proportion until nothing is out of bounds ends at this same point; solving for
    ``s`` by bisection gets there at once.
    """
    if low.sum() > total or high.sum() < total:
        raise InfeasibleBudget(
            f"{total} tokens cannot be shared: the floors alone take {low.sum():.0f} and the images' native tokens "
            f"are {high.sum():.0f}; choose a total between them"
        )
    # Weights of nothing, or of next to nothing beside the largest, still get what the others cannot take.
    largest = weights.max()
    reach = np.maximum(weights / largest, 1e-9) if largest > 0 else np.ones(len(weights))

    def spent(s: float) -> float:
        return float(np.clip(base + s * reach, low, high).sum())

    left, right = -1.0, 1.0
    while spent(left) > total:
        left *= 2
    while spent(right) < total:
        right *= 2
    for _ in range(200):
        middle = (left + right) / 2
        left, right = (middle, right) if spent(middle) < total else (left, middle)
    return _whole(np.clip(base + right * reach, low, high), low, high, total)


def _whole(target: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64], total: int) -> Budgets:
    """Round down, then give the missing tokens to the largest fractions (ties: the first samples)."""
    whole = np.clip(np.floor(target + 1e-9), low, high)
    missing = round(total - whole.sum())
    free = np.flatnonzero(whole + 1 <= high) if missing > 0 else np.flatnonzero(whole - 1 >= low)
    order = free[np.argsort(-(target - whole)[free] * np.sign(missing), kind="stable")]
    if len(order) < abs(missing):
        raise InfeasibleBudget(f"{total} tokens cannot be shared in whole tokens within the images' native tokens")
    whole[order[: abs(missing)]] += np.sign(missing)
    return tuple(int(b) for b in whole)


def density(features: Any) -> float:
    """[N, D] features (array or tensor) -> information density, by which the content arm spends.

        density = 1 - mean over pairs i != j of cos(f_i, f_j)
                = 1 - (||sum_i u_i||^2 - M) / (N (N - 1)),        u_i = f_i / ||f_i||,  M = number of non-zero features

    The sum over pairs collapses into the square of one sum, so no N x N matrix is built. 0 is a blank page (all
    features alike) or a single token, 1 features that are orthogonal on average; a zero feature is orthogonal to all.
    """
    values = features.detach().float().cpu().numpy() if hasattr(features, "detach") else features
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or len(array) == 0:
        raise BadInput(f"features are [tokens, dimensions] with at least one token, not of shape {array.shape}")
    size = len(array)
    if size == 1:
        return 0.0
    norms = np.linalg.norm(array, axis=1)
    nonzero = norms > 0
    units = array[nonzero] / norms[nonzero, None]
    total = units.sum(axis=0)
    return max(0.0, float(1 - (total @ total - nonzero.sum()) / (size * (size - 1))))  # rounding may fall below 0


def patch_features(image: Any) -> Any:
    """A PIL image -> [N, 784] float32: the luminance of each whole 28-pixel patch, white = -1 .. black = 1.

    For models without features (an endpoint, OCR); recorded as ``patches-28``. Pixels beyond the last whole patch are
    left out, as smart_resize rounds; an image smaller than one patch is one patch, stretched.
    """
    columns, rows = max(1, image.width // PATCH), max(1, image.height // PATCH)
    if image.width < PATCH or image.height < PATCH:
        image = image.resize((columns * PATCH, rows * PATCH))
    pixels = 1 - np.asarray(image.convert("L"), dtype=np.float32) / 127.5
    pixels = pixels[: rows * PATCH, : columns * PATCH].reshape(rows, PATCH, columns, PATCH)
    return pixels.transpose(0, 2, 1, 3).reshape(rows * columns, PATCH * PATCH)
