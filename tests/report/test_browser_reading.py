"""The report can be read: terms explain themselves, text has contrast, labels do not overlap.

make test-browser
"""

from pathlib import Path
from typing import Any

import pytest
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


WORST_CONTRAST = """(all) => {
  const channel = (x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  const light = (text) => {
    const [r, g, b] = text.match(/[0-9.]+/g).map((x) => channel(x / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    const color = getComputedStyle(node).backgroundColor;
    return color === "rgba(0, 0, 0, 0)" && node !== document.body ? behind(node.parentElement) : color;
  };
  const ratios = all.filter((one) => one.offsetParent && one.innerText.trim()).map((one) => {
    const [low, high] = [light(getComputedStyle(one).color), light(behind(one))].sort((a, b) => a - b);
    return [(high + 0.05) / (low + 0.05), one.className || one.tagName];
  });
  return ratios.sort((a, b) => a[0] - b[0])[0];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(browser: Any, made: tuple[MeasuredRun, Path], scheme: str) -> None:
    one = browser.new_page(viewport={"width": 1280, "height": 844}, color_scheme=scheme)
    one.goto(made[1].as_uri())
    one.wait_for_selector("body[data-ready=yes]", timeout=60_000)
    text = one.locator("p, li span, small, button, label, th, td, h1, h2, summary, dt, dd, .tag")
    worst = text.evaluate_all(WORST_CONTRAST)
    assert worst[0] >= 4.5, worst
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
