"""How is an image request made ready? Read it, choose its tier, measure, get a grant, fit: a plan comes out.

    plan = await preparer.prepare("chat", body, Said(tiers=("high",)))

In two hops to the workers: reading and measuring, then fitting and writing. The controller is asked in between, on the
event loop, because it must see one request after the other.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from stakes.budgets.controller import Grant
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.proxy import actuators
from stakes.gateway.proxy.decide import GROUNDING, choose, cost_of, images_digest
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.images import (
    Measured,
    Shrunk,
    Workers,
    data_url,
    foretell,
    is_data_url,
    measure,
    measure_bytes,
    shrink,
)
from stakes.gateway.proxy.remote import Fetcher, read_url
from stakes.gateway.proxy.request import Api, Call, ImageRef, dump, dump_images, parse, plain, read_call
from stakes.gateway.reload import Rules, Served
from stakes.gateway.settings import Settings
from stakes.vision.geometry import family as named_family

# What was decided about one request? Its tier, budgets and tokens: for the headers, the metrics and the log.
#
# ``outcome`` is text, fitted, observed, bypassed, grounding or uncompressed; the last three are outside the cap.


APART = ("bypassed", "grounding", "uncompressed")


@dataclass(frozen=True)
class Pair:
    """An image before and after, for the live page; ``seen_url`` is None where the model saw the original."""

    format: str
    original: bytes
    seen_url: str | None


@dataclass
class Plan:
    """One image request on its way.

    ``natives``, ``budgets``, ``predicted`` and ``scales``: one entry for each image that was measured. ``unmeasured``:
    images that went by unseen (remote, uploaded files). ``expected``: what the server should count for all images,
    None where some were not measured. ``left_out``: the first images, where the server says that it did not read them.
    ``body``: what is sent instead, None where it is sent as it came.
    """

    api: Api
    rules: Rules
    tier: str = ""
    why: str = ""
    outcome: str = "text"
    body: bytes | None = None
    natives: Sequence[int] = ()
    budgets: Sequence[int] = ()
    predicted: Sequence[int] = ()
    scales: Sequence[tuple[float, float]] = ()
    unmeasured: int = 0
    left_out: int = 0
    fetched: bool = False  # whether an image came from another host
    grant: Grant | None = None
    fit_s: float = 0.0
    model: str = ""
    question: str = field(default="", repr=False)
    pairs: list[Pair] = field(default_factory=list, repr=False)  # empty unless the page keeps images

    @property
    def images(self) -> int:
        """How many images the request has, seen or not."""
        return len(self.natives) + self.unmeasured

    @property
    def expected(self) -> int | None:
        """Tokens that the server should count for the images."""
        if self.unmeasured or not self.natives:
            return None
        return sum((self.predicted if self.outcome == "fitted" else self.natives)[self.left_out :])

    def settle(self) -> None:
        """The images were read by the model: their tokens are spent."""
        if self.grant is not None:
            self.rules.controller.settle(self.grant, sum(self.predicted))
            self.grant = None

    def cancel(self) -> None:
        """No model read them: the grant goes back."""
        if self.grant is not None:
            self.rules.controller.cancel(self.grant)
            self.grant = None

    def headers(self, mode: str) -> list[tuple[bytes, bytes]]:
        """What the client is told; several images' numbers stand with commas between."""
        said = {
            "tier": self.tier,
            "why": self.why,
            "budget": ",".join(map(str, self.budgets)),
            "native-tokens": ",".join(map(str, self.natives)),
            "predicted-tokens": ",".join(map(str, self.predicted)),
            "scale": ",".join(f"{x:.4f}x{y:.4f}" for x, y in self.scales),
            "policy": self.rules.policy.fingerprint,
            "mode": mode,
            "outcome": self.outcome,
        }
        return [(f"x-stakes-{name}".encode(), plain(text)) for name, text in said.items() if text]


