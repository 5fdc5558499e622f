"""Is the gateway alive, and can it serve? ``/healthz`` and ``/readyz``.

Alive is whether it answers at all. Ready is whether the upstream answers too, asked at most every few seconds; any
answer but a 5xx counts, because a 401 comes from a server that works.
"""

import time
from dataclasses import dataclass

import aiohttp

from stakes.gateway.forward import Upstream

_FRESH_S = 3.0
_PATIENCE = aiohttp.ClientTimeout(total=3.0)


@dataclass
class Health:
    """What is known of the upstream; ``draining`` is set when the gateway begins to shut down."""

    upstream: Upstream
    draining: bool = False
    _asked: float = -_FRESH_S
    _answers: bool = False

    async def ready(self) -> tuple[bool, str]:
        """Whether requests can be served, and why not."""
        if self.draining:
            return False, "shutting down"
        if time.monotonic() - self._asked > _FRESH_S:
            self._answers = await self._ask()
            self._asked = time.monotonic()
        return self._answers, "ready" if self._answers else "the upstream does not answer"

    async def _ask(self) -> bool:
        try:
            async with self.upstream.session.get(
                f"{self.upstream.base}/models", headers=self.upstream.headers((), changed=False), timeout=_PATIENCE
            ) as reply:
                return reply.status < 500
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False
