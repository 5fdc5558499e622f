"""The decision as an endpoint: prompt and image sizes in, tier, budgets and sizes out, and no image is sent.

    POST /stakes/decide   {"question": "What is the total?", "images": [[1654, 2339]]}
    {"tier": "high", "images": [{"native": 4956, "budget": 576, "tokens": 567, "width": 588, "height": 756}], …}

For routers and other proxies. ``request`` is the body of a chat completion (``api``: responses or messages) in place of
``question``, ``system`` and ``schema``; of what it holds only the texts are read. ``tier``, ``task`` and ``cost`` mean
what the headers do. With ``book`` the tokens are booked at once as spent; else the total does not change. Either way
the images count in the traffic mix.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stakes.errors import InfeasibleBudget
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.pages import keep_cap
from stakes.gateway.proxy.actuators import fit_images, trim_above
from stakes.gateway.proxy.checks import parse_within
from stakes.gateway.proxy.clients import Authenticator, Client
from stakes.gateway.proxy.decide import GROUNDING, RequestPlan, TierChoice, choose_tier, images_digest
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.fit import Preparer
from stakes.gateway.proxy.http_limits import read_body
from stakes.gateway.proxy.images import FittedImage, MeasuredImage, measure_size
from stakes.gateway.proxy.request import Call, ClientHints
from stakes.gateway.proxy.scan import ImageRef, ReadApi
from stakes.gateway.proxy.usage import settle_images
from stakes.gateway.reload import Served
from stakes.gateway.settings import Settings
from stakes.signals.prompt import Prompt, read_prompt, read_schema
from stakes.vision.geometry import accepted_size
from stakes.vision.image.resize import fitted_size


class DecideBody(BaseModel):
    """What is asked for."""

    model_config = ConfigDict(extra="forbid", strict=True)
    images: list[Annotated[tuple[int, int], Field(strict=False)]] = Field(min_length=1)
    question: str = ""
    system: str = ""
    output_schema: dict[str, Any] = Field(default_factory=dict, alias="schema")
    request: dict[str, Any] | None = None
    api: Literal["chat", "responses", "messages"] = "chat"
    tier: str | list[str] = Field(default_factory=list)
    task: str | None = None
    cost: float | None = Field(default=None, strict=False)
    book: bool = False

    def prompt(self) -> Prompt:
        """What the request says."""
        if self.request is None:
            return Prompt(self.question, self.system, read_schema(self.output_schema), task=self.task)
        if self.question or self.system or self.output_schema:
            raise Refused(400, "bad_decide", "give the body of a request, or a question with system and schema")
        api: ReadApi = self.api
        return read_prompt(api, self.request, self.task)

    def hints(self) -> ClientHints:
        """What the client names."""
        return ClientHints((self.tier,) if isinstance(self.tier, str) else tuple(self.tier), self.task, cost=self.cost)


class DecideEndpoint:
    """Answers ``POST /stakes/decide`` for one gateway."""

    def __init__(
        self, settings: Settings, served: Served, preparer: Preparer, metrics: Metrics, authenticator: Authenticator
    ) -> None:
        self._settings, self._served, self._preparer = settings, served, preparer
        self._metrics, self._authenticator = metrics, authenticator

    def routes(self) -> list[Route]:
        """Its route."""
        return [Route("/stakes/decide", self.answer, methods=["POST"])]

    async def answer(self, request: Request) -> Response:
        """One decision as JSON; a key's limits hold as they do for a request with images."""
        client = self._authenticator.check(dict(request.headers.raw))
        if client is not None:
            client.admit()
        limits = self._settings.limits
        length = request.headers.get("content-length", "").encode() or None
        body = await read_body(request.receive, length, limits.text_bytes, limits.body_s, lambda _: None)
        record = await self._preparer.workers.run(parse_within, body, limits)
        asked = read_decide(record)
        plan, choice, call, images = await self._preparer.workers.run(self._read, asked, client)
        return JSONResponse(self._decide(asked.book, plan, choice, call, images))

    def _read(
        self, asked: DecideBody, client: Client | None
    ) -> tuple[RequestPlan, TierChoice, Call, list[MeasuredImage]]:
        """The tier, and the images by their sizes; ``Refused`` where the gateway would refuse such a request."""
        plan = RequestPlan("other", self._served.rules, client, outcome="decided")
        family, limits = plan.rules.policy.family, self._settings.limits
        if len(asked.images) > limits.images:
            raise Refused(422, "too_many_images", f"a request may hold {limits.images} images at most")
        images = [self._measured(width, height, family) for width, height in asked.images]
        plan.natives = [image.native for image in images]
        call = Call({}, tuple(ImageRef({}, {"url": ""}, "url") for _ in images), prompt=asked.prompt())
        digest = images_digest(f"{image.width}x{image.height}" for image in images)
        choice = choose_tier(plan.rules.policy, call, asked.hints(), digest)
        plan.tier, plan.why, plan.decided = choice.tier, choice.why, choice.decided
        return plan, choice, call, images

    def _decide(
        self, book: bool, plan: RequestPlan, choice: TierChoice, call: Call, images: list[MeasuredImage]
    ) -> dict[str, Any]:
        """The grant and what it means for each image; called on the event loop, as for every request."""
        try:
            if choice.tier == GROUNDING:
                plan.grant_native(self._settings.grounding, self._settings.max_request_tokens)
                fitted = [FittedImage(None, image.native) for image in images]
            else:
                plan.ask_grant(choice, [image.limit for image in images])
                if (cap := self._settings.max_request_tokens) is not None:
                    keep_cap(plan, images, cap)
                fitted = fit_images(self._settings, call, call.images, images, plan.budgets, plan.rules.policy, True)[1]
            plan.predicted = [one.tokens for one in fitted]
            if book:
                plan.take()
        except InfeasibleBudget as error:
            plan.settle(read=False)
            raise Refused(422, "infeasible_budget", str(error)) from None
        except BaseException:
            plan.settle(read=False)
            raise
        self._metrics.requests.labels(plan.tier, "decided").inc()
        settle_images(self._metrics, plan, read=book)
        return self._record(plan, call, images)

    def _measured(self, width: int, height: int, family: str) -> MeasuredImage:
        most = self._settings.limits.pixels
        if min(width, height) < 1 or width * height > most:
            message = f"a size is a width and a height in pixels, of {most} pixels at most, not [{width}, {height}]"
            raise Refused(422, "bad_size", message)
        image = measure_size(width, height, family, self._settings.limits, self._settings.bounds_of(family))
        return self._preparer.with_most(image, family)

    def _record(self, plan: RequestPlan, call: Call, images: list[MeasuredImage]) -> dict[str, Any]:
        budgets = plan.budgets or plan.natives
        each = zip(images, call.images, budgets, plan.predicted, strict=True)
        above = 0 if plan.tier == GROUNDING else trim_above(plan.rules.policy, self._settings, call.prompt)
        return {
            "tier": plan.tier,
            "why": plan.why,
            "decided": plan.decided,
            "policy": plan.rules.policy.fingerprint,
            "family": plan.rules.policy.family,
            "actuator": self._settings.actuator,
            "trim": above > 0,
            "trim_above": above,
            "images": [self._image(plan, image, ref, budget, tokens) for image, ref, budget, tokens in each],
            "parameters": call.record,
            "booked": plan.booked or 0,
        }

    def _image(
        self, plan: RequestPlan, image: MeasuredImage, ref: ImageRef, budget: int, tokens: int
    ) -> dict[str, Any]:
        """One image: its tokens, the size to send it in, and what its part needs for the actuator."""
        family, size = plan.rules.policy.family, (image.width, image.height)
        if self._settings.actuator == "pixels" and plan.tier != GROUNDING:
            fits = image.native <= budget and accepted_size(family, *size) == size
            if not fits:
                target = fitted_size(*size, budget, family)
                size = (target.width, target.height)
        stated: Mapping[str, Any] = {"detail": ref.detail, "media_resolution": ref.part.get("media_resolution")}
        extra = {name: value for name, value in stated.items() if value is not None}
        width, height = size
        return {"native": image.native, "budget": budget, "tokens": tokens, "width": width, "height": height, **extra}


def read_decide(record: Mapping[str, Any]) -> DecideBody:
    """The body, checked."""
    try:
        return DecideBody.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        message = f"{where}: {first['msg'].lower()}; give images as [[width, height], …] and a question or a request"
        raise Refused(400, "bad_decide", message) from None
