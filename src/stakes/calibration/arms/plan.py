"""Plan what each arm asks of each image, so that all arms spend the same.

The policy's budgets fix the total: one per tier, or what it serves for each question: with per-request costs what it
decides, with a predictor what that gives the image. ``arms`` shares it out. By deletion that is what is asked. By
resizing, a grid rarely holds exactly the budget, so what one image leaves goes to the next of its tier (``fit_sizes``),
and what is asked of an image is the tokens that its fitted size takes. LLaVA's AnyRes rungs are aligned to the total
instead. Averaged over layers (``evaluation.layer_budgets``), whole tokens come near to a budget, and the plan says how
near. What will be spent is known, and checked by ``EqualTotals``, before anything is answered.

    plan = plan_arms(samples, policy, model, Setting("resolution"), ["uniform", "cost"])
    plan.budgets["uniform"][17]
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from stakes.budgets.policy import Decision, Policy
from stakes.calibration import arms as shares
from stakes.calibration.arms.comparison import TOLERANCE, EqualTotals
from stakes.data.sample import Sample
from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.layer_budgets import LayerBudgets, layer_budgets
from stakes.evaluation.outcome_log import Outcome
from stakes.models.identity import family_of, image_features, native_tokens
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry import tokens_as_sent
from stakes.vision.geometry.ladder import align_ladders, ladder
from stakes.vision.geometry.tiles import AnyRes
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import FittedSize, fitted_size
from stakes.vision.image.statistics import page_statistics

ARMS = ("uniform", "content", "cost", "anti")
BOUNDS = (0.15, 0.3, 0.5, 1.0)  # shares of a budget that may be carried over, tried in turn


@dataclass(frozen=True)
class ArmPlan:
    """``nominal``: each arm's share of the one total, by sample. ``budgets``: what is asked of the model for it."""

    samples: tuple[str, ...]
    nominal: Mapping[str, tuple[int, ...]]
    budgets: Mapping[str, tuple[int, ...]]
    total: int
    mechanism: str
    """As ``EqualTotals`` knows it: deletion, resolution or anyres."""
    density: str
    """Whose features the content arm went by."""
    per_request: bool = False
    """Whether the cost arm decided by question, at the policy's price, and not by tier."""
    rounding: float | None = None
    """Where budgets are averages over layers: the share by which whole tokens may make two arms' totals differ."""
    labels: tuple[str, ...] | None = None
    """The true tier of each sample, where a signal read other ones; budgets follow the readings."""
    unit: str = "document"
    """What is independent: document or group."""

    @property
    def counted(self) -> str:
        """What all arms spend the same of."""
        return "tokens" if self.rounding is None else "tokens averaged over layers"

    def record(self) -> dict[str, object]:
        """As JSON; ``soft`` is the file's key for ``per_request``."""
        return {"soft" if key == "per_request" else key: value for key, value in asdict(self).items()}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "ArmPlan":
        """From JSON; TypeError, ValueError or AttributeError where it is not a plan."""
        plan = cls(**{"per_request" if key == "soft" else key: value for key, value in record.items()})
        nominal, budgets = (
            {arm: tuple(int(b) for b in row) for arm, row in table.items()} for table in (plan.nominal, plan.budgets)
        )
        labels = None if plan.labels is None else tuple(str(label) for label in plan.labels)
        return replace(plan, samples=tuple(plan.samples), nominal=nominal, budgets=budgets, labels=labels)

    def check_realised(self, arms: Mapping[str, Sequence[Outcome]]) -> float:
        """Check that the answers of all arms spent the same; the largest relative deviation between two arms."""
        native = [outcome.native for outcome in next(iter(arms.values()))]
        checks = EqualTotals(self.samples, native, self.mechanism, self.rounding or 0.0)
        return checks.check_realised({arm: [outcome.spent for outcome in rows] for arm, rows in arms.items()})


