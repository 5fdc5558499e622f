"""The gateway's dashboard: three static files, one JSON object and the images that are kept.

``/`` and ``/stakes/…`` answer this machine only: the peer is loopback, the Host header is a loopback name (a foreign
name that resolves to 127.0.0.1 is how web pages reach into machines), and no proxy forwarded the request. A gateway
with keys of its own shows the empty dashboard to everybody and its numbers to whoever has a key.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stakes.evaluation.savings import savings
from stakes.formats import format_dollars, format_seconds
from stakes.gateway.monitoring.merge import Counts
from stakes.gateway.monitoring.recent import Side
from stakes.gateway.monitoring.undecided import UndecidedShare, UndecidedTexts
from stakes.gateway.proxy.clients import Authenticator
from stakes.gateway.proxy.errors import Refused, error_body
from stakes.gateway.proxy.sites import is_local
from stakes.gateway.reload import Rules, policy_warnings

ASSETS = Path(__file__).with_name("assets")
MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
TOKEN_COUNTS = ("native", "budgeted", "predicted", "saved", "actual")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class DashboardSource:
    """What the dashboard shows: ``state`` is the body of ``/stakes/state``, ``image`` one that was kept.

    ``filmstrip`` draws the image that a request carries, and keeps nothing of it.
    """

    state: Callable[[], Awaitable[Mapping[str, Any]]]
    image: Callable[[int, int, Side], Awaitable[tuple[str, bytes] | None]]
    filmstrip: Callable[[Request], Awaitable[Mapping[str, Any]]]


def routes(authenticator: Authenticator, source: DashboardSource) -> list[Route]:
    """The dashboard's routes."""

    def check_access(request: Request) -> None:
        if authenticator.own:
            authenticator.check(dict(request.headers.raw))
        elif not is_local(request):
            raise Refused(
                403,
                "not_local",
                "the dashboard answers only this machine, on 127.0.0.1 or localhost; give the gateway keys "
                "(--key-file) to see it from another",
            )

    async def file(request: Request) -> Response:
        if not authenticator.own:
            check_access(request)
        path = ASSETS / (request.url.path.rpartition("/")[2] or "dashboard.html")
        return Response(path.read_bytes(), media_type=MEDIA_TYPES[path.suffix], headers=_HEADERS)

    async def state(request: Request) -> Response:
        check_access(request)
        return JSONResponse(dict(await source.state()), headers=_HEADERS)

    async def image(request: Request) -> Response:
        check_access(request)
        decision, index, side = (request.path_params[name] for name in ("decision", "index", "side"))
        kept = await source.image(decision, index, side) if side in ("original", "seen") else None
        if kept is None:
            raise Refused(404, "not_kept", "this image is not kept any more, or never was (see --keep-images)")
        media_type, data = kept
        return Response(data, media_type=media_type, headers=_HEADERS)

    async def filmstrip(request: Request) -> Response:
        check_access(request)
        return JSONResponse(dict(await source.filmstrip(request)), headers=_HEADERS)

    return [
        Route("/", file),
        *(Route(f"/stakes/{name}", file) for name in ("dashboard.js", "ask.js", "dashboard.css")),
        Route("/stakes/state", state),
        Route("/stakes/filmstrip", filmstrip, methods=["POST"]),
        Route("/stakes/images/{decision:int}/{index:int}/{side}", image),
    ]


def refusal_reply(_: Request, error: Exception) -> Response:
    """The response of an endpoint of the gateway's own that raised ``Refused``."""
    assert isinstance(error, Refused)
    body = error_body(error.status, error.code, error.message)
    return Response(body, error.status, media_type="application/json", headers=_HEADERS)


def state(counts: Counts, rules: Rules, controller: Mapping[str, float]) -> dict[str, Any]:
    """Counters since the start and the controller, as one JSON object."""
    policy = rules.policy
    tokens: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(TOKEN_COUNTS, 0))
    for labels, value in counts["tokens"]:
        tokens[labels["tier"]][labels["kind"]] = value
    images = {labels["tier"]: value for labels, value in counts["images"]}
    again = {labels["tier"]: value for labels, value in counts["attempts"] if labels["result"] == "answered"}
    flagged = {labels["tier"]: value for labels, value in counts["flagged"]}
    outcomes: dict[str, float] = defaultdict(float)
    for labels, value in counts["requests"]:
        outcomes[labels["outcome"]] += value
    names = [*policy.tiers, *(name for name in images if name not in policy.tiers)]  # a reload may have dropped one
    return {
        "policy": {
            **policy.model_dump(include={"fingerprint", "family", "mean_budget", "floor", "basis"}),
            "origin": policy.origin,
        },
        "warnings": [*policy_warnings(policy), *rules.accounts.ledger.warnings()],
        "tiers": [
            {
                "name": name,
                "cost": policy.tiers[name].cost if name in policy.tiers else None,
                "budget": policy.tiers[name].budget if name in policy.tiers else None,
                "budget_now": controller.get(f"budget_{name}"),
                "images": images.get(name, 0),
                "asked_again": again.get(name, 0),
                "flagged": flagged.get(name, 0),
                **tokens[name],
            }
            for name in names
        ],
        "tokens": {kind: sum(tokens[name][kind] for name in names) for kind in TOKEN_COUNTS},
        "requests": dict(outcomes),
        "refused": {labels["reason"]: value for labels, value in counts["rejects"]},
        "apart": {labels["why"]: value for labels, value in counts["apart_images"]},
        "checks": {labels["result"]: value for labels, value in counts["usage_checks"]},
        "controller": controller,
    }  # fmt: skip


def worth(counts: Counts, price: float | None, token_ms: float | None) -> str:
    """What the saved tokens are worth, as a sentence; empty without a price and a time."""
    saved = sum(value for labels, value in counts["tokens"] if labels["kind"] == "saved")
    found = savings(saved, price, token_ms)
    parts = [
        "" if found.dollars is None else f"{format_dollars(found.dollars)} at {format_dollars(price or 0)} per million",
        "" if found.seconds is None else f"{format_seconds(found.seconds)} of computing at {token_ms:g} ms per 1,000",
    ]
    return " and ".join(filter(None, parts))


def undecided_state(counts: Counts, texts: UndecidedTexts, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The share of undecided requests, advice where it is high, and the texts that all processes keep."""
    share = UndecidedShare.of(sum(value for _, value in counts["undecided"]), counts["requests"])
    return {
        "undecided": share.undecided,
        "requests": share.requests,
        "share": share.share,
        "advice": share.advice(keeping=texts.keep > 0) or None,
        "keep": texts.keep,
        "hours": texts.hours,
        "texts": list(records),
    }
