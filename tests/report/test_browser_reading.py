"""The report can be read: terms explain themselves, text has contrast, labels do not overlap.

make test-browser
"""

from pathlib import Path
from typing import Any

import pytest
from tests.browser_contrast import worst_contrast
from tests.report.browser_page import allocation

from stakes.report.data import MeasuredRun


def test_every_term_explains_itself_by_keyboard(page: Any) -> None:
    assert page.locator("button.term").count() > 12
    first = page.locator("button.term", has_text="visual tokens").first
    first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#term-token").is_visible()
    assert "one small square" in page.inner_text("#term-token")
    page.keyboard.press("Escape")
    assert page.locator("#term-token").is_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(browser: Any, made: tuple[MeasuredRun, Path], scheme: str) -> None:
    one = browser.new_page(viewport={"width": 1280, "height": 844}, color_scheme=scheme)
    one.goto(made[1].as_uri())
    one.wait_for_selector("body[data-ready=yes]", timeout=60_000)
    assert worst_contrast(one)[0] >= 4.5, worst_contrast(one)
    one.close()


def test_labels_lie_over_no_other(page: Any) -> None:
    for mean in (160, 100, 40):
        page.fill("#mean", str(mean))
        allocation(page)
        text = page.locator("#figure-curves text, #figure-frontier text")
        boxes = text.evaluate_all(
            "(all) => all.filter((one) => one.textContent).map((one) => [one.getBoundingClientRect(), one.textContent])"
            ".map(([b, text]) => [b.left, b.top, b.right, b.bottom, text])"
        )
        over = [
            (a[4], b[4])
            for i, a in enumerate(boxes)
            for b in boxes[i + 1 :]
            if min(a[2], b[2]) - max(a[0], b[0]) > 1 and min(a[3], b[3]) - max(a[1], b[1]) > 3
        ]
        assert over == []
