"""The dashboard in a real browser, in front of the embedded reader: it loads, asks, and shows both images.

make test-browser                                   # or, for the picture in the docs:
SCREENSHOT=docs/gateway.png make test-browser
"""

import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from tests.gateway.gateways import Gateway, ask, calibrated, gateway, policy
from tests.gateway.monitoring.browser_page import Page
from tests.gateway.upstream import Upstream

from stakes.data import synthetic as pages
from stakes.signals import RequestSignal, to_dict

playwright = pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright: make test-browser")


@pytest.fixture(scope="module")
def reader() -> Iterator[str]:
    """The embedded reader behind its own server."""
    from stakes.gateway.local_server.app import create_model_app
    from stakes.gateway.run import running
    from stakes.models import load

    with running(create_model_app(load("embedded"), "embedded")) as address:
        yield f"{address}/v1"


@pytest.fixture
def front(reader: str) -> Iterator[Gateway]:
    with gateway(reader, policy(mean_budget=400, tiers=_tiers(), fingerprint="example"), keep_images=6) as one:
        yield one


def _tiers() -> dict[str, Any]:
    return {"high": {"cost": 5, "budget": 576}, "low": {"cost": 1, "budget": 160}}


def _sheet(tmp_path: Path, seed: int) -> tuple[Path, Any]:
    drawn = pages.draw("forms", seed=seed, split="test")
    path = tmp_path / f"page-{seed}.png"
    drawn.image.save(path)
    return path, drawn.questions


def test_a_tier_of_any_name_is_asked_for_and_shown(browser: Any, upstream: Upstream, tmp_path: Path) -> None:
    path, _ = _sheet(tmp_path, 0)
    tiers = {**_tiers(), "高, 50%": {"cost": 2, "budget": 200}}
    with gateway(upstream.url, policy(mean_budget=400, tiers=tiers)) as front:
        one = Page(browser, front.address)
        one.wait("#status", "enforce")
        one.page.fill("#question", "Who signed it?")
        one.page.fill("#model", "tiny")
        one.page.set_input_files("#image", path)
        one.page.select_option("#tier", "高, 50%")
        one.page.click("#ask button")
        one.wait("#answer dl", "tier高, 50%why")
    assert not one.errors


def test_it_loads_asks_and_shows_both_images(browser: Any, front: Gateway, tmp_path: Path) -> None:
    one = Page(browser, front.address, color_scheme="light")
    page = one.page
    one.wait("#status", "enforce · qwen2.5-vl")
    one.wait("#decisions", "No image request yet")
    playwright.expect(page.locator("#model")).to_have_value("embedded")
    for seed in range(3):
        path, questions = _sheet(tmp_path, seed)
        high = next(question for question in questions if question.tier == "high")
        low = next(question for question in questions if question.tier == "low")
        for count, (question, tier) in enumerate(((high, "high"), (low, "low")), 1):
            page.fill("#question", question.text)
            page.set_input_files("#image", path)
            page.select_option("#tier", tier)
            page.click("#ask button")
            one.wait("#answer dl", f"tier{tier}")
            playwright.expect(page.locator("#decisions li")).to_have_count(2 * seed + count, timeout=20000)
    newest = page.locator("#decisions li").first
    playwright.expect(newest.locator("img")).to_have_count(2)
    page.wait_for_function("[...document.querySelectorAll('#decisions img')].every(i => i.complete && i.naturalWidth)")
    sizes = newest.locator("img").evaluate_all("all => all.map(i => [i.naturalWidth, i.naturalHeight])")
    assert sizes[0][0] * sizes[0][1] > 160 * 784 >= sizes[1][0] * sizes[1][1]
    playwright.expect(newest).to_contain_text("server counted")
    one.wait("#agreed", "^100 %$")
    assert page.locator("#answer .text").inner_text().strip()
    saved = sum(front.metric("tokens_total", tier=tier, kind="saved") for tier in ("high", "low"))
    assert saved > 0
    one.wait("#saved", f"^{saved:,.0f}$")
    assert one.errors == []
    assert {re.sub(r"^(blob:)?(https?://[^/]+|data:).*", r"\2", url) for url in one.requested} <= {
        front.address,
        "data:",
    }
    if target := os.environ.get("SCREENSHOT"):
        _photograph(page, target)
    one.context.close()


