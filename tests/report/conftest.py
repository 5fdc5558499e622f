"""A report in the system's own Chromium; skips with a reason where there is none."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.browser_page import COSTS
from tests.report.runs import HOSTILE, make_run, write_samples

from stakes.report.data import MeasuredRun, read_run
from stakes.report.gallery import samples_from_file
from stakes.report.html import Pricing, report_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the test needs playwright: make test-browser")
    pytest.importorskip("vl_convert", reason="a report needs the report extra")
    if CHROMIUM is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as player:
        one = player.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield one
        one.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[MeasuredRun, Path]:
    folder = tmp_path_factory.mktemp("report")
    run = read_run(make_run(folder, COSTS, 24, text=HOSTILE, seed=4))
    samples = samples_from_file(write_samples(folder, folder / "policy.outcomes.jsonl", HOSTILE), run)
    file = folder / "report.html"
    file.write_text(report_html(run, samples, pricing=Pricing(1.0, 1_000_000)), encoding="utf-8")
    return run, file


@pytest.fixture
def page(browser: Any, made: tuple[MeasuredRun, Path]) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    one = context.new_page()
    one.fetched, one.errors = [], []
    one.on("request", lambda request: one.fetched.append(request.url))
    one.on("pageerror", lambda error: one.errors.append(str(error)))
    one.on("console", lambda line: one.errors.append(line.text) if line.type == "error" else None)
    one.goto(made[1].as_uri())
    one.wait_for_selector("body[data-ready=yes]", timeout=60_000)
    yield one
    assert one.errors == []
    context.close()
