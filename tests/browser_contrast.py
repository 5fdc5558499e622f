"""The worst contrast of text on a page, for the browser tests of the report and the dashboard."""

from typing import Any

TEXT = "p, li, li span, small, button, label, output, th, td, h1, h2, h3, summary, dt, dd, figcaption, a, .tag"
_WORST = """(all) => {
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


def worst_contrast(page: Any) -> tuple[float, str]:
    """The smallest ratio of luminances of visible text and what is behind it (WCAG: 4.5 or more), and where it is."""
    ratio, where = page.locator(TEXT).evaluate_all(_WORST)
    return ratio, where
