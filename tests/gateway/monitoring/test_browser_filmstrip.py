"""The dashboard's filmstrip in a real browser, on a phone and by keyboard.

make test-browser
"""

import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont
from tests.browser_contrast import worst_contrast
from tests.gateway.gateways import calibrated, gateway
from tests.gateway.monitoring.browser_page import Page
from tests.gateway.upstream import Upstream

from stakes.data.synthetic.typefaces import FONTS

playwright = pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright: make test-browser")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_filmstrip_of_the_answer_is_shown_on_request(
    browser: Any, upstream: Upstream, tmp_path: Path, scheme: str
) -> None:
    pytest.importorskip("rapidocr", reason="a filmstrip needs the ocr extra")
    sheet = Image.new("RGB", (560, 448), "white")
    ImageDraw.Draw(sheet).text((60, 200), "Amount due: 42", "black", ImageFont.truetype(FONTS / "Go-Regular.ttf", 34))
    sheet.save(tmp_path / "page.png")
    with gateway(upstream.url, calibrated(), keep_images=2) as front:
        one = Page(browser, front.address, color_scheme=scheme)
        one.page.set_viewport_size({"width": 390, "height": 844})
        one.wait("#status", "enforce")
        one.page.fill("#question", "What is the amount due?")
        one.page.fill("#model", "tiny")
        one.page.set_input_files("#image", tmp_path / "page.png")
        one.page.click("#ask button")
        one.wait("#answer dl", "budget")
        one.page.get_by_text("Show what can be read at each budget").press("Enter")
        film = one.page.locator("#answer .film")
        playwright.expect(film.locator("li.now .chosen")).to_have_text("this answer", timeout=120_000)
        playwright.expect(film.locator("li").last).to_contain_text("✓ 42")
        assert one.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert one.page.evaluate("[...document.querySelectorAll('.film img')].every((i) => i.naturalWidth === 240)")
        assert worst_contrast(one.page)[0] >= 4.5, worst_contrast(one.page)
        if os.environ.get("SCREENSHOT_FILM"):
            one.page.locator("#try").screenshot(path=os.environ["SCREENSHOT_FILM"])
    assert not one.errors
