"""A scripted server on a real socket, and endpoints of it that are closed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.models.endpoint.chat_server import Server, serving

from stakes.models.endpoint import EndpointVLM

if TYPE_CHECKING:
    from tests.models.endpoint.endpoints import Ask


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture
def endpoint(server: Server) -> Iterator[Ask]:
    made: list[EndpointVLM] = []

    def make(**options: Any) -> EndpointVLM:
        made.append(EndpointVLM(server.url, **{"pause_s": 0.01, "timeout_s": 10, **options}))
        return made[-1]

    yield make
    for one in made:
        one.close()
