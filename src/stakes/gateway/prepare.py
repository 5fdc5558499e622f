"""How is an image request made ready? Read it, choose its tier, measure, get a grant, fit: a plan comes out.

    plan = await preparer.prepare("chat", body, Said(tiers=("high",)))

In two hops to the workers: reading and measuring, then fitting and writing. The controller is asked in between, on the
event loop, because it must see one request after the other.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from stakes.gateway import actuators
from stakes.gateway.decide import GROUNDING, choose, cost_of, images_digest
from stakes.gateway.images import Measured, Shrunk, data_url, foretell, is_data_url, measure, measure_bytes, shrink
from stakes.gateway.logs import Log
from stakes.gateway.metrics import Metrics
from stakes.gateway.plan import Pair, Plan
from stakes.gateway.read_request import Api, Call, ImageRef, dump, dump_images, parse, read_call
from stakes.gateway.refusal import Refused
from stakes.gateway.reload import Served
from stakes.gateway.remote import Fetcher, read_url
from stakes.gateway.settings import Settings
from stakes.gateway.workers import Workers
from stakes.vision.geometry import family as named_family


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
