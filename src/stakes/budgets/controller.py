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
to the largest multiple of STEP that it can. Constants were chosen by simulation: ``benchmarks/controller.py``. Nothing
here is random or reads a clock: the same calls in the same order give the same grants.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stakes.budgets.allowance import Allowance, Ledger, MemoryLedger, Traffic
from stakes.budgets.controller_path import BudgetPath
from stakes.budgets.policy import Policy
from stakes.errors import BadInput

HORIZON = 4000  # images over which savings are drawn down: longer leaves them unspent, shorter forgets late high tiers
STOCK = 32  # mean budgets held back against shortage, and the default burst: 3 sigma of an even mix over HORIZON
PRIOR = 200  # images that the calibration's mix counts for
STEP = 16  # tokens: cuts of nearly the same size become the same one
WALK = 64  # steps along the path that one image pays for; the path of 4 tiers and 13 budgets has at most 48


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
        weights = [PRIOR * count / sum(counts) for count in counts]
        self._traffic = Traffic(allowance.lock, self._path.tiers, weights, float(PRIOR * self._mean))
        allowance.ledger.follow(self._traffic)
        self._credit = [0.5] * len(counts)  # of a mixed tier: at 1 the next image gets the larger budget
        self._every = 1 + len(self._path.steps) // WALK
        self._outstanding: dict[Grant, int] = {}  # the tokens that its tier gives, whatever the native sizes
        self._solutions = 0
        self._solve()

    @classmethod
    def from_policy(
        cls,
        policy: Policy,
        burst: int | None = None,
        *,
        after: "Controller | None" = None,
        ledger: Callable[[int], Ledger] = MemoryLedger,
    ) -> "Controller":
        """A controller of this policy's mean budget.

        ``burst``: tokens that the total may run ahead of ``mean n``; else the policy's, else 32 mean budgets.
        ``after``: the controller that this one follows. Both then draw on one total, so that a change of policy gives
        out no extra tokens (at most the sum of the means in force, plus the largest burst so far). ``ledger``: makes
        the ledger from the burst, where there is no controller before.
        """
        burst = policy.burst if burst is None else burst
        burst = STOCK * policy.mean_budget if burst is None else burst
        if isinstance(burst, bool) or not isinstance(burst, int) or burst < 0:
            raise BadInput(f"a burst is a whole number of tokens from 0, not {burst!r}")
        if after is None:
            return cls(policy, Allowance(ledger(burst)))
        with after._allowance.lock:
            follower = cls(policy, after._allowance)
            after._allowance.ledger.burst = burst
            return follower

    def grant(self, tier: str, natives: Sequence[int], wanted: int | None = None) -> Grant:
        """Budgets for a request's images, by the tokens that each takes at full size.

        ``wanted``: the budget of each image, in place of its tier's; the total still holds.
        """
        index = self._index.get(tier)
        if index is None:
            raise BadInput(f"this policy has no tier {tier!r}; its tiers are {', '.join(self._path.tiers)}")
        if not natives or min(natives) < 1:
            raise BadInput(f"a grant is for images of at least one token each, not {list(natives)}")
        self._allowance.rebalance(self._most_excess(natives, self._path.largest[index] if wanted is None else wanted))
        with self._allowance.lock:
            self._traffic.see(index, len(natives))
            if sum(self._traffic.seen) >= self._every:
                self._solve()
            planned = [self._next(index) if wanted is None else wanted for _ in natives]
            limit = self._mean + max(0, self._allowance.in_hand) // len(natives)
            paid = [
                budget if min(budget, native) <= limit else self._affordable(index, limit)
                for budget, native in zip(planned, natives, strict=True)
            ]
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
            self._traffic.settle(len(grant.budgets), self._outstanding.pop(grant), total)

    def cancel(self, grant: Grant) -> None:
        """Cancel a grant whose images were never used; one already settled or cancelled stays as it is."""
        with self._allowance.lock:
            if self._outstanding.pop(grant, None) is not None:
                self._allowance.reserve(grant.budgets, self._mean, undo=True)

    def state(self) -> dict[str, float]:
        """For the metrics: totals since the start, and the budget (on average) and share of each tier."""
        with self._allowance.lock:
            total, weights = self._allowance, self._traffic.weights
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
                **{f"mix_{tier}": weights[index] / sum(weights) for tier, index in self._index.items()},
            }

    def _solve(self) -> None:
        """Compute the budgets for the current mix and allowance."""
        mix, left, most = self._traffic.update(), self._allowance.left, STOCK * self._mean
        stock = min(self._allowance.burst, most)
        even = self._mean * self._traffic.planned / max(1.0, self._traffic.taken)
        rate = even + (left - stock) / HORIZON
        if left < stock:
            smallest = sum([part * budget for part, budget in zip(mix, self._path.smallest, strict=True)])
            rate = even - (even - smallest) * (stock - left) / most
        self._solution = self._path.solve(mix, rate)
        self._solutions += 1

    def close(self) -> None:
        """Return to the ledger what is in hand, at the end of the process."""
        self._allowance.close()

    def _most_excess(self, natives: Sequence[int], largest: int) -> int:
        """The most tokens beyond the mean that the first images of a request can take, whatever they are granted."""
        above = [native - self._mean for native in natives if native > self._mean]
        return min(sum(above), largest * len(natives) - self._mean * len(above))

    def _affordable(self, index: int, limit: int) -> int:
        """The largest budget up to ``limit``, in steps that keep nearly equal cuts equal; at least the smallest."""
        budget = max(self._path.smallest[index], limit - limit % STEP if limit > STEP else limit)
        return self._path.permitted(index, budget)

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