def test_an_answer_that_the_reader_is_not_sure_of_has_a_warning(browser: Any, front: Gateway, tmp_path: Path) -> None:
    path, questions = _sheet(tmp_path, 0)
    Image.effect_noise((350, 490), 120).save(tmp_path / "noise.jpg")
    one = Page(browser, front.address)
    for image, warning in ((tmp_path / "noise.jpg", r"^The embedded reader is not sure \(0\.\d\d\)\. It"), (path, "")):
        one.page.fill("#question", questions[0].text)
        one.page.set_input_files("#image", image)
        one.page.click("#ask button")
        one.wait("#answer dl", "confidence[01]")
        playwright.expect(one.page.locator("#answer .warning")).to_have_text([re.compile(warning)] if warning else [])
    one.context.close()


def _photograph(page: Any, path: str) -> None:
    """The upper part of the page, light and dark side by side; in few colours, since it lies in the repository."""
    sheet = Image.new("RGB", (2400, 1400))
    for place, scheme in enumerate(("light", "dark")):
        page.emulate_media(color_scheme=scheme)
        shot = page.screenshot(clip={"x": 0, "y": 0, "width": 1200, "height": 1400}, full_page=True)
        sheet.paste(Image.open(io.BytesIO(shot)), (1200 * place, 0))
    small = sheet.resize((1500, 875), Image.Resampling.LANCZOS)
    small.quantize(200, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)


def test_it_can_be_used_by_keyboard_alone(browser: Any, front: Gateway, tmp_path: Path) -> None:
    one = Page(browser, front.address)
    page, (path, questions) = one.page, _sheet(tmp_path, 0)
    one.wait("#status", "enforce")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.set_input_files("#image", path)  # a file dialog is the system's own
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "question"
    page.keyboard.type(questions[0].text)
    page.keyboard.press("Enter")
    one.wait("#answer dl", "predicted tokens")
    button = page.locator("#decisions li button").first
    button.focus()
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#large")).to_be_visible()
    page.keyboard.press("Escape")
    playwright.expect(page.locator("#large")).to_be_hidden()
    assert page.evaluate("document.activeElement.closest('.pair') !== null")  # back where it was
    assert one.errors == []
    one.context.close()


def test_dark_is_dark_and_the_button_switches_it(browser: Any, front: Gateway) -> None:
    def brightness(page: Any) -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3])

    one = Page(browser, front.address, color_scheme="dark")
    assert brightness(one.page) < 150
    one.page.click("#theme")
    assert brightness(one.page) > 600
    one.page.reload()
    assert brightness(one.page) > 600  # remembered
    one.context.close()


def test_a_narrow_window_does_not_scroll_sideways(browser: Any, front: Gateway) -> None:
    one = Page(browser, front.address)
    one.page.set_viewport_size({"width": 360, "height": 700})
    one.wait("#status", "enforce")
    one.wait("#tiers tbody tr:first-child", "high")
    assert one.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert one.page.evaluate("[...document.querySelectorAll('.card')].every((c) => c.scrollWidth <= c.clientWidth)")
    one.context.close()


def test_a_gateway_with_keys_asks_for_one(browser: Any, reader: str) -> None:
    with gateway(reader, client_keys=("correct-horse",)) as front:
        one = Page(browser, front.address)
        one.wait("#status", "Locked")
        one.page.fill("#key", "correct-horse")
        one.page.keyboard.press("Enter")
        one.wait("#status", "enforce")
        playwright.expect(one.page.locator("#lock")).to_be_hidden()
        playwright.expect(one.page.locator("#model")).to_have_value("embedded")
        one.context.close()


