"""The report in a real browser: both controls move, figures match ``allocate``, nothing is fetched.

make test-browser
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.report.browser_page import COSTS, allocation
from tests.report.incomplete_runs import NAMES, make
from tests.report.runs import GRID, HOSTILE, make_run

from stakes.budgets.allocate import allocate
from stakes.budgets.harm import allocate_within, policy_rises
from stakes.report.data import MeasuredRun, read_run
from stakes.report.gallery import samples_from_file
from stakes.report.html import report_html


def test_both_controls_reallocate_as_allocate_does_and_move_every_figure(
    page: Any, made: tuple[MeasuredRun, Path]
) -> None:
    run, _ = made
    before = {name: page.inner_html(f"#figure-{name}") for name in ("curves", "frontier", "arms", "latency")}
    for ratio, mean in ((1, 160), (5, 96), (20, 200), (2.5, 250)):
        page.fill("#ratio", str(ratio))
        page.fill("#mean", str(mean))
        best = allocate(run.fitted, {"high": ratio, "low": 1.0}, run.counts, mean * sum(run.counts.values()))
        assert allocation(page) == (best.budgets, best.cwe)
        assert f"{best.cwe:.4f}" in page.inner_text("#expected")
        cells = [row.split("\t")[3] for row in page.inner_text("#allocation").split("\n") if row.strip()]
        assert cells == [str(best.budgets[tier]) for tier in COSTS]
        assert f"high {best.budgets['high']}" in page.inner_html("#figure-curves")
        assert f"{best.budgets['high']} at cost ratio {ratio}" in page.inner_html("#figure-frontier")
        spent = best.spent / sum(run.counts.values())
        assert page.inner_text("#tokens-now") == f"{spent:.1f}"
        assert page.inner_text("#money-now") == f"{spent:.2f}"
    after = {name: page.inner_html(f"#figure-{name}") for name in before}
    assert all(before[name] != after[name] for name in before)
    page.click("#reset")
    assert allocation(page)[0] == run.policy.budgets


def test_the_harm_limit_reallocates_as_allocate_within_does(page: Any, made: tuple[MeasuredRun, Path]) -> None:
    run, _ = made
    total, free = run.policy.mean_budget * sum(run.counts.values()), allocation(page)[0]
    rises = policy_rises(run.policy)
    assert rises["low"].rise > 0.25
    assert f"Errors of tier low rise from {100 * rises['low'].before:.1f}\u00a0%" in page.inner_text("#rises")
    assert page.is_hidden("#points-control")
    page.select_option("#harm", "all")
    for points in (15, 0, 30):
        page.fill("#points", str(points))
        best = allocate_within(run.fitted, COSTS, run.counts, total, None, dict.fromkeys(COSTS, points / 100))
        assert allocation(page) == (best.budgets, best.cwe)
        assert (best.budgets == free) == (points == 30)
        assert page.is_visible("#rises") == any(best.errors[t] - rises[t].before > 0.25 for t in COSTS)
    page.fill("#points", "100")
    assert allocation(page)[0] == free
    page.click("#reset")
    assert allocation(page)[0] == free
    assert page.input_value("#harm") == "off"


@pytest.mark.parametrize(("limits", "mode"), [({"high": 0.2, "low": 0.2}, "all"), ({"low": 0.2}, "own")])
def test_the_harm_limit_starts_at_the_policys_own(
    browser: Any, tmp_path: Path, limits: dict[str, float], mode: str
) -> None:
    path = make_run(tmp_path, COSTS, 24, seed=4)
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "max_harm": limits}))
    run = read_run(path)
    (tmp_path / "report.html").write_text(report_html(run), encoding="utf-8")
    one = browser.new_page()
    one.goto((tmp_path / "report.html").as_uri())
    one.wait_for_selector("body[data-ready=yes]", timeout=60_000)
    best = run.terms().allocate(run.fitted)
    assert run.terms().max_harm == limits
    assert allocation(one) == (best.budgets, best.cwe)
    assert one.input_value("#harm") == mode
    if mode == "all":
        assert one.input_value("#points") == "20"
    else:
        assert "low 20" in one.inner_text("#harm")
    one.close()


def test_the_keyboard_works_and_a_mean_too_small_is_refused(page: Any) -> None:
    page.focus("#ratio-range")
    page.keyboard.press("ArrowRight")
    allocation(page)
    assert page.input_value("#ratio") == "5.5"
    page.fill("#mean", "10")
    allocation(page)
    assert "give at least 32" in page.inner_text("#infeasible")
    page.fill("#mean", "160")
    allocation(page)
    assert page.is_hidden("#infeasible")
    card = page.locator("article.card").first
    card.locator("summary").focus()
    page.keyboard.press("Enter")
    slider = card.locator("input[data-control=left]")
    slider.focus()
    slider.press("Home")
    assert card.locator('[data-side="left"] strong').inner_text() == "32 tokens"
    slider.press("End")
    assert card.locator('[data-side="left"] strong').inner_text() == "288 tokens"


def test_the_filmstrip_follows_the_controls_and_can_be_read_without_color(page: Any) -> None:
    film = page.locator("article.card").first.locator("ol.film")
    tier = page.inner_text("article.card .tag >> nth=0")
    assert film.locator("li").count() == 5
    assert page.evaluate("[...document.querySelectorAll('.film img')].every((one) => one.naturalWidth === 240)")
    for mean in (200, 64):
        page.fill("#mean", str(mean))
        budgets, _ = allocation(page)
        marked = film.locator("li[aria-current=true]")
        assert marked.count() == 1
        assert marked.locator("span >> nth=0").inner_text() == f"{budgets[tier]} tokens"
        assert marked.locator(".chosen").is_visible()
        even = film.locator("li:has(.even:visible)")
        assert even.locator("span >> nth=0").inner_text() == f"{max(b for b in GRID if b <= mean)} tokens"
    words = page.evaluate(
        "[...document.querySelectorAll('.film .read')].map((one) => one.innerText[0] + one.ariaLabel)"
    )
    assert {word[:2] for word in words} <= {"✓r", "✗w"}
    assert len({word[0] for word in words}) == 2


def test_the_headline_follows_the_controls_and_returns_to_what_was_tested(page: Any) -> None:
    tested = page.inner_text("#verdict")
    assert "95" in tested
    page.fill("#ratio", "1")
    allocation(page)
    now = page.inner_text("#verdict")
    assert now.startswith("If a mistake in high costs 1 times one in low, at 160 tokens per image: ")
    assert "not been tested at this setting" in now or "keep one budget" in now
    page.fill("#ratio", "3")
    page.fill("#mean", "96")
    budgets, cwe = allocation(page)
    now = page.inner_text("#verdict")
    assert f"give high {budgets['high']}, low {budgets['low']}" in now
    assert float(now.split("one budget for all to ")[1].split(". ")[0]) == pytest.approx(cwe, abs=6e-4)
    page.click("#reset")
    allocation(page)
    assert page.inner_text("#verdict") == tested


@pytest.mark.parametrize(("name", "value"), [("ratio", "0"), ("ratio", "-3"), ("mean", "0"), ("points", "101")])
def test_what_cannot_be_is_refused_in_words(page: Any, name: str, value: str) -> None:
    page.select_option("#harm", "all")
    before = allocation(page)
    page.fill(f"#{name}", value)
    assert page.is_visible("#infeasible")
    assert {"ratio": "above 0", "mean": "1 or more", "points": "0 to 100"}[name] in page.inner_text("#infeasible")
    assert page.get_attribute(f"#{name}", "aria-invalid") == "true"
    assert allocation(page) == before
    page.fill(f"#{name}", "7" if name == "ratio" else "90")
    allocation(page)
    assert page.is_hidden("#infeasible")


def test_nothing_is_fetched_and_hostile_text_is_only_text(page: Any) -> None:
    assert [url for url in page.fetched if not url.startswith(("file:", "data:"))] == []
    assert page.title() == "stakes report: policy"
    assert HOSTILE in page.inner_text("article.card >> nth=0")
    assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    page.select_option("#kind", "differ")
    page.fill("#search", "no such words")
    assert page.inner_text("#shown") == "0 of 0 questions shown."


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_light_and_dark(browser: Any, made: tuple[MeasuredRun, Path], scheme: str) -> None:
    one = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    one.goto(made[1].as_uri())
    one.wait_for_selector("body[data-ready=yes]", timeout=60_000)
    assert one.evaluate("document.documentElement.scrollWidth") <= 390
    ground = one.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    one.emulate_media(media="print")
    assert one.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    one.close()


@pytest.mark.parametrize("name", NAMES)
def test_an_incomplete_run_still_draws_and_fits(browser: Any, tmp_path: Path, name: str) -> None:
    policy, samples = make(name, tmp_path)
    run = read_run(policy)
    file = tmp_path / "report.html"
    file.write_text(report_html(run, samples_from_file(samples, run) if samples else None), encoding="utf-8")
    for width in (1440, 390):
        one = browser.new_page(viewport={"width": width, "height": 844})
        errors: list[str] = []
        one.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
        one.goto(file.as_uri())
        one.wait_for_selector("body[data-ready=yes]", timeout=60_000)
        assert one.evaluate("document.documentElement.scrollWidth") <= width
        drawn = one.evaluate("[...document.querySelectorAll('.figure')].map((f) => f.querySelectorAll('svg').length)")
        assert drawn
        assert set(drawn) == {1}
        assert len(one.query_selector_all("#allocation tr")) == len(run.policy.tiers)
        assert errors == []
        one.close()
