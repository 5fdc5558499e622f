"""Decides the tier of a request, and holds all that was decided about it: the plan.

What the client names comes first, then the policy's signal reads the question.

* ``x-stakes-tier``, then ``metadata.stakes_tier``: a tier, or several separated by commas, of which the most expensive
  counts. ``grounding`` keeps every image at its native size, because coordinates in the answer would shift.
* Else the policy's signal reads the prompt: question, system text, schema, earlier turns. A request that asks for
  things of several tiers gets the most expensive one. One that is undecided does too.
* A policy with per-request costs takes ``x-stakes-cost`` or ``metadata.stakes_cost`` as the cost of a mistake. Beside a
  named tier, the larger of two budgets counts: the tier's in the policy, and that of the cost. Where two budgets tie,
  the question and the images decide: a repeated request gets the same budget, the same question about other images
  draws anew.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from stakes.budgets.controller import Controller, Grant
from stakes.budgets.policy import Policy
from stakes.gateway.proxy.clients import Client
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.request import Call, ClientHints, encode_header
from stakes.gateway.proxy.scan import Api
from stakes.gateway.reload import Rules
from stakes.gateway.sizes import ImageKeys
from stakes.vision.image.trim import Bounds

if TYPE_CHECKING:
    from stakes.gateway.escalation.confidence import Attempts

GROUNDING = "grounding"


@dataclass(frozen=True)
class TierChoice:
    """The tier of one request and the reason; ``budget`` is set by a policy with per-request costs only."""

    tier: str
    why: str
    budget: int | None = None
    decided: bool = True


@dataclass(frozen=True)
class ImagePair:
    """An image before and after, for the dashboard; ``seen_url`` is None where the model saw the original."""

    format: str
    original: bytes
    seen_url: str | None


class Fitting(NamedTuple):
    """What one attempt sends."""

    budgets: Sequence[int]
    predicted: Sequence[int]
    scales: Sequence[tuple[float, float]]
    boxes: Sequence[Bounds]
    body: bytes | None
    pairs: list[ImagePair]


@dataclass
class RequestPlan:
    """What was decided about one image request.

    ``decided``: False where the signal recognised nothing. ``outcome``: text, fitted, observed, bypassed, grounding or
    uncompressed. ``natives``, ``budgets``, ``predicted`` and ``scales``: one entry for each measured image.
    Without ``budgets`` the images are outside of the total. ``unmeasured``: images that were not seen (remote, unread).
    ``left_out``: how many images, the first ones, the server states that it did not read. ``body``: what is sent in
    place of the client's, None where that is sent unchanged. ``booked``: tokens entered into the total, None until the
    request is settled. ``example``: the masked text of an undecided request, if such texts are kept. ``attempts``: set
    where the tier escalates or reviews; ``other_tokens`` and ``other_budget``: of the attempt that is not returned.
    """

    api: Api
    rules: Rules
    client: Client | None = None
    tier: str = ""
    why: str = ""
    decided: bool = True
    outcome: str = "text"
    body: bytes | None = None
    natives: Sequence[int] = ()
    budgets: Sequence[int] = ()
    predicted: Sequence[int] = ()
    scales: Sequence[tuple[float, float]] = ()
    boxes: Sequence[Bounds] = ()  # where margins are cut off, one for each measured image: the part that is shown
    unmeasured: int = 0
    left_out: int = 0
    fetched: bool = False  # whether an image was fetched from another host
    pages: Sequence[str] = ()  # where there are PDFs, one for each image: file.page, or - for one that is none
    grant: Grant | None = None
    booked: int | None = None
    taken: int = 0  # counted against the client's limit
    attempts: "Attempts | None" = None
    other_tokens: int = 0
    other_budget: int = 0
    text_bytes: int = 0  # of the body beside its images: the rest of the prompt has no more tokens than bytes
    fit_s: float = 0.0
    model: str = ""
    question: str = field(default="", repr=False)
    example: str = field(default="", repr=False)
    pairs: list[ImagePair] = field(default_factory=list, repr=False)  # empty unless the dashboard keeps images

    @property
    def controller(self) -> Controller:
        """The controller that pays: the one of all, or that of the client's own account."""
        return self.rules.controller if self.client is None else self.rules.account(self.client)

    @property
    def images(self) -> int:
        """How many images the request has, measured or not."""
        return len(self.natives) + self.unmeasured

    @property
    def expected(self) -> int | None:
        """Tokens that the server should count for all images, None where some were not measured."""
        if self.unmeasured or not self.natives or (self.pages and self.body is None):  # it reads PDFs in its own way
            return None
        return sum((self.predicted if self.outcome in ("fitted", GROUNDING) else self.natives)[self.left_out :])

    def decision(self) -> dict[str, Any]:
        """The decision as JSON, for the log, the dashboard and traces."""
        numbers = {"native": list(self.natives), "budget": list(self.budgets), "predicted": list(self.predicted)}
        about = {} if self.attempts is None else self.attempts.record()
        return {"tier": self.tier, "decided": self.decided, "outcome": self.outcome, **numbers, **about}

    def ask_grant(
        self, choice: TierChoice, limits: Sequence[int], keys: Sequence[ImageKeys] = (), predicted: Sequence[int] = ()
    ) -> None:
        """Get budgets for the measured images; ``limits``: what each can take at most.

        Those with keys may keep their sizes, but not beside a stated cost. ``predicted``: by the tier's predictor.
        """
        sizes, costs = self.rules.sizes, {name: plan.cost for name, plan in self.rules.policy.tiers.items()}
        known, attempts = sizes.find(keys, choice.tier, costs), self.attempts
        second = attempts is not None and attempts.may_escalate
        self.grant = self.controller.grant(choice.tier, limits, choice.budget, known, second, predicted)
        if keys and self.grant.sizes:
            sizes.store(keys, self.grant.sizes)
        self.budgets = self.grant.budgets
        if attempts is not None:
            attempts.second = self.grant.second
        if self.grant.reason:
            self.why = f"{self.why}; {self.grant.reason}"

    def grant_native(self, grounding: str, cap: int | None = None) -> None:
        """Let the total pay for native sizes, or refuse them; ``--grounding pass`` sends them outside of the total."""
        if grounding == "refuse":
            message = "this gateway does not keep native sizes; leave x-stakes-tier: grounding out"
            raise Refused(403, "grounding_forbidden", message)
        if grounding == "pass" or not self.natives:
            return
        if cap is not None and sum(self.natives) > cap:
            what = f"native sizes take {sum(self.natives)} tokens, and a request may take {cap}"
            raise Refused(422, "request_over_cap", f"{what}; send fewer or smaller images, or another tier")
        tiers = self.rules.policy.tiers
        most_expensive = max(tiers, key=lambda name: tiers[name].cost)
        self.grant = self.controller.grant(most_expensive, self.natives, max(self.natives))
        self.budgets = self.grant.budgets
        if sum(self.budgets) < sum(self.natives):
            message = f"native sizes take {sum(self.natives)} tokens, and {sum(self.budgets)} are left for them now"
            raise Refused(429, "grounding_over_budget", f"{message}; send smaller images, or another tier")

    def settle(self, read: bool) -> None:
        """Book the tokens if the model may have read the images, or else return the grant; once."""
        grant, self.grant, controller = self.grant, None, self.controller
        if grant is not None:
            self.booked = self.other_tokens + sum(self.predicted) if read else 0
            controller.settle(grant, self.booked) if read else controller.cancel(grant)
        if self.client is not None and not read:
            taken, self.taken = self.taken, 0
            self.client.give_back(taken)

    def take(self) -> None:
        """Count the tokens that are sent against the client's limit; 429, and the grant returned, beyond it."""
        if self.client is None:
            return
        tokens = sum(self.predicted if self.outcome in ("fitted", GROUNDING) else self.natives)
        try:
            self.client.take(tokens)
        except Refused:
            self.settle(read=False)
            raise
        self.taken = tokens

    @property
    def fitting(self) -> Fitting:
        """What the current attempt sends."""
        return Fitting(self.budgets, self.predicted, self.scales, self.boxes, self.body, self.pairs)

    def take_second(self) -> int:
        """Count the second attempt against the client's limit too; 429 beyond it."""
        tokens = 0 if self.client is None else sum(self.predicted)
        if self.client is not None:
            self.client.take(tokens)
        self.taken += tokens
        return tokens

    def second_failed(self, first: Fitting, read: bool, taken: int) -> None:
        """Return to the first attempt; ``read``: the second one's images may have been read, so both are booked."""
        if read:
            self.other_tokens, self.other_budget = sum(self.predicted), sum(self.budgets)
        elif self.client is not None:
            self.client.give_back(taken)
            self.taken -= taken
        self.budgets, self.predicted, self.scales, self.boxes, self.body, self.pairs = first

    def second_answered(self, first: Fitting) -> None:
        """The second attempt's answer is returned; both are booked."""
        self.other_tokens, self.other_budget = sum(first.predicted), sum(first.budgets)

    def headers(self, mode: str) -> list[tuple[bytes, bytes]]:
        """The ``x-stakes-`` headers of the response; the numbers of several images are separated by commas."""
        values = {
            "tier": self.tier,
            "why": self.why,
            "budget": ",".join(map(str, self.budgets)),
            "native-tokens": ",".join(map(str, self.natives)),
            "predicted-tokens": ",".join(map(str, self.predicted)),
            "scale": ",".join(f"{x:.4f}x{y:.4f}" for x, y in self.scales),
            "box": ",".join(":".join(map(str, box)) for box in self.boxes),
            "pages": ",".join(self.pages),
            "policy": self.rules.policy.fingerprint,
            "mode": mode,
            "outcome": self.outcome,
            **({} if self.attempts is None else self.attempts.headers()),
        }
        return [(f"x-stakes-{name}".encode(), encode_header(text)) for name, text in values.items() if text]


