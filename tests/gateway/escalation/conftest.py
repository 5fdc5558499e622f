"""The upstream of these tests."""

from collections.abc import Iterator

import pytest
from tests.gateway.escalation.unsure import Unsure
from tests.gateway.upstream import Upstream, serving


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with serving(Unsure()) as one:
        yield one
