"""The gateway's decision in process: an official client whose requests are read, budgeted and fitted as a proxy would.

    client = stakes.wrap(openai.OpenAI(), "policy.json")
    answer = client.chat.completions.create(model=…, messages=…)
    answer.stakes.tier, answer.stakes.predicted          # what the gateway's headers say; None without an image
    client.stakes.state()["tokens_spent"]

It stands between the client and its HTTP client, and so sees the bytes that the gateway would: chat completions,
responses and messages, plain, streamed, asynchronous and retried. Clients of ``openai`` and ``anthropic`` are built
alike, and both work. Refusals are the client's own errors. It needs no web server and none of ``stakes[gateway]``.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, TypeVar

from stakes.budgets.policy import Policy
from stakes.errors import BadInput
from stakes.gateway.accounts import CommonLedger
from stakes.gateway.in_process import DECIDED, BudgetReport, InlineWorkers, InProcess
from stakes.gateway.ledger.open import ledger_source
from stakes.gateway.proxy.actuators import check_servable
from stakes.gateway.proxy.decide import RequestPlan
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.scan import Action, route_of
from stakes.gateway.reload import Served
from stakes.gateway.settings import Settings
from stakes.gateway.workers import Workers

T = TypeVar("T")
Client = TypeVar("Client")

_UNUSED = "http://upstream.invalid/v1"  # the client has its own address
_KNOBS = (
    "mode", "fail", "actuator", "min_pixels", "max_pixels", "image_max_tokens", "encoding", "trim", "remote", "unread",
    "pdf", "max_request_tokens", "grounding", "allow_bypass", "burst", "watch_s", "limits",
)  # fmt: skip
_RESOURCES = (("chat", "completions"), ("responses",), ("messages",))
_METHODS = ("create", "parse")


def wrap(
    client: Client, policy: Policy | str | Path, *, ledger: CommonLedger | Path | str | None = None, **settings: Any
) -> Client:
    """A copy of an ``openai`` or ``anthropic`` client whose images get the budgets of their questions.

    ``policy``: a policy, or the file of one, which is read again when it changes. ``settings``: fields of ``Settings``
    that hold in process (mode, fail, actuator, encoding, unread, …). ``ledger``: what keeps the total, or
    its file or Redis address. The copy shares the connections of ``client``; its ``stakes`` is an ``InProcess``.
    """
    inner: Any = getattr(client, "_client", None)
    if not (hasattr(inner, "send") and hasattr(client, "with_options")):
        raise BadInput(f"wrap takes a client of openai or anthropic, not {type(client).__name__}")
    if unknown := sorted(set(settings) - set(_KNOBS)):
        raise BadInput(f"in process there is no setting {unknown[0]!r}; there are {', '.join(_KNOBS)}")
    given = Settings(upstream=_UNUSED, **settings)
    served = Served(
        lambda: policy if isinstance(policy, Policy) else Policy.load(Path(policy)),
        () if isinstance(policy, Policy) else (Path(policy),),
        lambda one: check_servable(one, given),
        _ledger_of(ledger, given),
        given.burst,
    )
    is_async = iscoroutinefunction(inner.send)
    decisions = InProcess(given, served, Workers(given.limits) if is_async else InlineWorkers())
    mixed = (_FittingAsyncClient if is_async else _FittingClient, type(inner))
    fitting = type(mixed[0].__name__, mixed, {})(inner, decisions)
    return _attach(client.with_options(http_client=fitting), decisions)  # type: ignore[no-any-return]


def _ledger_of(ledger: CommonLedger | Path | str | None, settings: Settings) -> Callable[[int], CommonLedger]:
    if ledger is None or isinstance(ledger, (Path, str)):
        return ledger_source(None if ledger is None else str(ledger), settings.shared)
    return lambda _: ledger


def _attach(client: Any, decisions: InProcess) -> Any:
    """Give the client, its copies and its results the attribute ``stakes``."""
    client.stakes = decisions
    copy, is_async = client.with_options, isinstance(client._client, _FittingAsyncClient)

    def with_options(**options: Any) -> Any:
        return _attach(copy(**options), decisions)

    client.with_options = client.copy = with_options
    for names in _RESOURCES:
        resource = client
        for name in names:
            resource = getattr(resource, name, None)
        for method in _METHODS if resource is not None else ():
            if hasattr(resource, method):
                setattr(resource, method, _reporting(getattr(resource, method), is_async))
    return client


def _reporting(method: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
    """The method, with ``stakes`` on what it returns: a ``BudgetReport``, or None for a request without images."""

    def set_report(result: Any, decided: Sequence[BudgetReport | None]) -> Any:
        object.__setattr__(result, "stakes", decided[-1] if decided else None)
        return result

    @wraps(method)
    def plain(*args: Any, **options: Any) -> Any:
        decided: list[BudgetReport | None] = []
        token = DECIDED.set(decided)
        try:
            return set_report(method(*args, **options), decided)
        finally:
            DECIDED.reset(token)

    @wraps(method)
    async def waiting(*args: Any, **options: Any) -> Any:
        decided: list[BudgetReport | None] = []
        token = DECIDED.set(decided)
        try:
            return set_report(await method(*args, **options), decided)
        finally:
            DECIDED.reset(token)

    return waiting if is_async else plain


def _take_headers(request: Any) -> dict[bytes, bytes]:
    """The headers by name in lower case; those of the gateway are not sent on."""
    headers = {name.lower(): value for name, value in request.headers.raw}
    for name in headers:
        if name.startswith(b"x-stakes-"):
            del request.headers[name.decode("latin-1")]
    return headers


def _fitted(request: Any, plan: RequestPlan | None) -> Any:
    """The request as it is sent: with the fitted images, if there are any."""
    if plan is None or plan.body is None:
        return request
    lengths = (b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in request.headers.raw if name.lower() not in lengths]
    return type(request)(request.method, request.url, headers=headers, content=plan.body, extensions=request.extensions)


def _refused(request: Any, refusal: Refused, action: Action) -> Any:
    """The refusal as a response, so that the client raises its own error for the status."""
    headers, body = refusal.reply(action)
    given = [(name, value) for name, value in headers if name != b"connection"]
    http = import_module(type(request).__module__.partition(".")[0])  # httpx, or whichever the client uses
    return http.Response(refusal.status, headers=given, content=body, request=request)


def _step(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, as all do with ``InlineWorkers``."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits for something")


class _Fitting:
    """Fits what an HTTP client sends; mixed into a subclass of it, because the clients of the APIs check its class."""

    def __init__(self, inner: Any, decisions: InProcess) -> None:
        self._inner, self._decisions = inner, decisions

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)  # settings and state are those of the client that sends

    def __del__(self) -> None:
        """Leave the connections to the client that has them."""


class _FittingClient(_Fitting):
    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Send one request with its images fitted."""
        action, headers, decisions = route_of(request.method, request.url.path), _take_headers(request), self._decisions
        if action == "pass":
            return self._inner.send(request, stream=stream, **options)
        try:
            plan = _step(decisions.plan(action, request.read(), headers))
        except Refused as refusal:
            return _refused(request, refusal, action)
        try:
            response = self._inner.send(_fitted(request, plan), stream=stream, **options)
        except BaseException as error:
            decisions.failed(plan, error)
            raise
        return decisions.answered(plan, response, stream)

    def close(self) -> None:
        """Close the connections and return what the ledger lent."""
        self._inner.close()
        self._decisions.close()


class _FittingAsyncClient(_Fitting):
    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Send one request with its images fitted."""
        action, headers, decisions = route_of(request.method, request.url.path), _take_headers(request), self._decisions
        if action == "pass":
            return await self._inner.send(request, stream=stream, **options)
        try:
            plan = await decisions.plan(action, await request.aread(), headers)
        except Refused as refusal:
            return _refused(request, refusal, action)
        try:
            response = await self._inner.send(_fitted(request, plan), stream=stream, **options)
        except BaseException as error:
            decisions.failed(plan, error)
            raise
        return decisions.answered(plan, response, stream)

    async def aclose(self) -> None:
        """Close the connections and return what the ledger lent."""
        await self._inner.aclose()
        self._decisions.close()