def may_have_read(status: int) -> bool:
    """Whether a model may have read the images: a status 4xx or 503 refuses a request before that."""
    return not (400 <= status < 500 or status == 503)


def choose_tier(policy: Policy, call: Call, hints: ClientHints, digest: str = "") -> TierChoice:
    """The tier of a request; ``digest``: that of its images, for a policy with per-request costs."""
    cost = read_cost(hints.cost or call.hints.cost)
    if cost is not None and policy.per_request is None:
        raise Refused(
            400, "cost_needs_soft_stakes", "this policy has fixed costs by tier; calibrate one with per-request costs"
        )
    source = "header x-stakes-tier" if hints.tiers else "metadata stakes_tier"
    tier = _named_tier(policy, hints.tiers or call.hints.tiers)
    if tier == GROUNDING:
        return TierChoice(GROUNDING, f"{source}: native size, so that coordinates hold")
    if tier is not None and cost is None:
        return TierChoice(tier, source)
    decision = policy.decide(call.prompt, hints.task or call.hints.task, cost, digest)
    budget = None if policy.per_request is None else decision.budget
    if tier is None or budget is None:
        return TierChoice(decision.tier, decision.why, budget, decision.decided)
    fixed, stated = policy.tiers[tier].budget, "header x-stakes-cost" if hints.cost else "metadata stakes_cost"
    if budget > fixed:
        why = f"{stated} {cost:g}: {budget} tokens, more than the {fixed} of tier {tier} ({source})"
        return TierChoice(tier, why, budget)
    return TierChoice(tier, f"{source}: {fixed} tokens, no fewer than the {budget} of {stated} {cost:g}")


