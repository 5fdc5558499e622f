"""Kinds of drawn pages without any noise, as a program makes them: faint print, pale bands, dim words, frames, dots."""

import numpy as np
from benchmarks.trim_page import Page
from PIL import ImageFont

LEAST = 12  # of 255: the contrast of faint ink


def _faint(page: Page) -> tuple[int, int, int]:
    page.contrast = LEAST - 2
    return (page.paper[0] - int(page.dice.integers(LEAST + 4, 36)),) * 3


def _faint_number_on_a_clean_page(page: Page) -> None:
    page.text()
    edges = [(0.4, 0.01), (0.4, 0.95), (0.01, 0.5), (0.9, 0.5)]
    at = np.array(edges[int(page.dice.integers(4))]) * page.size
    page.ink(lambda draw, fill: draw.text(tuple(at), "Page 37", fill, ImageFont.load_default(16)), _faint(page))


def _faint_rules_on_a_clean_page(page: Page) -> None:
    page.text()
    color = _faint(page)
    for share in (0.06, 0.94):
        rule = (0.06 * page.width, share * page.height, 0.94 * page.width, share * page.height)
        page.ink(lambda draw, fill, rule=rule: draw.line(rule, fill, 1), color)  # type: ignore[misc]


def _pale_bars(page: Page) -> None:
    page.text()
    color = _faint(page)
    for x in np.arange(0.06, 0.9, 0.1) * page.width:
        bar = (x, 0.06 * page.height, x + 0.05 * page.width, 0.94 * page.height)
        page.ink(lambda draw, fill, bar=bar: draw.rectangle(bar, fill), color)  # type: ignore[misc]


def _highlighted_line(page: Page) -> None:
    page.text()
    page.contrast = LEAST
    marked = (0.05 * page.width, 0.05 * page.height, 0.5 * page.width, 0.05 * page.height + 20)
    yellow = (page.paper[0], page.paper[0], page.paper[0] - 25)
    page.ink(lambda draw, fill: draw.rectangle(marked, fill), yellow)


def _dim_words_in_a_dark_strip(page: Page) -> None:
    page.text()
    page.draw.rectangle((0, page.height - 40, page.width, page.height), (20, 22, 30))
    at = (0.2 * page.width, page.height - 32)
    page.ink(lambda draw, fill: draw.text(at, "www.example.org", fill, ImageFont.load_default(20)), (95, 95, 105))


def _frame_in_the_rim_of_a_clean_page(page: Page) -> None:
    page.text()
    off = int(page.dice.uniform(0.01, 0.025) * max(page.size))
    frame = (off, off, page.width - off, page.height - off)
    page.ink(lambda draw, fill: draw.rectangle(frame, outline=fill, width=1), (90, 90, 90))


def _dashes_in_the_rim_of_a_clean_page(page: Page) -> None:
    page.text()
    y = int(0.015 * page.height)
    for x in range(int(0.1 * page.width), int(0.9 * page.width), 12):
        page.ink(lambda draw, fill, x=x: draw.line((x, y, x + 5, y), fill, 1))  # type: ignore[misc]


def _dots_far_apart(page: Page) -> None:
    page.text()
    y, step = int(page.dice.uniform(0.05, 0.08) * page.height), int(0.025 * max(page.size))
    for x in range(int(0.05 * page.width), int(0.95 * page.width), step):
        page.ink(lambda draw, fill, x=x: draw.rectangle((x, y, x + 1, y + 1), fill))  # type: ignore[misc]


def _small_numbers_along_an_axis(page: Page) -> None:
    page.text()
    for step in range(8):
        at = (0.03 * page.width, (0.05 + 0.11 * step) * page.height)
        page.ink(lambda draw, fill, at=at, n=step: draw.text(at, str(n), fill, ImageFont.load_default(9)))  # type: ignore[misc]


DIGITAL = [
    _faint_number_on_a_clean_page, _faint_rules_on_a_clean_page, _pale_bars, _highlighted_line,
    _dim_words_in_a_dark_strip, _frame_in_the_rim_of_a_clean_page, _dashes_in_the_rim_of_a_clean_page, _dots_far_apart,
    _small_numbers_along_an_axis,
]  # fmt: skip
