"""Who sees the live page, and what is it made of? Three files, one JSON object and the images that are kept.

``/`` and ``/stakes/…`` answer this machine only: a loopback peer that asked for a loopback name (a name of somebody
else's that resolves to 127.0.0.1 is how web pages reach into machines) and came through no proxy. With keys of its own
the gateway shows the empty page to everybody and its numbers to whoever has a key.
"""

import ipaddress
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import Counter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.monitoring.recent import Recent
from stakes.gateway.proxy.errors import Refused, error_body
from stakes.gateway.proxy.upstream import Doorkeeper
from stakes.gateway.reload import Rules, cautions

FILES = Path(__file__).with_name("page")
MEDIA_TYPES = {"index.html": "text/html", "page.js": "text/javascript", "page.css": "text/css"}
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_SAFE = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_NOT_HERE = (
    "the live page answers only this machine, on 127.0.0.1 or localhost; give the gateway keys (--key-file) to see it "
    "from another"
)


def routes(keeper: Doorkeeper, recent: Recent, tell: Callable[[], Mapping[str, Any]]) -> list[Route]:
    """The page's routes; ``tell`` gives what ``/stakes/state`` shows."""

    def let_in(request: Request) -> None:
        if keeper.own:
            keeper.check(request.headers.get("authorization", "").encode("latin-1"))
        elif not is_local(request):
            raise Refused(403, "not_local", _NOT_HERE)

    async def file(request: Request) -> Response:
        if not keeper.own:
            let_in(request)
        name = request.url.path.rpartition("/")[2] or "index.html"
        return Response((FILES / name).read_bytes(), media_type=MEDIA_TYPES[name], headers=_SAFE)

    async def state(request: Request) -> Response:
        let_in(request)
        return JSONResponse(dict(tell()), headers=_SAFE)

    async def image(request: Request) -> Response:
        let_in(request)
        asked = request.path_params
        side = asked["side"]
        found = recent.picture(asked["decision"], asked["place"], side) if side in ("original", "seen") else None
        if found is None:
            raise Refused(404, "not_kept", "this image is not kept any more, or never was (see --keep-images)")
        kind, data = found
        return Response(data, media_type=kind, headers=_SAFE)

    def guarded(path: str, answer: Any) -> Route:
        async def polite(request: Request) -> Response:
            try:
                reply: Response = await answer(request)
            except Refused as no:
                body = error_body(no.status, no.code, no.message)
                return Response(body, no.status, media_type="application/json", headers=_SAFE)
            return reply

        return Route(path, polite, methods=["GET"])

    return [
        guarded("/", file),
        guarded("/stakes/state", state),
        guarded("/stakes/images/{decision:int}/{place:int}/{side}", image),
        guarded("/stakes/page.js", file),
        guarded("/stakes/page.css", file),
    ]


def is_local(request: Request) -> bool:
    """Whether a request was made on this machine, by somebody who meant this machine."""
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    host = request.headers.get("host", "")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    return _is_loopback(request.client.host) and (name.lower() == "localhost" or _is_loopback(name))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


# How does the gateway stand? Its counters, its controller and its last decisions as one JSON object for the page.


TOKEN_COUNTS = ("native", "budgeted", "predicted", "saved", "actual")


def state(metrics: Metrics, rules: Rules, recent: Recent) -> dict[str, Any]:
    """Whatever the page shows, all of it since the start."""
    policy, controller = rules.policy, rules.controller.state()
    tokens: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(TOKEN_COUNTS, 0))
    for labels, value in samples(metrics.tokens):
        tokens[labels["tier"]][labels["kind"]] = value
    images = {labels["tier"]: value for labels, value in samples(metrics.images)}
    outcomes: dict[str, float] = defaultdict(float)
    for labels, value in samples(metrics.requests):
        outcomes[labels["outcome"]] += value
    names = [*policy.tiers, *(name for name in images if name not in policy.tiers)]  # a reload may have dropped one
    return {
        "policy": {
            "fingerprint": policy.fingerprint, "family": policy.family, "mean_budget": policy.mean_budget,
            "floor": policy.floor, "basis": policy.basis,
        },
        "warnings": cautions(policy),
        "tiers": [
            {
                "name": name,
                "cost": policy.tiers[name].cost if name in policy.tiers else None,
                "budget": policy.tiers[name].budget if name in policy.tiers else None,
                "budget_now": controller.get(f"budget_{name}"),
                "images": images.get(name, 0),
                **tokens[name],
            }
            for name in names
        ],
        "tokens": {kind: sum(tokens[name][kind] for name in names) for kind in TOKEN_COUNTS},
        "requests": dict(outcomes),
        "refused": {labels["reason"]: value for labels, value in samples(metrics.rejects)},
        "apart": {labels["why"]: value for labels, value in samples(metrics.apart_images)},
        "checks": {labels["result"]: value for labels, value in samples(metrics.usage)},
        "controller": controller,
        "means": recent.means(),
        "decisions": recent.shown(),
        "keep_images": recent.keep_images,
    }  # fmt: skip


def samples(counter: Counter) -> Iterator[tuple[dict[str, str], float]]:
    """(labels, value) of everything that a counter has counted."""
    for family in counter.collect():
        for sample in family.samples:
            if sample.name.endswith("_total"):
                yield sample.labels, sample.value
