"""The online controller: keeps a mean budget over traffic whose mix of tiers is not known in advance.

    controller = Controller.from_policy(policy)
    grant = controller.grant("high", natives=[1520])       # budgets for the images of one request
    controller.settle(grant, spent=[570])                  # or controller.cancel(grant)

Hard limit: the first ``n`` images take at most ``mean n + burst`` tokens, for every ``n`` and every order of arrivals,
grants outstanding or not (``Allowance`` has the proof). No image gets less than the floor or its native tokens.

Quality: budgets are the exact optimum (``controller_path``), or those that a certificate covers, for

    mix  = shares of the tiers, exponentially forgotten over MEMORY images, starting from calibration's as PRIOR images
    even = mean / (tokens taken / tokens planned)                small images leave tokens over, kept sizes may not
    rate = even + (left - stock) / HORIZON                       with more than the stock left: draw it down slowly
    rate = even - (even - smallest) (stock - left) / STOCK       with less: save, down to the smallest budgets

where ``left`` is the allowance, with what outstanding grants will return on average of their worst case, and ``stock =
min(burst, STOCK)``. As the rate falls, tokens are taken first where they
bring least: the low-cost tiers give way, the most expensive keep theirs. A budget that the allowance cannot pay is cut
to the largest multiple of STEP that it can. Constants were chosen by simulation: ``benchmarks/controller.py``. Nothing
here is random or reads a clock: the same calls in the same order give the same grants.

Stability: where the optimum mixes two budgets in a tier, its images get them in turn. A known image has a place of its
own, from 0 to 1, and gets the larger budget if that is below the larger one's part. One that was granted before keeps
its size while that lies between what it would get with SLACK of the rate less and more. Where the allowance does not
pay for that, the cut size stays until it pays RETURN times for a larger one (``benchmarks/stable_sizes.py``).
"""

from collections.abc import Callable, Sequence

from stakes.budgets.allowance import Allowance, Ledger, MemoryLedger, Traffic
from stakes.budgets.controller_path import BudgetPath
from stakes.budgets.options.burst import STOCK, burst_of
from stakes.budgets.options.grant import Grant, GrantedSize, KnownImage, Wish, reason_of, share
from stakes.budgets.policy import Policy
from stakes.errors import BadInput

__all__ = ["STOCK", "Controller", "Grant", "GrantedSize", "KnownImage", "share"]