def plan_arms(
    samples: Sequence[Sample],
    policy: Policy,
    model: Any,
    setting: Setting,
    names: Sequence[str] = ARMS,
    density: Sequence[float] | None = None,
) -> ArmPlan:
    """The arms by name, in this order, all planning the same total; an arm that cannot be realised is an error.

    ``density``: that of each sample by the model's features, where it is known; only content needs it.
    """
    for name in names:
        if name not in ARMS:
            raise BadInput(f"there is no arm {name!r}; choose from {', '.join(ARMS)}")
    if "uniform" not in names or len(set(names)) != len(names):
        raise BadInput("name each arm once, and uniform among them: it is what the others are compared with")
    family, mechanism, layers = family_of(model), setting.mechanism, layer_budgets(model, setting)
    native = [native_tokens(model, *sample.size, mechanism) for sample in samples]
    least = policy.floor
    if mechanism == "resolution":
        one_of_each = {sample.size: sample for sample in samples}.values()
        least = max(least, *(least_budget(sample, family) for sample in one_of_each))
    if layers is not None:
        least = max(least, *(layers.least(tokens) for tokens in native))
    nominal, kind = _nominal(samples, policy, model, names, native, least, density)
    total = sum(nominal["uniform"])
    anyres = mechanism == "resolution" and isinstance(named_family(family).formula, AnyRes)
    ids = tuple(sample.id for sample in samples)
    checks = EqualTotals(ids, native, "anyres" if anyres else mechanism)
    checks.check_planned(nominal)
    if mechanism == "deletion":
        budgets = nominal
    elif anyres:
        budgets = {name: _on_rungs(name, samples, family, total, target) for name, target in nominal.items()}
    else:
        sizes, tiers = [sample.size for sample in samples], [sample.tier for sample in samples]
        budgets = resized_budgets(sizes, nominal, tiers, family, total)
    try:
        checks.check_realised(budgets)
    except LedgerBreach as error:
        raise LedgerBreach(f"{error}; sizes are too coarse for {len(samples)} samples, so give more of them") from None
    rounding = None
    if layers is not None:
        layers.check(samples, native, list(budgets.values()))
        rounding = _rounding(layers, native, budgets, total)
    per_request = policy.per_request is not None
    return ArmPlan(ids, nominal, budgets, total, checks.mechanism, kind, per_request, rounding)


def _nominal(
    samples: Sequence[Sample],
    policy: Policy,
    model: Any,
    names: Sequence[str],
    native: Sequence[int],
    least: int,
    density: Sequence[float] | None,
) -> tuple[dict[str, tuple[int, ...]], str]:
    """Each arm's share of the total by sample, and whose features the content arm went by."""
    tiers = [sample.tier for sample in samples]
    cost = shares.by_tier(tiers, policy.budgets)  # also refuses a tier that the policy does not have
    decided = decisions(samples, policy)
    if decided:
        cost = tuple(decision.budget for decision in decided)
    elif not policy.fixed:
        cost = tuple(min(pair) for pair in zip(predicted_budgets(samples, policy), native, strict=True))
    total, kind = sum(cost), ""
    nominal: dict[str, tuple[int, ...]] = {}
    for name in names:
        if name == "uniform":
            nominal[name] = shares.uniform(len(samples), total)
        elif name == "cost":
            nominal[name] = cost
        elif name == "content":
            measured = densities(samples, model) if density is None else density
            kind = density_kind(model)
            nominal[name] = shares.content(measured, total, native=native, floor=least)
        elif decided:
            expected = [decision.cost for decision in decided]
            nominal[name] = shares.mirrored(cost, expected, native=native, floor=least)
        else:
            nominal[name] = shares.anti(tiers, policy.budgets, policy.costs, total, native=native, floor=least)
    return nominal, kind


def _rounding(layers: LayerBudgets, native: Sequence[int], arms: Mapping[str, Sequence[int]], total: int) -> float:
    """The share by which two arms of this total can differ: one may spend all of it, the other all but roundings."""
    most = max(sum(layers.rounding(*pair) for pair in zip(native, row, strict=True)) for row in arms.values())
    return most / (total - most)


def decisions(samples: Sequence[Sample], policy: Policy) -> list[Decision]:
    """With per-request costs: what the policy decides for each question, ties settled by the sample's id; else none."""
    if policy.per_request is None:
        return []
    return [policy.decide(sample.prompt, sample.task, about=sample.id) for sample in samples]


