"""A scripted upstream and a gateway in front of it, both on real sockets."""

from collections.abc import Iterator

import httpx
import pytest
from tests.gateway.gateways import RUNNING, Gateway, gateway
from tests.gateway.upstream import Upstream, serving


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with serving() as one:
        yield one


@pytest.fixture
def front(upstream: Upstream) -> Iterator[Gateway]:
    """A gateway with default settings."""
    with gateway(upstream.url) as one:
        yield one


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """A client that sends a request only after the one before was counted."""

    def settle(_request: httpx.Request) -> None:
        for front in RUNNING:
            front.settle()

    with httpx.Client(timeout=20, trust_env=False, event_hooks={"request": [settle]}) as client:
        yield client
