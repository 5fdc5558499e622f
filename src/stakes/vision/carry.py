"""What becomes of the tokens that one image leaves? The next of its tier may take them, so that a set lands on target.

A grid rarely holds exactly the budget: one image alone spends 97.6 % of it on average. Within a tier

    offer(k) = nominal(k) + min(left(k), bound · nominal(k))        left(k) = sum over i < k of nominal(i) - spent(i)

and an image never takes more than its offer, so no tier is ever ahead of its target, and it ends behind by what its
last image left: at most 0.03 % over 300 pages, where arms may differ by 0.4 % (paper, "Equal-budget protocol").
The bound keeps one image from a budget that is not its tier's after a run of images too small for theirs.

The order of the images decides who takes what: keep it. A resumed run settles what its log holds before it goes on.

    for fitted in fit_all(images, budgets, tiers):
        ...
    sum(size.tokens for size in fit_sizes(sizes, budgets, tiers))      # the same, before any image is decoded
"""

from collections.abc import Iterable, Iterator

from stakes.errors import BadInput
from stakes.vision.decode import Source
from stakes.vision.resize import Fitted, fit
from stakes.vision.sizes import FittedSize, fitted_size

BOUND = 0.15


class Carry:
    """The leftovers of each tier so far."""

    def __init__(self, bound: float = BOUND) -> None:
        if not 0 <= bound <= 1:
            raise BadInput(f"the share of a budget that may be carried lies between 0 and 1, not {bound!r}")
        self.bound = bound
        self.left: dict[str, int] = {}

    def offer(self, tier: str, nominal: int) -> int:
        """The budget of the tier's next image: its own, and what the ones before it left, up to the bound."""
        return nominal + min(self.left.get(tier, 0), int(self.bound * nominal))

    def settle(self, tier: str, nominal: int, spent: int) -> None:
        """Book an image that was to spend ``nominal`` tokens and spent ``spent``."""
        left = self.left.get(tier, 0) + nominal - spent
        if left < 0:
            raise BadInput(f"tier {tier!r} spent {-left} tokens more than it was offered")
        self.left[tier] = left


def fit_all(
    images: Iterable[Source],
    budgets: Iterable[int],
    tiers: Iterable[str],
    family: str = "qwen2.5-vl",
    *,
    stretch: float = 0.15,
    carry: Carry | None = None,
) -> Iterator[Fitted]:
    """Fit each image to its budget and what its tier has left, one at a time and in order.

    For families whose tokens move in small steps. LLaVA-OneVision's rungs lie too far apart to be carried; its arms are
    aligned by ``ladder.align_ladders``.
    """
    carry = Carry() if carry is None else carry
    for image, nominal, tier in zip(images, budgets, tiers, strict=True):
        fitted = fit(image, carry.offer(tier, nominal), family, stretch=stretch)
        carry.settle(tier, nominal, fitted.tokens)
        yield fitted


def fit_sizes(
    sizes: Iterable[tuple[int, int]],
    budgets: Iterable[int],
    tiers: Iterable[str],
    family: str = "qwen2.5-vl",
    *,
    stretch: float = 0.15,
    carry: Carry | None = None,
) -> Iterator[FittedSize]:
    """What ``fit_all`` will make of images of these (width, height): a run's tokens, known before it is paid for."""
    carry = Carry() if carry is None else carry
    for (width, height), nominal, tier in zip(sizes, budgets, tiers, strict=True):
        size = fitted_size(width, height, carry.offer(tier, nominal), family, stretch=stretch)
        carry.settle(tier, nominal, size.tokens)
        yield size
