"""What does each arm ask of each image, so that all arms really spend the same?

The policy's budgets fix the total: one a tier, or with soft stakes what it decides for each question, which is what it
serves. ``arms`` hands it out. By deletion that is what is asked. By resizing a grid rarely
holds exactly the budget, so what one image leaves goes to the next of its tier (``vision.carry``), and what is asked of
an image is the tokens that its fitted size takes. Pages of one shape may all stop short of a small budget (672x784 at
32 takes 30, and 42 next), so the share that may be carried widens until every arm lands. LLaVA's AnyRes rungs are
aligned to the total instead. Averaged over layers (``evaluation.layered``), whole tokens come near to a budget, and the
plan says how near. What will be spent is known, and checked by the ledger, before anything is answered.

    plan = plan_arms(asked, policy, model, "resolution", ["uniform", "cost"])
    plan.budgets["uniform"][17]
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stakes.budgets.policy import Decision, Policy
from stakes.calibration import arms as ways
from stakes.calibration.arms import PATCH_FEATURES, density, patch_features
from stakes.calibration.arms.comparison import TOLERANCE, Ledger
from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach
from stakes.evaluation.items import Asked
from stakes.evaluation.layered import Layered
from stakes.models.base import Mechanism
from stakes.models.identity import family_of, image_features, native_tokens
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry import tokens_as_sent
from stakes.vision.geometry.anyres import AnyRes
from stakes.vision.geometry.ladder import align_ladders, ladder
from stakes.vision.image.decode import Source
from stakes.vision.image.resize import Fitted, FittedSize, fit, fitted_size

# What becomes of the tokens that one image leaves? The next of its tier may take them, so that a set lands on target.
#
# A grid rarely holds exactly the budget: one image alone spends 97.6 % of it on average. Within a tier
#
#     offer(k) = nominal(k) + min(left(k), bound · nominal(k))        left(k) = sum over i < k of nominal(i) - spent(i)
#
# and an image never takes more than its offer, so no tier is ever ahead of its target, and it ends behind by what its
# last image left: at most 0.03 % over 300 pages, where arms may differ by 0.4 % (paper, "Equal-budget protocol").
# The bound keeps one image from a budget that is not its tier's after a run of images too small for theirs.
#
# The order of the images decides who takes what: keep it. A resumed run settles what its log holds before it goes on.
#
#     for fitted in fit_all(images, budgets, tiers):
#         ...
#     sum(size.tokens for size in fit_sizes(sizes, budgets, tiers))      # the same, before any image is decoded


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


ARMS = ("uniform", "content", "cost", "anti")
BOUNDS = (BOUND, 0.3, 0.5, 1.0)  # of a budget that may be carried over


@dataclass(frozen=True)
class ArmPlan:
    """``nominal``: each arm's share of the one total, by sample. ``budgets``: what is asked of the model for it."""

    samples: tuple[str, ...]
    nominal: Mapping[str, tuple[int, ...]]
    budgets: Mapping[str, tuple[int, ...]]
    total: int
    mechanism: str
    """As the ledger knows it: deletion, resolution or anyres."""
    density: str
    """Whose features the content arm went by."""
    soft: bool = False
    """Whether the cost arm decided by question, at the policy's price, and not by tier."""
    rounding: float | None = None
    """Where budgets are averages over layers: by what share whole tokens may keep two arms' totals apart."""

    @property
    def counted(self) -> str:
        """What all arms spend the same of."""
        return "tokens" if self.rounding is None else "tokens averaged over layers"