def test_drift_and_its_alarms_are_shown(browser: Any, upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, calibrated(), shadow=1.0, shadow_at_once=8, shadow_window=0) as front:
        one = Page(browser, front.address)
        one.wait("#drift-note", "No alarm.*a proxy for error")
        playwright.expect(one.page.locator("#warning")).to_be_hidden()
        for _ in range(24):  # nothing but the high-cost tier
            http.post(f"{front.base_url}/chat/completions", json=ask())
        one.wait("#warning", "mix high: tier 'high' comes more often")
        one.wait("#drift-tiers tbody tr:first-child", "high100.0 %50.0 %24")
        one.page.set_viewport_size({"width": 360, "height": 700})
        assert one.page.evaluate("document.documentElement.scrollWidth") <= 360
        assert one.errors == []
        one.context.close()
    with gateway(upstream.url) as front:
        one = Page(browser, front.address)
        one.wait("#status", "enforce")
        playwright.expect(one.page.locator("#drift")).to_be_hidden()
        one.context.close()


def test_observing_is_labelled_so_and_so_is_a_policy_of_legibility(
    browser: Any, upstream: Upstream, http: httpx.Client
) -> None:
    with gateway(upstream.url, calibrated(basis="legibility"), mode="observe") as front:
        would = http.post(f"{front.base_url}/chat/completions", json=ask()).headers["x-stakes-predicted-tokens"]
        one = Page(browser, front.address)
        one.wait("#warning", "^LEGIBILITY, not a VLM's error")
        one.wait("#status", "^observe .* of LEGIBILITY$")
        one.wait("#spent-title", "^would spend / image$")
        one.wait("#tiers tbody tr:first-child", f"high51256[0-9]+{would}.01260.0")
        one.wait("#tiers-note", "forwarded unchanged, at 1260.0 tokens")
        one.wait("#decisions li", f"1,260 tokens unchanged, would be {would} .budget 256, server counted 1,260")
        if target := os.environ.get("SCREENSHOT_OBSERVING"):
            one.page.screenshot(path=target, full_page=True)
        one.page.set_viewport_size({"width": 360, "height": 700})
        assert one.page.evaluate("document.documentElement.scrollWidth") <= 360
        assert one.errors == []
        one.context.close()


def test_undecided_requests_are_shown_with_advice_and_their_masked_texts(
    browser: Any, upstream: Upstream, http: httpx.Client
) -> None:
    rules = policy(signal=to_dict(RequestSignal()))
    with gateway(upstream.url, rules, keep_undecided=50) as front:
        one = Page(browser, front.address, color_scheme="light")
        one.wait("#undecided", "^$")
        for question in ("What is the total?", "<b>Zork</b> 4711", "<b>Zork</b> 4712", f"Frob {'nicate' * 60}"):
            http.post(f"{front.base_url}/chat/completions", json=ask(question))
        one.wait("#undecided", r"^Undecided: 3 of 4 image requests \(75\.0 %\)\.$")
        one.wait("#undecided-advice", r"^More than 10 % are undecided: extend the vocabulary .*docs/signals\.md\)\.$")
        rows = one.page.locator("#undecided-texts tbody tr")
        playwright.expect(rows).to_have_count(2)
        playwright.expect(rows.nth(1)).to_have_text("<b>Zork</b> ####2now")
        if target := os.environ.get("SCREENSHOT_UNDECIDED"):
            one.page.screenshot(path=target, full_page=True)
        one.page.set_viewport_size({"width": 360, "height": 700})
        assert one.page.evaluate("document.documentElement.scrollWidth") <= 360
        assert one.errors == []
        one.context.close()
    with gateway(upstream.url, rules) as front:
        http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?"))
        one = Page(browser, front.address)
        one.wait("#undecided", r"0 of 1 image requests \(0\.0 %\)")
        playwright.expect(one.page.locator("#undecided-advice")).to_be_hidden()
        playwright.expect(one.page.locator("#undecided-texts")).to_be_hidden()
        one.context.close()


def test_a_strangers_text_stays_text(browser: Any, front: Gateway, tmp_path: Path) -> None:
    one = Page(browser, front.address)
    path, _ = _sheet(tmp_path, 0)
    text = "<img src=x onerror='document.title=1'> total <b>"
    one.page.fill("#question", text)
    one.page.set_input_files("#image", path)
    one.page.click("#ask button")
    playwright.expect(one.page.locator("#decisions .question").first).to_have_text(text, timeout=20000)
    assert one.page.title() == "stakes gateway"
    one.context.close()
