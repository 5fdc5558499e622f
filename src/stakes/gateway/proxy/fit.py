"""Prepares an image request: read it, choose its tier, measure the images, get a grant, fit. The result is a plan.

    plan = await preparer.prepare("chat", body, ClientHints(tiers=("high",)))

Reading and measuring run in the workers, then fitting and writing. The controller is called in between, on the event
loop, because it must see one request after the other.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

from stakes.budgets.controller import Grant
from stakes.errors import InfeasibleBudget
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.monitoring.undecided import example_text
from stakes.gateway.proxy import actuators
from stakes.gateway.proxy.decide import GROUNDING, TierChoice, choose_tier, images_digest
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.images import (
    FittedImage,
    MeasuredImage,
    Workers,
    data_url,
    fit_image,
    is_data_url,
    measure,
    measure_bytes,
    predict_fit,
)
from stakes.gateway.proxy.remote import Fetcher, read_url
from stakes.gateway.proxy.request import (
    Api,
    Call,
    ClientHints,
    ImageRef,
    dump,
    dump_images,
    encode_header,
    parse,
    read_call,
)
from stakes.gateway.reload import Rules, Served
from stakes.gateway.settings import Settings
from stakes.vision.geometry import family as named_family

UNCAPPED = ("bypassed", "grounding", "uncompressed")  # outcomes that do not count toward the mean budget


@dataclass(frozen=True)
class ImagePair:
    """An image before and after, for the dashboard; ``seen_url`` is None where the model saw the original."""

    format: str
    original: bytes
    seen_url: str | None


@dataclass
class RequestPlan:
    """What was decided about one image request.

    ``decided``: False where the signal recognised nothing. ``outcome``: text, fitted, observed, bypassed, grounding or
    uncompressed. ``natives``, ``budgets``, ``predicted`` and ``scales``: one entry for each measured image.
    ``unmeasured``: images that were not seen (remote, uploaded files). ``left_out``: how many images, the first ones,
    the server states that it did not read. ``body``: what is sent instead of the client's body, None where that is sent
    unchanged. ``example``: the masked text of an undecided request, if such texts are kept.
    """

    api: Api
    rules: Rules
    tier: str = ""
    why: str = ""
    decided: bool = True
    outcome: str = "text"
    body: bytes | None = None
    natives: Sequence[int] = ()
    budgets: Sequence[int] = ()
    predicted: Sequence[int] = ()
    scales: Sequence[tuple[float, float]] = ()
    unmeasured: int = 0
    left_out: int = 0
    fetched: bool = False  # whether an image was fetched from another host
    grant: Grant | None = None
    fit_s: float = 0.0
    model: str = ""
    question: str = field(default="", repr=False)
    example: str = field(default="", repr=False)
    pairs: list[ImagePair] = field(default_factory=list, repr=False)  # empty unless the dashboard keeps images

    @property
    def images(self) -> int:
        """How many images the request has, measured or not."""
        return len(self.natives) + self.unmeasured

    @property
    def expected(self) -> int | None:
        """Tokens that the server should count for all images, None where some were not measured."""
        if self.unmeasured or not self.natives:
            return None
        return sum((self.predicted if self.outcome == "fitted" else self.natives)[self.left_out :])

    def decision(self) -> dict[str, Any]:
        """The decision as JSON, for the log, the dashboard and traces."""
        numbers = {"native": list(self.natives), "budget": list(self.budgets), "predicted": list(self.predicted)}
        return {"tier": self.tier, "decided": self.decided, "outcome": self.outcome, **numbers}

    def settle(self, accepted: bool) -> None:
        """Record the tokens as spent if the model read the images, or else return the grant; once."""
        grant, self.grant, controller = self.grant, None, self.rules.controller
        if grant is not None:
            controller.settle(grant, sum(self.predicted)) if accepted else controller.cancel(grant)

    def headers(self, mode: str) -> list[tuple[bytes, bytes]]:
        """The ``x-stakes-`` headers of the response; the numbers of several images are separated by commas."""
        values = {
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
        return [(f"x-stakes-{name}".encode(), encode_header(text)) for name, text in values.items() if text]


class Preparer:
    """Makes the plans of one gateway."""

    def __init__(self, settings: Settings, served: Served, workers: Workers, metrics: Metrics, log: Log) -> None:
        self._settings, self._served, self._workers = settings, served, workers
        self._metrics, self._log = metrics, log
        self._observing = settings.mode == "observe"
        self.fetcher = Fetcher(settings.remote_hosts, settings.limits.image_bytes)

    async def prepare(self, api: Api, body: bytes, hints: ClientHints) -> RequestPlan:
        """The plan of one request that may hold images; ``Refused`` where it is not forwarded."""
        plan = RequestPlan(api, self._served.rules)
        if hints.bypass:
            return await self._bypass(plan, body)
        began = time.perf_counter()
        try:
            await self._prepare(plan, body, hints)
        except BaseException as error:
            plan.settle(accepted=False)
            if not isinstance(error, Exception):  # the client disconnected
                raise
            refusal = self._refusal(error)
            if not (self._observing or (refusal.passable and self._settings.fail == "open")):
                raise refusal from None
            (self._metrics.would_reject if self._observing else self._metrics.rejects).labels(refusal.code).inc()
            plan.outcome, plan.why, plan.body = "uncompressed", refusal.code.replace("_", " "), None
            plan.budgets, plan.predicted, plan.scales = (), (), ()
        plan.fit_s = time.perf_counter() - began
        return plan

    def _refusal(self, error: Exception) -> Refused:
        """What the client sees; the log names an unexpected error, the client does not see that one."""
        if isinstance(error, Refused):
            return error
        if isinstance(error, InfeasibleBudget):
            return Refused(422, "infeasible_budget", str(error), passable=True)
        self._log.write("fitting failed", logging.ERROR, failure=error)
        return Refused(500, "internal_error", "the gateway failed to prepare this request", passable=True)

    async def _bypass(self, plan: RequestPlan, body: bytes) -> RequestPlan:
        if not self._settings.allow_bypass:
            raise Refused(403, "bypass_forbidden", "this gateway does not allow x-stakes-bypass")
        plan.outcome, plan.why = "bypassed", "x-stakes-bypass"
        try:
            call = await self._workers.run(lambda: read_call(plan.api, parse(body)))
            if not call.images and not call.hidden:
                plan.outcome = "text"
                return plan
            _, images = await self._workers.run(self._measure, call, plan.rules.policy.family)
            plan.natives = [image.native for image in images]
            plan.unmeasured = len(call.images) + call.hidden - len(images)
        except Refused:  # it is forwarded whatever it holds; what cannot be measured is counted as unmeasured
            plan.unmeasured = max(plan.unmeasured, 1)
        return plan

    async def _prepare(self, plan: RequestPlan, body: bytes, hints: ClientHints) -> None:
        call, choice = await self._workers.run(self._read, plan, body, hints)
        plan.unmeasured = len(call.images) + call.hidden
        if not plan.unmeasured:
            return
        policy = plan.rules.policy
        plan.tier, plan.why, plan.decided = choice.tier, choice.why, choice.decided
        plan.question, plan.model = call.prompt.question, str(call.record.get("model") or "")[:200]
        most = self._settings.limits.images
        if plan.unmeasured > most:
            raise Refused(422, "too_many_images", f"a request may hold {most} images at most")
        plan.fetched = await self._fetch(call, policy.family)
        refs, images = await self._workers.run(self._measure, call, policy.family)
        plan.natives, plan.unmeasured = [image.native for image in images], plan.unmeasured - len(images)
        if self._settings.keep_images:
            plan.pairs = [ImagePair(image.format, image.data, None) for image in images]
        if choice.tier == GROUNDING or not refs:
            plan.outcome = GROUNDING if choice.tier == GROUNDING else "uncompressed"
            plan.body = await self._workers.run(dump, call.record) if plan.fetched else None
            fitted = [FittedImage(None, image.native) for image in images]
        else:
            self._check_pixels(images)
            plan.grant = plan.rules.controller.grant(choice.tier, plan.natives, choice.budget)
            plan.budgets = plan.grant.budgets
            if plan.grant.reason:
                plan.why = f"{plan.why}; {plan.grant.reason}"
            abandoned = Event()
            try:
                plan.body, fitted = await self._workers.run(
                    self.fit, call, refs, images, plan.budgets, policy.family, self._observing, abandoned
                )
            finally:
                abandoned.set()  # after a time limit or a disconnect, the thread ends with its current image
            plan.outcome = "observed" if self._observing else "fitted"
        plan.predicted, plan.scales = [one.tokens for one in fitted], [one.scale for one in fitted]
        plan.pairs = [replace(pair, seen_url=one.url) for pair, one in zip(plan.pairs, fitted, strict=False)]

    def _read(self, plan: RequestPlan, body: bytes, hints: ClientHints) -> tuple[Call, TierChoice]:
        """The request and its tier; a policy with per-request costs also looks at the digest of its images."""
        call, policy = read_call(plan.api, parse(body)), plan.rules.policy
        if not call.images and not call.hidden:
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
            if is_data_url(ref.url):
                continue
            read_url(ref.url)  # refuses every other scheme: servers read file: and worse
            if self.fetcher.allows(ref.url):
                if self._observing:
                    continue  # observing changes nothing, so nothing is fetched either
                data = await self.fetcher.fetch(ref.url)
                image = await self._workers.run(measure_bytes, data, family, self._settings.limits)
                ref.url, fetched = await self._workers.run(data_url, image.data, image.format), True
            elif self._settings.remote == "refuse":
                raise Refused(422, "remote_image", "remote images are not accepted; send the image as a data URL")
        return fetched

    def _measure(self, call: Call, family: str) -> tuple[list[ImageRef], list[MeasuredImage]]:
        """The images that are fitted. With pixels, one of ``detail: low`` is not: it takes the least tokens already."""
        by_pixels = self._settings.actuator == "pixels"
        refs = [ref for ref in call.images if is_data_url(ref.url) and not (by_pixels and ref.detail == "low")]
        return refs, [measure(ref.url, family, self._settings.limits) for ref in refs]

    def _check_pixels(self, images: Sequence[MeasuredImage]) -> None:
        """Refuse a request whose images would take too long to decode; other actuators and observing decode none."""
        allowed = max(self._settings.limits.request_pixels, self._settings.limits.pixels)
        decodes = self._settings.actuator == "pixels" and not self._observing
        if decodes and sum(image.width * image.height for image in images) > allowed:
            message = f"the images of a request may have {allowed / 1e6:g} megapixels together"
            raise Refused(422, "too_many_pixels", message)

    def fit(
        self,
        call: Call,
        refs: Sequence[ImageRef],
        images: Sequence[MeasuredImage],
        budgets: Sequence[int],
        family: str,
        observing: bool,
        abandoned: Event | None = None,
    ) -> tuple[bytes | None, list[FittedImage]]:
        """The new body (None while observing) and what became of each image; it ends early where nobody waits."""
        actuator = self._settings.actuator
        if actuator != "pixels":
            sizes = [(image.width, image.height) for image in images]
            tokens = actuators.apply(actuator, family, call, refs, sizes, budgets)
            return None if observing else dump_images(call.record, refs), [FittedImage(None, n) for n in tokens]
        if observing:
            return None, [predict_fit(image, budget, family) for image, budget in zip(images, budgets, strict=True)]
        fitted: list[FittedImage] = []
        by_detail = named_family(family).engine_parameter == "detail"
        for ref, image, budget in zip(refs, images, budgets, strict=True):
            if abandoned is not None and abandoned.is_set():
                raise Refused(503, "fit_timeout", "nobody waits for these images any more")
            fitted.append(fit_image(image, budget, family, self._settings.encoding))
            if (url := fitted[-1].url) is not None:
                ref.url = url
                if ref.part.get("uuid") is not None:  # vLLM caches images by it: each size needs its own
                    across, down = fitted[-1].scale
                    size = f"{round(image.width * across)}x{round(image.height * down)}"
                    ref.part["uuid"] = f"{ref.part['uuid']}-{size}"
            if by_detail and ref.detail in (None, "auto"):
                ref.detail = "high"  # what the formula counts; "auto" may choose either
        return dump_images(call.record, refs), fitted
