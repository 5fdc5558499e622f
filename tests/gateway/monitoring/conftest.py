"""The gateway's log, captured as JSON lines."""

import io
import logging
from collections.abc import Iterator

import pytest

from stakes.gateway.monitoring.logs import LOGGER, JsonLines


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger(LOGGER)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield out
    logger.removeHandler(handler)
    logger.setLevel(level)