@dataclass(frozen=True)
class Said:
    """What the client's headers say."""

    tiers: tuple[str, ...] = ()
    task: str | None = None
    bypass: bool = False
    cost: str = ""


class Preparer:
    """Makes plans."""

    def __init__(self, settings: Settings, served: Served, workers: Workers, metrics: Metrics, log: Log) -> None:
        self._settings, self._served, self._workers = settings, served, workers
        self._metrics, self._log = metrics, log
        self._limits = settings.limits
        self.fetcher = Fetcher(settings.remote_hosts, settings.limits.image_bytes)

    async def prepare(self, api: Api, body: bytes, said: Said) -> Plan:
        """The plan of one request that may hold images; ``Refused`` where it goes no further."""
        plan = Plan(api, self._served.rules)
        if said.bypass:
            return await self._bypass(plan, body)
        began = time.perf_counter()
        try:
            await self._prepare(plan, body, said)
        except Exception as error:
            plan.cancel()
            refusal = error if isinstance(error, Refused) else self._broken(error)
            observing = self._settings.mode == "observe"
            if not (observing or (refusal.soft and self._settings.fail == "open")):
                raise refusal from None
            (self._metrics.would_reject if observing else self._metrics.rejects).labels(refusal.code).inc()
            plan.outcome, plan.why, plan.body = "uncompressed", refusal.code.replace("_", " "), None
            plan.budgets, plan.predicted, plan.scales = (), (), ()
        except BaseException:  # the client left
            plan.cancel()
            raise
        plan.fit_s = time.perf_counter() - began
        return plan

    def _broken(self, error: Exception) -> Refused:
        """Our own fault: told by name in the log, and to the client without a word of it."""
        self._log.say("fitting failed", logging.ERROR, failure=error)
        return Refused(500, "internal_error", "the gateway failed to prepare this request", soft=True)

    async def _bypass(self, plan: Plan, body: bytes) -> Plan:
        if not self._settings.allow_bypass:
            raise Refused(403, "bypass_forbidden", "this gateway lets nobody bypass it")
        plan.outcome, plan.why = "bypassed", "x-stakes-bypass"
        try:
            call = await self._workers.run(self._read, plan.api, body)
            if not call.images and not call.hidden:
                plan.outcome = "text"
                return plan
            _, measured = await self._workers.run(self._measure_seen, call, plan.rules.policy.family)
            plan.natives = [one.native for one in measured]
            plan.unmeasured = len(call.images) + call.hidden - len(measured)
        except Refused:  # it is left alone whatever it holds; what cannot be measured is counted as unseen
            plan.unmeasured = max(plan.unmeasured, 1)
        return plan

    async def _prepare(self, plan: Plan, body: bytes, said: Said) -> None:
        policy = plan.rules.policy
        call, about = await self._workers.run(self._read_about, plan.api, body, policy.soft is not None)
        if not call.images and not call.hidden:
            return
        plan.unmeasured = len(call.images) + call.hidden
        by = "header x-stakes-tier" if said.tiers else "metadata stakes_tier"
        cost = cost_of(said.cost or call.cost)
        choice = choose(policy, call.texts, said.task or call.task, said.tiers or call.tiers, by, about, cost)
        plan.tier, plan.why, plan.question = choice.tier, choice.why, " ".join(call.texts)
        plan.model = str(call.record.get("model") or "")[:200]
        if choice.why.startswith("undecided"):
            self._metrics.undecided.inc()
        if len(call.images) + call.hidden > self._limits.images:
            raise Refused(422, "too_many_images", f"a request may hold {self._limits.images} images at most")
        family = policy.family
        plan.fetched = await self._fetch(call, family)
        refs, measured = await self._workers.run(self._measure_seen, call, family)
        plan.natives, plan.unmeasured = [one.native for one in measured], plan.unmeasured - len(measured)
        if self._settings.keep_images:
            plan.pairs = [Pair(one.format, one.data, None) for one in measured]
        if choice.tier == GROUNDING or not refs:
            plan.outcome = GROUNDING if choice.tier == GROUNDING else "uncompressed"
            plan.predicted, plan.scales = plan.natives, [(1.0, 1.0)] * len(measured)
            plan.body = await self._workers.run(dump, call.record) if plan.fetched else None
            return
        plan.grant = plan.rules.controller.grant(choice.tier, plan.natives, choice.budget)
        plan.budgets = plan.grant.budgets
        if plan.grant.reason:
            plan.why = f"{plan.why}; {plan.grant.reason}"
        observing = self._settings.mode == "observe"
        came = [ref.url for ref in refs]
        made = await self._workers.run(self.fit, call, refs, measured, plan.budgets, family, observing)
        plan.body, plan.predicted, plan.scales = made
        if plan.pairs:
            sent = [None if ref.url is before else ref.url for ref, before in zip(refs, came, strict=True)]
            plan.pairs = [Pair(one.format, one.data, url) for one, url in zip(measured, sent, strict=True)]
        plan.outcome = "observed" if observing else "fitted"

    def _read(self, api: Api, body: bytes) -> Call:
        return read_call(api, parse(body))

    def _read_about(self, api: Api, body: bytes, soft: bool) -> tuple[Call, str]:
        call = self._read(api, body)
        return call, images_digest(ref.url for ref in call.images) if soft else ""

    async def _fetch(self, call: Call, family: str) -> bool:
        """Fetch remote images whose hosts are listed; others are passed on or refused. True where one was fetched."""
        fetched = False
        for ref in call.images:
            if is_data_url(ref.url):
                continue
            read_url(ref.url)  # no other scheme goes through: servers read file: and worse
            if self.fetcher.allows(ref.url):
                if self._settings.mode == "observe":
                    continue  # observing changes nothing, so nothing is fetched either
                data = await self.fetcher.fetch(ref.url)
                one = await self._workers.run(measure_bytes, data, family, self._limits)
                ref.url, fetched = await self._workers.run(data_url, one.data, one.format), True
            elif self._settings.remote == "refuse":
                raise Refused(422, "remote_image", "remote images are not taken here; send it as a data URL")
        return fetched

    def _measure_seen(self, call: Call, family: str) -> tuple[list[ImageRef], list[Measured]]:
        refs = [ref for ref in call.images if is_data_url(ref.url) and not self._is_low_detail(ref)]
        return refs, [measure(ref.url, family, self._limits) for ref in refs]

    def _is_low_detail(self, ref: ImageRef) -> bool:
        """An image that the client itself asks to be billed at the least is left as it is."""
        return self._settings.actuator == "pixels" and ref.detail == "low"

    def fit(
        self,
        call: Call,
        refs: Sequence[ImageRef],
        measured: Sequence[Measured],
        budgets: Sequence[int],
        family: str,
        observing: bool,
    ) -> tuple[bytes | None, list[int], list[tuple[float, float]]]:
        """The new body (none while observing), the tokens of each image and how far it was scaled."""
        actuator = self._settings.actuator
        if actuator != "pixels":
            sizes = [(one.width, one.height) for one in measured]
            tokens = actuators.act(actuator, family, call, refs, sizes, budgets)
            return None if observing else dump_images(call.record, refs), tokens, [(1.0, 1.0)] * len(tokens)
        made: list[Shrunk] = []
        by_detail = named_family(family).engine_parameter == "detail"
        for ref, one, budget in zip(refs, measured, budgets, strict=True):
            if observing:
                made.append(foretell(one, budget, family))
                continue
            shrunk = shrink(one, budget, family, self._settings.encoding)
            if shrunk.url is not None:
                ref.url = shrunk.url
            if by_detail and ref.detail in (None, "auto"):
                ref.detail = "high"  # what the formula counts; "auto" may choose either
            made.append(shrunk)
        body = None if observing else dump_images(call.record, refs)
        return body, [one.tokens for one in made], [one.scale for one in made]