def predicted_budgets(samples: Sequence[Sample], policy: Policy) -> list[int]:
    """What the policy serves for each image: predicted, or the fixed budget of its tier."""
    found = []
    for sample in samples:
        option = policy.tiers[sample.tier].option
        if option.predictor is None:
            found.append(option.budget)
        else:
            statistics = [page_statistics(open_image(sample.load()))]
            found += option.predictor.predict(statistics, option.budget).tolist()
    return found


def _on_rungs(arm: str, samples: Sequence[Sample], family: str, total: int, target: Sequence[int]) -> tuple[int, ...]:
    """The rungs nearest to an arm's shares that spend the total; a share below an image's lowest rung is refused."""
    ladders = [ladder(*sample.size, family) for sample in samples]
    for sample, share in zip(samples, target, strict=True):
        try:
            fitted_size(*sample.size, share, family)
        except InfeasibleBudget as error:
            raise InfeasibleBudget(f"arm {arm!r}, sample {sample.id!r}: {error}") from None
    try:
        return tuple(rung.tokens for rung in align_ladders(ladders, total, target))
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
    """The tokens of every image's fitted size, carried over as little as lands all arms well within the tolerance.

    Pages of one shape may all stop short of a small budget (672x784 at 32 takes 30, and 42 next), so the share that may
    be carried over widens until every arm lands.
    """
    budgets: dict[str, tuple[int, ...]] = {}
    for bound in BOUNDS:
        for name, target in nominal.items():
            budgets[name] = tuple(size.tokens for size in fit_sizes(sizes, target, tiers, family, bound))
        if min(sum(spent) for spent in budgets.values()) >= total * (1 - TOLERANCE["resolution"] / 4):
            break
    return budgets


def fit_sizes(
    sizes: Sequence[tuple[int, int]],
    budgets: Sequence[int],
    tiers: Sequence[str],
    family: str = "qwen2.5-vl",
    bound: float = BOUNDS[0],
) -> list[FittedSize]:
    """Fit images of these (width, height) to their budgets; what one leaves goes to the next of its tier.

    A grid rarely holds exactly the budget: one image alone spends 97.6 % of it on average. Within a tier

        offer(k) = nominal(k) + min(left(k), bound · nominal(k)),    left(k) = sum over i < k of nominal(i) - spent(i)

    and an image never takes more than its offer, so no tier is ever ahead of its target, and it ends behind by what its
    last image left: at most 0.03 % over 300 pages, where arms may differ by 0.4 % (paper, "Equal-budget protocol"). The
    bound keeps an image near its tier's budget after a run of images too small for theirs. The order matters: keep it.
    """
    left: dict[str, int] = {}
    fitted = []
    for (width, height), nominal, tier in zip(sizes, budgets, tiers, strict=True):
        offer = nominal + min(left.get(tier, 0), int(bound * nominal))
        size = fitted_size(width, height, offer, family)
        left[tier] = left.get(tier, 0) + nominal - size.tokens
        fitted.append(size)
    return fitted


def densities(samples: Sequence[Sample], model: Any) -> list[float]:
    """Each sample's information density, computed once per image."""
    by_image: dict[str, float] = {}
    for sample in samples:
        if sample.digest not in by_image:
            image = open_image(sample.load())
            features = image_features(model, image)
            density = shares.density(shares.patch_features(image) if features is None else features)
            # Rounded, so that the last bit of a matrix product on another machine changes nothing.
            by_image[sample.digest] = max(0.0, round(density, 6))
    return [by_image[sample.digest] for sample in samples]


def density_kind(model: Any) -> str:
    """Whose features a density is of."""
    return "model" if hasattr(model, "encode") else shares.PATCH_FEATURES


def least_budget(sample: Sample, family: str) -> int:
    """The smallest budget that resizing can give this image."""
    try:  # ``low`` never fits
        low, high = 0, fitted_size(*sample.size, tokens_as_sent(family, *sample.size), family).tokens
    except InfeasibleBudget as error:
        raise InfeasibleBudget(f"sample {sample.id!r}: {error}") from None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(sample.size, middle, family) else (middle, high)
    return high


def _fits(size: tuple[int, int], budget: int, family: str) -> bool:
    try:
        fitted_size(*size, budget, family)
    except InfeasibleBudget:
        return False
    return True
