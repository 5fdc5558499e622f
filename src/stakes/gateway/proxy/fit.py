"""Prepares an image request: read it, choose its tier, measure the images, get a grant, fit. The result is a plan.

    plan = await preparer.prepare("chat", body, ClientHints(tiers=("high",)))

Reading, measuring, fitting and writing run in the workers; the controller sees requests in order, on the event loop.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Protocol

from stakes.gateway.escalation.confidence import UpstreamConfidence
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.monitoring.undecided import example_text
from stakes.gateway.pages import keep_cap
from stakes.gateway.pdf.parts import PdfParts
from stakes.gateway.proxy import actuators, checks
from stakes.gateway.proxy.clients import Client
from stakes.gateway.proxy.decide import GROUNDING, ImagePair, RequestPlan, TierChoice, choose_tier, images_digest
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.images import (
    FittedImage,
    MeasuredImage,
    data_url,
    is_data_url,
    measure,
    measure_bytes,
    measure_page,
    predict_budgets,
)
from stakes.gateway.proxy.remote import Fetcher
from stakes.gateway.proxy.request import Call, ClientHints, dump, read_call
from stakes.gateway.proxy.scan import Action, Api, ImageRef
from stakes.gateway.reload import Served
from stakes.gateway.settings import Settings
from stakes.gateway.sizes import ImageKeys
from stakes.gateway.workers import Workers
from stakes.vision.geometry.menus import most_tokens


class RefusalCounter(Protocol):
    """Counts refusals that are not enforced: ``Metrics``, or the counts of a wrapped client."""

    def count_passed(self, code: str, observing: bool) -> None:
        """Count one."""


class Preparer:
    """Makes the plans of one gateway."""

    def __init__(
        self,
        settings: Settings,
        served: Served,
        workers: Workers,
        metrics: RefusalCounter,
        log: Log,
        confidence: UpstreamConfidence,
    ) -> None:
        self._settings, self._served, self.workers = settings, served, workers
        self._metrics, self._log, self._observing = metrics, log, settings.mode == "observe"
        self.confidence = confidence
        self._bounds = lru_cache(settings.bounds_of)  # they may differ by the policy's family
        self._bounds(served.rules.policy.family)
        self.fetcher = Fetcher(settings.remote_hosts, settings.limits.image_bytes)
        self.pdfs = None if settings.pdf is None else PdfParts(settings)

    def close(self) -> None:
        """End what was started for it."""
        self.workers.close()
        if self.pdfs is not None:
            self.pdfs.close()

    async def prepare(self, api: Api, body: bytes, hints: ClientHints, client: Client | None = None) -> RequestPlan:
        """The plan of one request that may hold images; ``Refused`` where it is not forwarded."""
        plan = RequestPlan(api, self._served.rules, client)
        if hints.bypass:
            return await self._bypass(plan, body)
        began = time.perf_counter()
        try:
            await self._prepare(plan, body, hints)
        except BaseException as error:
            plan.settle(read=False)
            if not isinstance(error, Exception):  # the client disconnected
                raise
            refusal = checks.refusal_of(error, self._log)
            self.pass_or_raise(refusal)
            plan.outcome, plan.why, plan.body = "uncompressed", refusal.code.replace("_", " "), None
            plan.budgets, plan.predicted, plan.scales, plan.boxes, plan.attempts = (), (), (), (), None
        plan.fit_s = time.perf_counter() - began
        plan.take()
        return plan

    async def prepare_other(self, action: Action, body: bytes, hints: ClientHints) -> RequestPlan | None:
        """The plan of a request on a path that is not read; None where nothing in it may be an image."""
        if action != "refuse" and not checks.other_may_hold_image(body):
            return None
        if action == "count":
            await self._check_counted(body)
            return None
        count = (
            1
            if action == "refuse"
            else await self.workers.run_for(len(body), checks.count_within, body, self._settings.limits)
        )
        if not count:
            return None
        plan = RequestPlan("other", self._served.rules, outcome="uncompressed", unmeasured=count)
        plan.why = "this path is not read"
        if hints.bypass:
            self._check_bypass()
            plan.outcome, plan.why = "bypassed", "x-stakes-bypass"
        else:
            self.pass_or_raise(checks.unread_path(action))
        return plan

    async def _check_counted(self, body: bytes) -> None:
        """Nothing is generated from a body whose tokens are counted; but the upstream follows the addresses in it."""
        if not self._observing:
            call = await self.workers.run_for(
                len(body), lambda: read_call("messages", checks.parse_within(body, self._settings.limits))
            )
            checks.check_addresses(call)

    def pass_or_raise(self, refusal: Refused) -> None:
        """Count a refusal that is not enforced, because the gateway observes or fails open; raise any other."""
        if refusal.code == "unread_image" and self._settings.unread == "pass":
            return
        if not (self._observing or (refusal.passable and self._settings.fail == "open")):
            raise refusal from None
        self._metrics.count_passed(refusal.code, self._observing)

    def _check_bypass(self) -> None:
        if not self._settings.allow_bypass:
            raise Refused(403, "bypass_forbidden", "this gateway does not allow x-stakes-bypass")

    async def _bypass(self, plan: RequestPlan, body: bytes) -> RequestPlan:
        self._check_bypass()
        plan.outcome, plan.why = "bypassed", "x-stakes-bypass"
        call: Call | None = None
        try:
            call = await self.workers.run_for(
                len(body), lambda: read_call(plan.api, checks.parse_within(body, self._settings.limits))
            )
            if not call.count:
                plan.outcome = "text"
                return plan
            _, images = await self.workers.run(self._measure, call, plan.rules.policy.family)
            plan.natives = [image.native for image in images]
            plan.unmeasured = call.count - len(images)
        except Refused:  # it is forwarded whatever it holds; what cannot be measured is counted as unmeasured
            plan.unmeasured = max(plan.unmeasured, 1)
        if call is not None and not self._observing:
            checks.check_addresses(call)
        plan.take()
        return plan

    async def _prepare(self, plan: RequestPlan, body: bytes, hints: ClientHints) -> None:
        size = len(body) if self.pdfs is None else self.pdfs.work_size(body)
        call, choice = await self.workers.run_for(size, self._read, plan, body, hints)
        plan.unmeasured = call.count
        if not plan.unmeasured:
            return
        policy = plan.rules.policy
        plan.tier, plan.why, plan.decided = choice.tier, choice.why, choice.decided
        plan.question, plan.model = call.prompt.question, str(call.record.get("model") or "")[:200]
        plan.text_bytes = len(body) - sum(len(ref.holder[ref.key]) for ref in call.images)
        checks.check_readable(call, plan.api, self._settings)
        plan.fetched = await self._fetch(call, policy.family)
        refs, images, keys = await self.workers.run(self._measure_known, plan, call, choice, hints.sender)
        plan.natives, plan.unmeasured = [image.native for image in images], plan.unmeasured - len(images)
        plan.pages = [image.page.label if image.page else "-" for image in images] if call.pages else ()
        if self._settings.keep_images:
            plan.pairs = [ImagePair(image.format, image.data, None) for image in images]
        if choice.tier == GROUNDING or not refs:
            plan.outcome = GROUNDING if choice.tier == GROUNDING else "uncompressed"
            if choice.tier == GROUNDING:
                plan.grant_native(self._settings.grounding, self._settings.max_request_tokens)
            plan.body = await self.workers.run(dump, call.record) if plan.fetched else None
            fitted = [FittedImage(None, image.native) for image in images]
            if call.pages and refs:
                work = partial(actuators.fit_images, self._settings, call, refs, images)
                size = checks.decode_bytes(images, self._settings)
                plan.body, fitted = await self.workers.run_for(size, work, plan.natives, policy, self._observing)
        else:
            option = policy.tiers[choice.tier].option
            decoded = checks.decode_bytes(images, self._settings, predicts=option.predictor is not None)
            if option.reads_confidence and not self._observing:
                plan.attempts, note = self.confidence.begin(option, plan.api, call.record)
                plan.why += note
            names = [ref.part.get("uuid") for ref in refs]
            predicted = (
                await self.workers.run_images(decoded, predict_budgets, option, policy.family, images)
                if option.predictor
                else ()
            )
            plan.ask_grant(choice, [image.limit for image in images], keys, predicted)
            if (cap := self._settings.max_request_tokens) is not None:
                await self.workers.run_for(decoded, keep_cap, plan, images, cap)
            fitted = await self._fit_to_grant(plan, call, refs, images, decoded)
            if plan.attempts is not None and plan.attempts.second:
                plan.attempts.refit = partial(self._refit, plan, call, refs, images, names)
        _record(plan, images, fitted)

    async def _fit_to_grant(
        self, plan: RequestPlan, call: Call, refs: Sequence[ImageRef], images: Sequence[MeasuredImage], decoded: int
    ) -> list[FittedImage]:
        """Fit the images to their grant; ``decoded``: memory to decode them."""
        work = partial(actuators.fit_images, self._settings, call, refs, images, plan.budgets, plan.rules.policy)
        plan.body, fitted = await self.workers.run_images(decoded, work, self._observing)
        plan.outcome = "observed" if self._observing else "fitted"
        return fitted

    async def _refit(
        self,
        plan: RequestPlan,
        call: Call,
        refs: Sequence[ImageRef],
        images: Sequence[MeasuredImage],
        names: Sequence[str | None],
    ) -> None:
        """Fit the images to the budgets of the second attempt."""
        assert plan.attempts is not None
        for ref, image, name in zip(refs, images, names, strict=True):
            if image.page is None:
                ref.url = data_url(image.data, image.format)
            if name is not None:
                ref.part["uuid"] = name
        plan.budgets = plan.attempts.second
        try:
            fitted = await self._fit_to_grant(plan, call, refs, images, checks.decode_bytes(images, self._settings))
        except Exception as error:
            raise checks.refusal_of(error, self._log) from None
        _record(plan, images, fitted)

    def _read(self, plan: RequestPlan, body: bytes, hints: ClientHints) -> tuple[Call, TierChoice]:
        """The request and its tier; a policy with per-request costs also looks at the digest of its images."""
        record, policy = checks.parse_within(body, self._settings.limits), plan.rules.policy
        pages, pdfs = ({}, ()) if self.pdfs is None else self.pdfs.read(plan.api, body, record)
        call = replace(read_call(plan.api, record), pages=pages, pdfs=pdfs)
        if not call.count:
            return call, TierChoice("", "")
        digest = "" if policy.per_request is None else images_digest(ref.url for ref in call.images)
        choice = choose_tier(policy, call, hints, digest)
        if self._settings.keep_undecided and not choice.decided:
            plan.example = example_text(call.prompt)
        return call, choice

    async def _fetch(self, call: Call, family: str) -> bool:
        """Fetch remote images of listed hosts; others are forwarded or refused. True where one was fetched."""
        fetched = False
        for ref in call.images:
            if not is_data_url(ref.url) and self.fetcher.takes(ref.url, self._settings.remote) and not self._observing:
                data = await self.fetcher.fetch(ref.url)
                image = await self.workers.run(measure_bytes, data, family, self._settings.limits)
                ref.url, fetched = await self.workers.run(data_url, image.data, image.format), True
        return fetched

    def _measure(self, call: Call, family: str) -> tuple[list[ImageRef], list[MeasuredImage]]:
        """The images that are fitted; with pixels, ``detail: low`` counts where the family defines it."""
        by_pixels = self._settings.actuator == "pixels"
        refs = [ref for ref in call.images if is_data_url(ref.url)]
        limits, bounds = self._settings.limits, self._bounds(family)
        found = [
            measure_page(page, family, limits, bounds)
            if (page := call.pages.get(id(ref.part)))
            else measure(ref.url, family, limits, by_pixels and ref.detail, bounds)
            for ref in refs
        ]
        return refs, found if by_pixels else [self.with_most(image, family) for image in found]

    def with_most(self, image: MeasuredImage, family: str) -> MeasuredImage:
        """The image with what it can take by the largest entry of an actuator's menu, which may exceed its native."""
        size = image.width, image.height
        return replace(image, most=most_tokens(self._settings.actuator, family, *size, image.native))

    def _measure_known(
        self, plan: RequestPlan, call: Call, choice: TierChoice, sender: str
    ) -> tuple[list[ImageRef], list[MeasuredImage], list[ImageKeys]]:
        """The images, and the digests that their sizes are remembered by; a budget of its own is not remembered."""
        refs, images = self._measure(call, plan.rules.policy.family)
        if choice.tier == GROUNDING:
            return refs, images, []
        if above := actuators.trim_above(plan.rules.policy, self._settings, call.prompt):
            images = [replace(image, trim=0 if image.low_detail else above) for image in images]
        turns = call.record.get("messages", call.record.get("input"))
        data = [(ref.part, image.identity) for ref, image in zip(refs, images, strict=True)]
        keys = [] if choice.budget is not None else plan.rules.sizes.keys(sender, choice.tier, turns, data)
        return refs, images, keys


def _record(plan: RequestPlan, images: Sequence[MeasuredImage], fitted: Sequence[FittedImage]) -> None:
    """Note in the plan what became of its images."""
    plan.predicted, plan.scales = [one.tokens for one in fitted], [one.scale for one in fitted]
    if any(image.trim for image in images):
        sizes = [(0, 0, image.width, image.height) for image in images]
        plan.boxes = [one.box or whole for one, whole in zip(fitted, sizes, strict=True)]
    plan.pairs = [replace(pair, seen_url=one.url) for pair, one in zip(plan.pairs, fitted, strict=False)]