def plan_arms(
    asked: Sequence[Asked],
    policy: Policy,
    model: Any,
    mechanism: Mechanism,
    names: Sequence[str] = ARMS,
    layers: Layered | None = None,
) -> ArmPlan:
    """The arms by name, in this order, all planning the same total; an arm that cannot be realised is an error.

    ``layers``: how budgets come about where they are averages over decoder layers.
    """
    for name in names:
        if name not in ARMS:
            raise BadInput(f"there is no arm {name!r}; choose from {', '.join(ARMS)}")
    if "uniform" not in names or len(set(names)) != len(names):
        raise BadInput("name each arm once, and uniform among them: it is what the others are compared with")
    family, tiers = family_of(model), [one.tier for one in asked]
    native = [native_tokens(model, *one.size, mechanism) for one in asked]
    costs = policy.costs
    cost = ways.by_tier(tiers, policy.budgets)  # with soft stakes too: a tier that the policy does not have is refused
    decided = decisions(asked, policy)
    if policy.soft is not None:
        cost = tuple(one.budget for one in decided)
    total = sum(cost)
    least = policy.floor
    if mechanism == "resolution":
        one_of_each = {one.size: one for one in asked}.values()
        least = max(least, *(least_budget(one, family) for one in one_of_each))
    if layers is not None:
        least = max(least, *(layers.least(tokens) for tokens in native))
    measured, kind = densities(asked, model) if "content" in names else ([], "")
    nominal: dict[str, tuple[int, ...]] = {}
    for name in names:
        if name == "uniform":
            nominal[name] = ways.uniform(len(asked), total)
        elif name == "cost":
            nominal[name] = cost
        elif name == "anti" and policy.soft is not None:
            nominal[name] = ways.mirrored(cost, [one.cost for one in decided], native=native, floor=least)
        elif name == "anti":
            nominal[name] = ways.anti(tiers, policy.budgets, costs, total, native=native, floor=least)
        else:
            nominal[name] = ways.content(measured, total, native=native, floor=least)
    anyres = mechanism == "resolution" and isinstance(named_family(family).formula, AnyRes)
    samples = tuple(one.id for one in asked)
    known = "anyres" if anyres else mechanism
    ledger = Ledger(samples, native, known)
    ledger.check_planned(nominal)
    if mechanism == "deletion":
        budgets = nominal
    elif anyres:
        budgets = {name: _on_rungs(name, asked, family, total, shares) for name, shares in nominal.items()}
    else:
        budgets = resized_budgets([one.size for one in asked], nominal, tiers, family, total)
    try:
        ledger.check_realised(budgets)
    except LedgerBreach as error:
        raise LedgerBreach(f"{error}; sizes are too coarse for {len(asked)} samples, so give more of them") from None
    rounding = None
    if layers is not None:
        layers.check(asked, native, list(budgets.values()))
        rounding = _rounding(layers, native, budgets, total)
    return ArmPlan(samples, nominal, budgets, total, known, kind, policy.soft is not None, rounding)


def _rounding(layers: Layered, native: Sequence[int], arms: Mapping[str, Sequence[int]], total: int) -> float:
    """By what share two arms of this total can differ: one may spend all of it, the other all but its roundings."""
    most = max(sum(layers.rounding(*pair) for pair in zip(native, row, strict=True)) for row in arms.values())
    return most / (total - most)


def decisions(asked: Sequence[Asked], policy: Policy) -> list[Decision]:
    """With soft stakes: what the policy decides for each question, ties settled by the sample's id; else none."""
    if policy.soft is None:
        return []
    return [policy.decide(one.question, one.task, about=one.id) for one in asked]


def _on_rungs(arm: str, asked: Sequence[Asked], family: str, total: int, shares: Sequence[int]) -> tuple[int, ...]:
    """The rungs nearest to an arm's shares that spend the total; a share below an image's lowest rung is refused."""
    ladders = [ladder(*one.size, family) for one in asked]
    for one, share in zip(asked, shares, strict=True):
        try:
            fitted_size(*one.size, share, family)
        except InfeasibleBudget as error:
            raise InfeasibleBudget(f"arm {arm!r}, sample {one.id!r}: {error}") from None
    try:
        return tuple(rung.tokens for rung in align_ladders(ladders, total, shares))
    except InfeasibleBudget as error:
        raise InfeasibleBudget(
            f"arm {arm!r} cannot spend the {total} tokens of the tiers' budgets on the rungs of {len(ladders)} images; "
            f"give more samples ({error})"
        ) from None


def resized_budgets(
    sizes: Sequence[tuple[int, int]],
    nominal: Mapping[str, tuple[int, ...]],
    tiers: Sequence[str],
    family: str,
    total: int,
) -> dict[str, tuple[int, ...]]:
    """The tokens of every image's fitted size, carried as little as lands all arms well within the tolerance."""
    budgets: dict[str, tuple[int, ...]] = {}
    for bound in BOUNDS:
        for name, shares in nominal.items():
            fitted = fit_sizes(sizes, shares, tiers, family, carry=Carry(bound))
            budgets[name] = tuple(size.tokens for size in fitted)
        if min(sum(spent) for spent in budgets.values()) >= total * (1 - TOLERANCE["resolution"] / 4):
            break
    return budgets


def densities(asked: Sequence[Asked], model: Any) -> tuple[list[float], str]:
    """Each sample's information density, once per image, and whose features that is."""
    from stakes.vision.image.decode import open_image

    found: dict[str, float] = {}
    kind = "model" if hasattr(model, "encode") else PATCH_FEATURES
    for one in asked:
        if one.digest not in found:
            image = open_image(one.load())
            features = image_features(model, image)
            # Rounding leaves nothing that a last bit of a matrix product on another machine could turn.
            found[one.digest] = max(0.0, round(density(patch_features(image) if features is None else features), 6))
    return [found[one.digest] for one in asked], kind


def least_budget(one: Asked, family: str) -> int:
    """The smallest budget that resizing can give this image."""
    try:
        low, high = 0, fitted_size(*one.size, tokens_as_sent(family, *one.size), family).tokens  # low never fits
    except InfeasibleBudget as error:
        raise InfeasibleBudget(f"sample {one.id!r}: {error}") from None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(one.size, middle, family) else (middle, high)
    return high


def _fits(size: tuple[int, int], budget: int, family: str) -> bool:
    try:
        fitted_size(*size, budget, family)
    except InfeasibleBudget:
        return False
    return True
