"""Web pages of other sites: which hosts and origins may ask a gateway, and how it answers browsers (CORS).

A page that a user visits can post to 127.0.0.1, without asking as ``text/plain``, and can resolve its own name to that
address. A gateway that lends its upstream's key to every local client therefore answers only requests that were made
on this machine, to a name of this machine, without a proxy, and by no page of another origin (``SiteGuard``). With
client keys none of that is needed: a page does not have them.

Origins of ``--allow-origin`` may ask from a browser. Preflights are answered here, before any key is asked for.
"""

import ipaddress
from collections.abc import Collection

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.scan import route_of
from stakes.gateway.settings import Settings

_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_OWN_SITE = ("same-origin", "none")
_EXPOSED = (
    "x-request-id", "retry-after", "x-stakes-tier", "x-stakes-why", "x-stakes-budget", "x-stakes-native-tokens",
    "x-stakes-predicted-tokens", "x-stakes-scale", "x-stakes-box", "x-stakes-policy", "x-stakes-mode",
    "x-stakes-outcome", "x-stakes-attempts", "x-stakes-confidence", "x-stakes-review",
)  # fmt: skip
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


def middleware(settings: Settings) -> list[Middleware]:
    """What stands before every path of this gateway; nothing, where the upstream's own answers to browsers pass."""
    layers = []
    if settings.answers_browsers:
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=settings.allow_origins,
                allow_methods=_METHODS,
                allow_headers=("*",),
                expose_headers=_EXPOSED,
            )
        )
    if settings.lends_key:
        layers.append(Middleware(SiteGuard, origins=frozenset(settings.allow_origins)))
    return layers


class SiteGuard:
    """Refuses requests of other machines and of web pages of other sites, on every path."""

    def __init__(self, app: ASGIApp, origins: Collection[str] = ()) -> None:
        self._app, self._origins = app, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 403."""
        refusal = self._refusal(HTTPConnection(scope)) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        headers, body = refusal.reply(route_of(scope["method"], scope["path"]))
        await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    def _refusal(self, request: HTTPConnection) -> Refused | None:
        if not is_local(request):
            message = "this gateway lends its key to this machine only, on 127.0.0.1 or localhost; give it client keys"
            return Refused(403, "not_local", f"{message} (--key-file) to use it from another or through a proxy")
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        if origin is None:
            foreign = request.headers.get("sec-fetch-site", "none") not in _OWN_SITE
        else:
            foreign = origin not in self._origins and origin.lower() != f"{request.scope['scheme']}://{host}".lower()
        if foreign:
            message = "web pages of other sites may not use this gateway; allow theirs with --allow-origin"
            return Refused(403, "foreign_origin", message)
        return None


def is_local(request: HTTPConnection) -> bool:
    """Whether a request was made on this machine, to a name of this machine, without a proxy."""
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    return _is_loopback(request.client.host) and all(map(_is_own_name, request.headers.getlist("host") or [""]))


def _is_own_name(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    return name.lower() == "localhost" or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
