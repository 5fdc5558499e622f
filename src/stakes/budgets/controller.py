"""The online controller: keeps a mean budget over traffic whose mix of tiers is not known in advance.

    controller = Controller.from_policy(policy)
    grant = controller.grant("high", natives=[1520])       # budgets for the images of one request
    controller.settle(grant, spent=[570])                  # or controller.cancel(grant)

Hard limit: the first ``n`` images take at most ``mean n + burst`` tokens, for every ``n`` and every order of arrivals,
grants outstanding or not (``Allowance`` has the proof). No image gets less than the floor or its native tokens.

Quality: budgets are the exact optimum (``controller_path``), or those that a certificate covers, for

    mix  = shares of the tiers, exponentially forgotten over MEMORY images, starting from calibration's as PRIOR images
    even = mean / (tokens taken / tokens planned)                small images and rough fits leave tokens over
    rate = even + (left - stock) / HORIZON                       with more than the stock left: draw it down slowly
    rate = even - (even - smallest) (stock - left) / STOCK       with less: save, down to the smallest budgets

where ``left`` is the allowance and ``stock = min(burst, STOCK)``. As the rate falls, tokens are taken first where they
bring least: the low-cost tiers give way, the most expensive keep theirs. A budget that the allowance cannot pay is cut
to the largest measured one that it can. Constants were chosen by simulation: ``benchmarks/controller.py``. Nothing here
is random or reads a clock: the same calls in the same order give the same grants.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from stakes.budgets.controller_path import BudgetPath
from stakes.budgets.policy import Policy
from stakes.errors import BadInput, LedgerBreach

MEMORY = 2000  # images: shorter follows chance, longer spends a high-cost phase's budgets on what came before it
HORIZON = 4000  # images over which savings are drawn down: longer leaves them unspent, shorter forgets late high tiers
STOCK = 32  # mean budgets held back against shortage, and the default burst: 3 sigma of an even mix over HORIZON
PRIOR = 200  # images that the calibration's mix counts for
WALK = 64  # steps along the path that one image pays for; the path of 4 tiers and 13 budgets has at most 48


class Allowance:
    """The tokens that one stream of images may still take. Hold ``lock`` around every call.

    For every ``n``, the first ``n`` images granted (cancelled ones left out) take at most ``sum(mean) + burst`` tokens.
    A grant that waits to be settled counts in full, and what it may leave over counts for nothing until it is settled:

        allowance = burst + sum over settled images (mean - spent)
                          - sum over outstanding grants max(0, sum(budget - mean))  >= 0

    So a cancelled grant never takes back tokens that were reserved for another. Proof for a prefix that ends within
    grant g: when g was made, every grant before it was settled or outstanding, an outstanding one takes at most its
    budgets, and the allowance, which counted exactly these and perhaps some that were cancelled later, was not exceeded
    by any of g's images in their order (``cut``). Policies that follow one another share one allowance.
    """

    def __init__(self, burst: int) -> None:
        self.lock = Lock()
        self.burst = burst
        self.images = 0  # granted and not cancelled
        self.granted = 0  # their budgets
        self.spent = 0  # by settled images
        self.outstanding = 0  # images granted, neither settled nor cancelled
        self.reserved = 0  # their budgets
        self._saved = 0  # mean - spent, over settled images
        self._excess = 0  # reserved beyond the mean, over outstanding grants

    @property
    def left(self) -> int:
        """Tokens that may be given beyond the mean of the images to come."""
        return self.burst + self._saved - self._excess

    def cut(self, budgets: Sequence[int], mean: int) -> list[int]:
        """The budgets, cut so that no image takes the total beyond its limit; never below ``min(budget, mean)``."""
        left, cut = max(0, self.left), []
        for budget in budgets:
            cut.append(min(budget, mean + left))
            left += mean - cut[-1]
        return cut

    def reserve(self, budgets: Sequence[int], mean: int, *, undo: bool = False) -> None:
        """Reserve these budgets, or undo their reservation."""
        sign, total = -1 if undo else 1, sum(budgets)
        self.images += sign * len(budgets)
        self.granted += sign * total
        self.outstanding += sign * len(budgets)
        self.reserved += sign * total
        self._excess += sign * max(0, total - mean * len(budgets))

    def settle(self, budgets: Sequence[int], mean: int, spent: int | Sequence[int]) -> int:
        """Replace a reservation by the tokens spent, one number for the request or one per image; returns the sum."""
        each = [spent] if isinstance(spent, int) else list(spent)
        limits = [sum(budgets)] if isinstance(spent, int) else list(budgets)
        if len(each) != len(limits):
            raise BadInput(
                f"{len(each)} numbers of tokens spent for {len(limits)} images; give one for each, or their sum"
            )
        for tokens, limit in zip(each, limits, strict=True):
            if not 0 <= tokens <= limit:
                raise LedgerBreach(
                    f"{tokens} tokens were spent where {limit} were granted; fit to the grant, or cancel it"
                )
        self.reserve(budgets, mean, undo=True)
        self.images += len(budgets)
        self.granted += sum(budgets)
        self.spent += sum(each)
        self._saved += mean * len(budgets) - sum(each)
        return sum(each)


@dataclass(frozen=True, eq=False)
class Grant:
    """Budgets for the images of one request, in their order, until it is settled or cancelled."""

    tier: str
    budgets: tuple[int, ...]
    reason: str


class Controller:
    """Keeps one policy's mean budget. Thread-safe; its memory grows with outstanding grants only."""

    def __init__(self, policy: Policy, allowance: Allowance) -> None:
        self._path = BudgetPath.of(policy)
        self._allowance = allowance
        self._mean = policy.mean_budget
        self._index = {tier: index for index, tier in enumerate(self._path.tiers)}
        counts = [1 if plan.curve is None else max(plan.curve.counts) for plan in policy.tiers.values()]
        self._weights = [PRIOR * count / sum(counts) for count in counts]
        self._seen = [0] * len(counts)  # since the last solution
        self._credit = [0.5] * len(counts)  # of a mixed tier: at 1 the next image gets the larger budget
        self._every = 1 + len(self._path.steps) // WALK
        self._outstanding: dict[Grant, int] = {}  # the tokens that its tier gives, whatever the native sizes
        self._planned = self._taken = float(PRIOR * self._mean)  # these and what was spent, over settled grants
        self._solutions = 0
        self._solve()

    @classmethod
    def from_policy(
        cls, policy: Policy, burst: int | None = None, *, after: "Controller | None" = None
    ) -> "Controller":
        """A controller of this policy's mean budget.

        ``burst``: tokens that the total may run ahead of ``mean n``; else the policy's, else 32 mean budgets.
        ``after``: the controller that this one follows. Both then draw on one total, so that a change of policy gives
        out no extra tokens (at most the sum of the means in force, plus the largest burst so far).
        """
        burst = policy.burst if burst is None else burst
        burst = STOCK * policy.mean_budget if burst is None else burst
        if isinstance(burst, bool) or not isinstance(burst, int) or burst < 0:
            raise BadInput(f"a burst is a whole number of tokens from 0, not {burst!r}")
        if after is None:
            return cls(policy, Allowance(burst))
        with after._allowance.lock:
            follower = cls(policy, after._allowance)
            after._allowance.burst = burst
            return follower

    def grant(self, tier: str, natives: Sequence[int], wanted: int | None = None) -> Grant:
        """Budgets for a request's images, by the tokens that each takes at full size.

        ``wanted``: the budget of each image by per-request costs, in place of its tier's; the total still holds.
        """
        index = self._index.get(tier)
        if index is None:
            raise BadInput(f"this policy has no tier {tier!r}; its tiers are {', '.join(self._path.tiers)}")
        if not natives or min(natives) < 1:
            raise BadInput(f"a grant is for images of at least one token each, not {list(natives)}")
        with self._allowance.lock:
            self._seen[index] += len(natives)
            if sum(self._seen) >= self._every:
                self._solve()
            planned = [self._next(index) if wanted is None else wanted for _ in natives]
            limit = self._mean + max(0, self._allowance.left) // len(natives)
            paid = [budget if budget <= limit else self._path.within(index, limit) for budget in planned]
            shared = share(paid, natives)
            budgets = tuple(self._allowance.cut(shared, self._mean))
            whole = share(planned, natives) if paid != planned else shared
            grant = Grant(tier, budgets, _reason(sum(whole), budgets, natives))
            self._allowance.reserve(budgets, self._mean)
            self._outstanding[grant] = sum(paid)
            return grant

    def settle(self, grant: Grant, spent: int | Sequence[int]) -> None:
        """Record the tokens of the fitted images, each at most its budget, or their sum; the rest goes back."""
        with self._allowance.lock:
            if grant not in self._outstanding:
                raise BadInput(
                    "this grant was settled or cancelled before, or is another controller's; settle each once"
                )
            total = self._allowance.settle(grant.budgets, self._mean, spent)
            decay = (1 - 1 / MEMORY) ** len(grant.budgets)
            self._planned = self._planned * decay + self._outstanding.pop(grant)
            self._taken = self._taken * decay + total

    def cancel(self, grant: Grant) -> None:
        """Cancel a grant whose images were never used; one already settled or cancelled stays as it is."""
        with self._allowance.lock:
            if self._outstanding.pop(grant, None) is not None:
                self._allowance.reserve(grant.budgets, self._mean, undo=True)

    def state(self) -> dict[str, float]:
        """For the metrics: totals since the start, and the budget (on average) and share of each tier."""
        with self._allowance.lock:
            total, weight = self._allowance, sum(self._weights)
            return {
                "images": total.images,
                "images_outstanding": total.outstanding,
                "tokens_granted": total.granted,
                "tokens_spent": total.spent,
                "mean": (total.spent + total.reserved) / total.images if total.images else 0.0,
                "mean_budget": self._mean,
                "burst": total.burst,
                "allowance": total.left,
                "solutions": self._solutions,
                **{f"budget_{tier}": self._solution.mean(index) for tier, index in self._index.items()},
                **{f"mix_{tier}": self._weights[index] / weight for tier, index in self._index.items()},
            }

    def _solve(self) -> None:
        """Compute the budgets for the current mix and allowance."""
        decay = (1 - 1 / MEMORY) ** sum(self._seen)
        self._weights = [weight * decay + seen for weight, seen in zip(self._weights, self._seen, strict=True)]
        self._seen = [0] * len(self._seen)
        whole, left, most = sum(self._weights), self._allowance.left, STOCK * self._mean
        mix = [weight / whole for weight in self._weights]
        stock = min(self._allowance.burst, most)
        even = self._mean * self._planned / max(1.0, self._taken)
        rate = even + (left - stock) / HORIZON
        if left < stock:
            smallest = sum([part * budget for part, budget in zip(mix, self._path.smallest, strict=True)])
            rate = even - (even - smallest) * (stock - left) / most
        self._solution = self._path.solve(mix, rate)
        self._solutions += 1

    def _next(self, index: int) -> int:
        """The next image's budget; a mixed tier alternates between its two, as evenly as its part allows."""
        solution = self._solution
        if index != solution.mixed:
            return solution.budgets[index]
        self._credit[index] += solution.part
        if self._credit[index] < 1:
            return solution.budgets[index]
        self._credit[index] -= 1
        return solution.upper


def share(budgets: Sequence[int], natives: Sequence[int]) -> list[int]:
    """Share one request's budgets among its images: none takes more than its native tokens.

    What that leaves over goes to the larger images in proportion to the tokens that they lack, and never beyond those.
    """
    shares = [min(budget, native) for budget, native in zip(budgets, natives, strict=True)]
    lacks = [native - part for native, part in zip(natives, shares, strict=True)]
    lacking = sum(lacks)
    over = min(sum(budgets) - sum(shares), lacking)
    if not over:
        return shares
    before = 0
    for i, lack in enumerate(lacks):
        shares[i] += (before + lack) * over // lacking - before * over // lacking
        before += lack
    return shares


def _reason(planned: int, budgets: Sequence[int], natives: Sequence[int]) -> str:
    """Why these budgets, in a few words; empty where they are the tier's own."""
    if sum(budgets) < planned:
        return f"{planned} tokens cut to {sum(budgets)} by the allowance"
    if sum(budgets) == sum(natives):
        return "native size fits"
    return "budgets shared by native size" if len(budgets) > 1 else ""