def _named_tier(policy: Policy, named: Sequence[str]) -> str | None:
    """The most expensive of the tiers that the client names; grounding where it is among them, None without any."""
    for name in named:
        if name != GROUNDING and name not in policy.tiers:
            known = ", ".join([*policy.tiers, GROUNDING])
            raise Refused(400, "unknown_tier", f"there is no tier {name!r:.60}; this gateway's tiers are {known}")
    if GROUNDING in named:
        return GROUNDING
    return max(named, key=lambda name: policy.tiers[name].cost, default=None)


def read_cost(value: object) -> float | None:
    """The cost of a mistake that the client states, a number or its text; None where it states none."""
    if value is None or value == "":
        return None
    try:
        cost = math.nan if isinstance(value, bool) or not isinstance(value, str | int | float) else float(value)
    except (ValueError, OverflowError):
        cost = math.nan
    if not 0 < cost < math.inf:
        raise Refused(400, "bad_cost", f"a cost is a number above 0, not {value!r:.60}")
    return cost


def images_digest(urls: Iterable[str]) -> str:
    """A digest of the images as received: of their data URLs, or of the addresses of remote ones."""
    digest = hashlib.blake2b(digest_size=16)
    for url in urls:
        data = url.encode("utf-8", "backslashreplace")
        digest.update(len(data).to_bytes(8))
        digest.update(data)
    return digest.hexdigest()
