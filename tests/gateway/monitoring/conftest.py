"""The gateway's log, captured as JSON lines, and the system's own Chromium."""

import io
import logging
import shutil
from collections.abc import Iterator
from typing import Any

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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the test needs playwright: make test-browser")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with playwright.sync_playwright() as player:
        one = player.chromium.launch(executable_path=chromium, headless=True, args=flags)  # a fresh profile each time
        yield one
        one.close()
