"""The decisions of a client without a proxy: the policy, the total, and what was decided about each request.

decisions = InProcess(settings, served, InlineWorkers())
plan = await decisions.plan("chat", body, headers)
decisions.answered(plan, response, streamed=False)
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from stakes.budgets.policy import Policy
from stakes.gateway.escalation.confidence import UpstreamConfidence, not_asked
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.proxy.decide import RequestPlan, may_have_read
from stakes.gateway.proxy.fit import Preparer
from stakes.gateway.proxy.request import ClientHints, check_names
from stakes.gateway.proxy.scan import Action, is_read, may_hold_image
from stakes.gateway.proxy.usage import PARAMETERS, CapCheck, UsageReader
from stakes.gateway.reload import Served
from stakes.gateway.settings import Settings
from stakes.gateway.workers import Workers
from stakes.vision.image.trim import Bounds

P = ParamSpec("P")
T = TypeVar("T")

_NOT_SENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"})  # errors of httpx
DECIDED: ContextVar[list["BudgetReport | None"] | None] = ContextVar("stakes_decided", default=None)
"""Reports of the requests that the current call has sent, where somebody collects them."""


@dataclass(frozen=True)
class BudgetReport:
    """What was decided about one request with images; the fields are the gateway's headers."""

    tier: str
    why: str
    outcome: str
    budgets: tuple[int, ...]
    native: tuple[int, ...]
    predicted: tuple[int, ...]
    scales: tuple[tuple[float, float], ...]
    policy: str
    mode: str
    pages: tuple[str, ...] = ()
    boxes: tuple[Bounds, ...] = ()
    review: bool | None = None

    @classmethod
    def of(cls, plan: RequestPlan, mode: str) -> "BudgetReport":
        """The report of a plan."""
        numbers = tuple(plan.budgets), tuple(plan.natives), tuple(plan.predicted), tuple(plan.scales)
        about = plan.rules.policy.fingerprint, mode, tuple(plan.pages), tuple(plan.boxes)
        review = None if plan.attempts is None else plan.attempts.flagged
        return cls(plan.tier, plan.why, plan.outcome, *numbers, *about, review)


class InlineWorkers(Workers):
    """Runs image work in the thread that asks, for a client without an event loop."""

    def __init__(self) -> None:
        self.inside = 0

    async def run_for(self, size: int, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:  # noqa: ARG002
        """What ``work`` returns or raises."""
        return work(*args, **kwargs)

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class InProcess:
    """The decisions of one wrapped client: its policy, its total, and counts of what happened.

    ``checks``: how often the server's count of image tokens agreed, differed or was unknown, of responses that were not
    streamed. ``passed``: refusals that were not enforced, by code. ``warnings``: of an engine that ignores budgets, and
    of a policy with thresholds, because answers are not read here (``front``: why not).
    """

    settings: Settings
    served: Served
    workers: Workers
    checks: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    front: str = "a client without a proxy asks once"
    _lock: Lock = field(default_factory=Lock, repr=False)
    _checked: float = field(default_factory=time.monotonic, repr=False)

    def __post_init__(self) -> None:
        self._caps = CapCheck(PARAMETERS[self.settings.actuator])
        confidence = UpstreamConfidence(self.front)
        self._preparer = Preparer(self.settings, self.served, self.workers, self, Log(), confidence)
        if sentence := not_asked(self.policy, self.front):
            self.warnings.append(sentence)
            Log().write(sentence, logging.WARNING)

    @property
    def policy(self) -> Policy:
        """The policy in force; a file is read again when it changes."""
        return self.served.rules.policy

    def state(self) -> dict[str, float]:
        """The total: images and tokens so far, the mean, and the budget and share of each tier."""
        return self.served.rules.state()

    def close(self) -> None:
        """Return to the ledger what is in hand; the client itself is closed as any other."""
        self._preparer.close()
        self.served.rules.close()

    def count_passed(self, code: str, observing: bool) -> None:  # noqa: ARG002
        """Count a refusal that is not enforced."""
        self.passed[code] += 1

    async def plan(self, action: Action, body: bytes, headers: Mapping[bytes, bytes]) -> RequestPlan | None:
        """The plan of one request, None without an image; ``Refused`` where it is not sent."""
        self._reload()
        if (unknown := check_names(headers)) is not None:
            self._preparer.pass_or_raise(unknown)
        hints = ClientHints.from_headers(headers)
        if not is_read(action):
            return await self._preparer.prepare_other(action, body, hints)
        if not may_hold_image(body):
            return None
        plan = await self._preparer.prepare(action, body, hints)
        return None if plan.outcome == "text" else plan

    def answered(self, plan: RequestPlan | None, response: Any, streamed: bool) -> Any:
        """Book the images of an answered request, compare the server's count, and add the headers."""
        decided = DECIDED.get()
        if decided is not None:
            decided.append(None if plan is None else BudgetReport.of(plan, self.settings.mode))
        if plan is None:
            return response
        plan.settle(may_have_read(response.status_code))
        if not streamed and response.status_code < 400 and plan.expected is not None:
            reader = UsageReader(streamed=False)
            reader.feed(response.content)
            counted = reader.image_tokens()
            with self._lock:
                if (sentence := self._caps.add(plan, counted, reader)) is not None:
                    self.warnings.append(sentence)
                    Log().write(sentence, logging.WARNING)
                self.checks["unknown" if counted is None else "agreed" if counted == plan.expected else "differed"] += 1
        for name, value in plan.headers(self.settings.mode):
            response.headers[name.decode()] = value.decode("ascii")
        return response

    def failed(self, plan: RequestPlan | None, error: BaseException) -> None:
        """Settle a request without a response: its images were read unless no connection was made."""
        if plan is not None:
            plan.settle(read=not {one.__name__ for one in type(error).__mro__} & _NOT_SENT)

    def _reload(self) -> None:
        """Check whether the policy's file changed, at most every ``watch_s``."""
        now = time.monotonic()
        if now - self._checked >= self.settings.watch_s:
            self._checked = now
            result = self.served.reload_if_changed()
            if result not in (None, "loaded", "same"):
                Log().write("policy not reloaded; the old one stays in force", reason=result)