HORIZON = 4000  # images over which savings are drawn down: longer leaves them unspent, shorter forgets late high tiers
PRIOR = 200  # images that the calibration's mix counts for
STEP = 16  # tokens: cuts of nearly the same size become the same one
SLACK = 0.2  # of the rate: less changes sizes with every drift, more keeps sizes that the mix no longer warrants
RETURN = 8  # times that the allowance must pay for a larger size before a cut ends: less gives it to one image in ten
WALK = 64  # steps along the path that one image pays for; the path of 4 tiers and 13 budgets has at most 48


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
        self._outstanding: dict[Grant, float] = {}  # the tokens that its tier gives, whatever native or kept sizes
        self._solutions = self._kept = 0
        self._returning = 0.0  # reserved for second attempts, beyond what grants take on average
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
        burst = burst_of(policy, burst)
        if isinstance(burst, bool) or not isinstance(burst, int) or burst < 0:
            raise BadInput(f"a burst is a whole number of tokens from 0, not {burst!r}")
        if after is None:
            return cls(policy, Allowance(ledger(burst)))
        with after._allowance.lock:
            follower = cls(policy, after._allowance)
            after._allowance.ledger.burst = burst
            return follower

    def grant(
        self,
        tier: str,
        natives: Sequence[int],
        wanted: int | None = None,
        known: Sequence[KnownImage | None] = (),
        second: bool = False,
        predicted: Sequence[int] = (),
    ) -> Grant:
        """Budgets for a request's images, by the tokens that each takes at full size.

        ``wanted``: the budget of each image, in place of its tier's. ``known``: one for each image, None for one that
        never comes again. ``second``: reserve a second attempt too, where the tier escalates and the allowance pays
        for all images. ``predicted``: of a tier with a predictor, the budget predicted for each image. The total holds
        whatever is asked for.
        """
        index = self._index.get(tier)
        if index is None:
            raise BadInput(f"this policy has no tier {tier!r}; its tiers are {', '.join(self._path.tiers)}")
        if not natives or min(natives) < 1:
            raise BadInput(f"a grant is for images of at least one token each, not {list(natives)}")
        kept_before = [image.before.budget for image in known if image and image.before]
        largest = max(self._path.largest[index] if wanted is None else wanted, 0, *kept_before, *predicted)
        escalation = self._path.escalations[index] if second and wanted is None else None
        if escalation is None:
            self._allowance.rebalance(self._most_excess(natives, largest))
        else:  # both attempts, none of them above the native size
            self._allowance.rebalance(self._most_excess([2 * native for native in natives], sum(escalation)))
        with self._allowance.lock:
            self._traffic.see(index, len(natives))
            if sum(self._traffic.seen) >= self._every:
                self._solve()
            images = zip(known or [None] * len(natives), predicted or [0] * len(natives), strict=True)
            wishes = [self._wish(index, image, wanted, own) for image, own in images]
            kept, paid = [wish.kept is not None for wish in wishes], [wish.asked for wish in wishes]
            limit, rest = divmod(self._mean * len(natives) + max(0, self._allowance.in_hand), len(natives))
            if sum(share(paid, natives, kept)) > limit * len(natives) + rest:
                paid = [asked if asked <= limit else self._affordable(index, limit) for asked in paid]
            whole = share([wish.planned for wish in wishes], natives, kept)
            budgets = tuple(self._allowance.cut(share(paid, natives, kept), self._mean))
            sizes = tuple(wish.size(tier, *two) for wish, *two in zip(wishes, whole, budgets, strict=True))
            held = sum(wish.kept is not None and wish.kept.planned != wish.drawn for wish in wishes)
            reason = reason_of(sum(whole), budgets, natives, held)
            again: tuple[int, ...] = ()
            if escalation is not None:
                planned = wishes[0].beyond and sum(budgets) == sum(whole)
                again, note = self._second(budgets, natives, escalation[1], planned)
                reason = "; ".join(filter(None, (reason, note)))
            remembered = (
                wanted is None and self._path.escalations[index] is None and self._path.predicted[index] is None
            )
            grant = Grant(tier, budgets, reason, sizes if remembered else (), again)
            self._allowance.reserve(grant.reserved, self._mean)
            plan, pairs = self._solution.mean(index), zip(wishes, paid, strict=True)  # beyond it, others must save
            mean = sum(plan if (one.kept or predicted) and one.planned == part else part for one, part in pairs)
            self._outstanding[grant] = self._path.largest[index] * len(budgets) if again else mean
            self._returning += sum(grant.reserved) - self._outstanding[grant] if again else 0
            self._kept += held
            return grant

    def _second(
        self, budgets: Sequence[int], natives: Sequence[int], to: int, planned: bool
    ) -> tuple[tuple[int, ...], str]:
        """The budgets of a second attempt of all images, or none and why: it reserves both attempts of each image.

        ``planned``: the rate pays for it, on average.
        """
        again = tuple(share([to] * len(natives), natives))
        if again == tuple(budgets):
            return (), ""  # the first attempt sees the native sizes already
        if not planned:
            return (), "one attempt: the mean does not pay for a second now"
        both = [one + other for one, other in zip(budgets, again, strict=True)]
        if self._allowance.cut(both, self._mean) != both:
            return (), f"one attempt: the allowance does not pay for a second of {sum(again)} tokens"
        return again, ""

    def settle(self, grant: Grant, spent: int | Sequence[int]) -> None:
        """Record the tokens of the fitted images, each at most its budget, or their sum; the rest goes back."""
        with self._allowance.lock:
            if grant not in self._outstanding:
                raise BadInput(
                    "this grant was settled or cancelled before, or is another controller's; settle each once"
                )
            total = self._allowance.settle(grant.reserved, self._mean, spent)
            self._traffic.settle(len(grant.budgets), self._release(grant), total)

    def cancel(self, grant: Grant) -> None:
        """Cancel a grant whose images were never used; one already settled or cancelled stays as it is."""
        with self._allowance.lock:
            if grant in self._outstanding:
                self._release(grant)
                self._allowance.reserve(grant.reserved, self._mean, undo=True)

    def _release(self, grant: Grant) -> float:
        """What was planned for a grant that ends now."""
        planned = self._outstanding.pop(grant)
        self._returning -= sum(grant.reserved) - planned if grant.second else 0
        return planned

    def state(self) -> dict[str, float]:
        """For the metrics: totals since the start, and the budget (on average) and share of each tier."""
        with self._allowance.lock:
            total, weights = self._allowance, self._traffic.weights
            return {
                "images": total.images,
                "images_outstanding": total.outstanding,
                "images_kept": self._kept,
                "tokens_granted": total.granted,
                "tokens_spent": total.spent,
                "tokens_reserved": total.reserved,
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
        mix, left, most = self._traffic.update(), self._allowance.left + self._returning, STOCK * self._mean
        stock = min(self._allowance.burst, most)
        even = self._mean * self._traffic.planned / max(1.0, self._traffic.taken)
        rate = even + (left - stock) / HORIZON
        if left < stock:
            smallest = sum([part * budget for part, budget in zip(mix, self._path.smallest, strict=True)])
            rate = even - (even - smallest) * (stock - left) / most
        self._mix, self._rate = mix, rate
        self._solution = self._path.solve(mix, rate)
        self._solutions += 1

    def _wish(self, index: int, image: KnownImage | None, wanted: int | None, predicted: int) -> Wish:
        """What one image of a request of this tier should get; a tier with an option keeps no sizes."""
        drawn = self._draw(index, image) if wanted is None else wanted
        if wanted is None and (escalation := self._path.escalations[index]) is not None:
            first = min(drawn, escalation[0])
            return Wish(first, None, first, first, beyond=drawn > first)
        if wanted is None and (fixed := self._path.predicted[index]) is not None:
            beyond = drawn > fixed and predicted > 0
            own = predicted if beyond else min(drawn, fixed, predicted or fixed)
            return Wish(own, None, own, own, beyond)
        before = image.before if image else None
        kept = before if image and before and self._stays(image.place, before) else None
        planned = kept.budget if kept else drawn
        return Wish(drawn, kept, planned, self._uncut(before.cut, planned) if before else planned)

    def _stays(self, place: float, size: GrantedSize) -> bool:
        """Whether an image keeps its size: it would get no less at a somewhat higher rate, and no more at a lower."""
        index = self._index[size.tier]
        less, more = (self._path.solve(self._mix, self._rate * (1 + part)) for part in (-SLACK, SLACK))
        return less.at(index, place) <= size.planned <= more.at(index, place)

    def _uncut(self, cut: int, planned: int) -> int:
        """What an image asks for: the cut again, if there was one, until the allowance pays RETURN times for more."""
        rises = cut == 0 or self._allowance.left >= RETURN * (min(planned, 2 * cut) - self._mean)
        return planned if rises else min(cut, planned)

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

    def _draw(self, index: int, image: KnownImage | None) -> int:
        """An image's budget by the plan; images that are not known get the two of a mixed tier in turn."""
        solution = self._solution
        if index != solution.mixed or image:
            return solution.at(index, image.place if image else 1.0)
        self._credit[index] += solution.part
        if self._credit[index] < 1:
            return solution.budgets[index]
        self._credit[index] -= 1
        return solution.upper
