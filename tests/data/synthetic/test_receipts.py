"""Synthetic receipts are reproducible, print answers in their boxes, and have numbers that add up."""

import re
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from PIL import Image

from stakes.cli import main
from stakes.data.sample import read_samples
from stakes.data.synthetic import SIZES, SPLITS, Page, draw
from stakes.data.synthetic.dice import roll
from stakes.data.synthetic.receipts import FIELDS, look, shops, wear, wording
from stakes.data.synthetic.receipts.bill import Bill
from stakes.data.synthetic.receipts.countries import COUNTRIES, AmountStyle, choose, date
from stakes.data.synthetic.receipts.lines import center, span, wrap
from stakes.data.synthetic.receipts.paper import Warp

CURRENCIES = re.compile(r"(\$|€|£|EUR|RM|CHF|Rs|KR|SEK|PLN|TL|AED|Rp)\.?(?=\d)|(?<=\d)(€|EUR|kr|PLN|TL)")
BENCHMARK_QUESTIONS = {
    "total": "What is the total amount?",
    "date": "What is the date on the receipt?",
    "company": "What is the name of the company?",
    "address": "What is the address of the company?",
}


def some(count: int, split: str = "test") -> list[Page]:
    return [draw("receipts", seed, split) for seed in range(count)]


@pytest.fixture(scope="module")
def held_out_pages() -> list[Page]:
    return some(30)


@pytest.fixture(scope="module")
def training_pages() -> list[Page]:
    return some(25, "train")


def amount(text: str) -> float:
    """An amount in any notation: two digits after the last separator are decimals."""
    whole, decimals = re.fullmatch(r"(.*?)(?:[.,](\d\d))?", text).groups()  # type: ignore[union-attr]
    return (-1 if text.startswith("-") else 1) * float(f"{re.sub(r'[^0-9]', '', whole)}.{decimals or 0}")


def test_an_engineer_draws_receipts_by_the_command(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left:
        main(["data", "draw", "receipts", "--out", str(tmp_path / "pages"), "--per-tier", "20"])
    assert not left.value.code
    samples = read_samples(tmp_path / "pages" / "samples.jsonl")
    assert Counter(sample.tier for sample in samples) == {"high": 20, "low": 20}
    pages = {name: draw("receipts", int(name[-6:]), "test") for name in {sample.document for sample in samples}}
    for sample in samples:
        page = pages[sample.document]
        (question,) = (q for q in page.questions if q.text == sample.question)
        assert (question.answers, question.tier) == (sample.answers, sample.tier)
        with Image.open(tmp_path / "pages" / str(sample.image)) as image:
            assert image.tobytes() == page.image.tobytes()


def test_printed_totals_add_up_and_range_from_cents_to_thousands(held_out_pages: list[Page]) -> None:
    prices: list[float] = []
    checked, currencies = 0, set[str]()
    for page in held_out_pages:
        printed = {q.field: q.answers[0] for q in page.questions}
        prices += [amount(q.answers[0]) for q in page.questions if q.field in ("total", "price")]
        if {"cash", "change"} <= {*printed}:
            cents = re.search(r"[.,]\d\d$", printed["total"])
            total = amount(printed["cash"]) - amount(printed["change"])
            assert total == pytest.approx(amount(printed["total"]), abs=0.011 if cents else 1), page.document
            checked += 1
        currencies |= {"".join(found) for found in CURRENCIES.findall("".join(g.char for g in page.glyphs))}
    assert checked > 10
    assert min(prices) < 1
    assert max(prices) > 1000
    assert len(currencies) > 5


@pytest.mark.parametrize("split", SPLITS)
def test_a_page_is_the_same_for_the_same_seed(split: str) -> None:
    first, again = draw("receipts", 7, split), draw("receipts", 7, split)
    assert first.image.tobytes() == again.image.tobytes()
    assert (first.questions, first.glyphs) == (again.questions, again.glyphs)
    assert first.image.tobytes() != draw("receipts", 8, split).image.tobytes()
    assert first.document == f"receipts/{split}/000007"


def test_receipts_of_a_seed_ask_what_they_always_asked() -> None:
    """Logs name a page by its seed, and the reader was trained on these: a change of pages is another family."""
    shown = [(q.text, q.answers, q.tier) for s in SPLITS for i in range(5) for q in draw("receipts", i, s).questions]
    assert sha256(repr(shown).encode()).hexdigest()[:16] == "c9dbb0bc89e289b7"


def test_canvases_are_whole_tokens_of_the_listed_sizes(held_out_pages: list[Page]) -> None:
    sizes = Counter(page.image.size for page in held_out_pages)
    assert {*sizes} <= {*SIZES["receipts"]}
    assert len(sizes) >= 6
    assert min(height / width for width, height in sizes) < 1 < 2.5 < max(height / width for width, height in sizes)


def test_the_glyphs_of_a_question_are_its_answer_inside_its_box(held_out_pages: list[Page]) -> None:
    for page in held_out_pages:
        for index, question in enumerate(page.questions):
            mine = [g for g in page.glyphs if g.question == index]
            if not mine:
                continue  # a second wording: the glyphs belong to the first one
            assert "".join(g.char for g in mine) == question.answers[0].replace(" ", "")
            assert question.box is not None
            left, top, right, bottom = question.box
            assert 0 <= left < right <= page.image.width
            assert 0 <= top < bottom <= page.image.height
            assert all(left <= g.x <= right and top <= g.y <= bottom for g in mine)


def test_there_is_ink_where_answers_are(held_out_pages: list[Page]) -> None:
    for page in held_out_pages:
        gray = np.asarray(page.image.convert("L"))
        for question in page.questions:
            assert question.box is not None
            left, top, right, bottom = question.box
            assert gray[top:bottom, left:right].min() < np.median(gray) - 60, (page.document, question)


def test_bent_pages_move_glyphs_and_boxes_alike(training_pages: list[Page]) -> None:
    for page in training_pages:
        for index, question in enumerate(page.questions):
            assert question.box is not None
            left, top, right, bottom = question.box
            assert 0 <= left < right <= page.image.width
            assert 0 <= top < bottom <= page.image.height
            mine = [g for g in page.glyphs if g.question == index]
            if mine:
                assert "".join(g.char for g in mine) == question.answers[0].replace(" ", "")
                assert all(left - 2 <= g.x <= right + 2 and top - 2 <= g.y <= bottom + 2 for g in mine)


def test_only_training_pages_are_bent(held_out_pages: list[Page], training_pages: list[Page]) -> None:
    def rows(page: Page) -> float:
        return len({round(g.y, 2) for g in page.glyphs}) / len(page.glyphs)

    assert all(rows(page) < 0.3 for page in held_out_pages)
    assert sum(rows(page) > 0.5 for page in training_pages) > 10


def test_every_receipt_asks_for_one_total_a_date_and_a_company(held_out_pages: list[Page]) -> None:
    for page in held_out_pages:
        fields = Counter(q.field for q in page.questions)
        assert all(fields[f] for f in ("total", "date", "company")), page.document
        assert len({q.answers for q in page.questions if q.field == "total"}) == 1


def test_questions_are_unique_ascii_and_about_known_fields(
    held_out_pages: list[Page], training_pages: list[Page]
) -> None:
    for page in [*held_out_pages, *training_pages]:
        assert max(Counter(q.text for q in page.questions).values()) == 1
        for question in page.questions:
            (answer,) = question.answers
            assert question.field in FIELDS
            trained_name = question.field == "company" and "/train/" in page.document
            assert 1 <= len(answer) <= (shops.LONGEST_NAME if trained_name else shops.LONGEST)
            assert (question.text + answer).isascii()
            assert "{" not in question.text


def test_tiers_follow_the_field(held_out_pages: list[Page]) -> None:
    tiers = {q.field: q.tier for page in held_out_pages for q in page.questions}
    assert {tiers[f] for f in ("total", "date", "number", "tax")} == {"high"}
    assert {tiers[f] for f in ("company", "street")} == {"low"}


def test_questions_include_those_of_the_benchmark() -> None:
    assert all(text in wording.QUESTIONS[field].split("|") for field, text in BENCHMARK_QUESTIONS.items())


def test_a_bill_adds_up() -> None:
    for seed in range(200):
        dice = roll("receipts", "test", seed)
        bill = Bill.draw(dice, choose(dice))
        assert bill.subtotal == pytest.approx(sum(one.amount for one in bill.articles), abs=0.01)
        tax = 0.0 if bill.inclusive else bill.tax_amount
        assert bill.unrounded == pytest.approx(bill.subtotal - bill.discount + bill.service + tax, abs=0.011)
        assert abs(bill.rounding) <= 0.03
        assert not bill.cash or bill.cash >= bill.total


def test_most_totals_are_below_200() -> None:
    dice = roll("receipts", "train", 1)
    totals = [Bill.draw(dice, country).total for country in COUNTRIES if country.language != "id" for _ in range(40)]
    assert 5 < median(totals) < 150
    assert sum(t < 200 for t in totals) / len(totals) > 0.7


def test_dates_have_many_formats_mostly_day_first() -> None:
    dice = roll("receipts", "train", 2)
    drawn = [date(dice, choose(dice)) for _ in range(1500)]
    formats = {re.sub(r"[A-Za-z]+", "b", re.sub(r"\d+", lambda m: "#" * len(m[0]), text)) for text in drawn}
    assert len(formats) > 15
    slashed = [list(map(int, m.groups())) for t in drawn if (m := re.fullmatch(r"(\d\d?)/(\d\d?)/\d{2,4}", t))]
    assert sum(a > 12 for a, _ in slashed) > 1.5 * sum(b > 12 for _, b in slashed) > 0


def test_amounts_follow_the_country() -> None:
    germany = next(c for c in COUNTRIES if c.name == "Germany")
    written = [AmountStyle.draw(roll("receipts", "train", s), germany).write(1234.5) for s in range(200)]
    assert {"1.234,50", "1234,50"} <= {*written}
    assert sum("," in w[-3:] for w in written) > 180


def test_shop_names_fit_an_answer_and_vary() -> None:
    dice = roll("receipts", "train", 3)
    names = [shops.shop(dice, choose(dice)) for _ in range(600)]
    assert all(2 <= len(n) <= shops.LONGEST_NAME and n.isascii() and n == n.strip() for n in names)
    assert all(n.count("(") == n.count(")") for n in names)
    assert len({*names}) > 590
    assert sum(len(n.split()) >= 4 for n in names) > 150
    held_out = roll("receipts", "test", 3)
    assert all(len(shops.shop(held_out, choose(held_out))) <= shops.LONGEST for _ in range(600))


def test_a_double_width_name_is_broken_into_lines_of_the_same_letters() -> None:
    style = look.draw_look(roll("receipts", "test", 1), 1.0)
    name = replace(center(span("NORTHGATE PAINT AND GARDEN TOOLS")), wide=True)
    narrow, broken = (wrap([line], style, 18, 300) for line in (name, replace(name, broken=True)))
    assert not any(line.wide for line in narrow)
    assert len(broken) > len(narrow)
    assert all(line.wide and style.face(18, False, True).width(line.cells[0].text) <= 300 for line in broken)
    assert " ".join(line.cells[0].text for line in broken) == name.cells[0].text
    endless = replace(center(span("X" * 60)), wide=True, broken=True)
    assert not any(line.wide for line in wrap([endless], style, 18, 300))


def test_some_training_receipts_are_small_print_on_a_large_page(
    held_out_pages: list[Page], training_pages: list[Page]
) -> None:
    def small(pages: list[Page]) -> int:
        large = [page for page in pages if page.image.size in look.LARGE]
        heights = [median(q.box[3] - q.box[1] for q in page.questions if q.box) for page in large]
        return sum(h <= 18 for h in heights)

    assert small(training_pages) > small(held_out_pages)


def test_only_training_receipts_have_pale_ink() -> None:
    pale = {s: sum(look.draw_look(roll("receipts", s, seed), 1.0).ink[2] > 200 for seed in range(200)) for s in SPLITS}
    assert pale["train"] > pale["test"] + 5


def test_every_language_has_every_label_and_street() -> None:
    assert {c.language for c in COUNTRIES} == {"en", *wording.OTHERS} == {*shops.STREETS}
    for labels in wording.OTHERS.values():
        assert {*labels} == {*wording.ENGLISH}
        assert all(text.isascii() for text in labels.values())


def test_forward_inverts_back() -> None:
    x, y = np.array([30.0, 280.0, 500.0]), np.array([50.0, 600.0, 1100.0])
    for seed in range(20):
        warp = Warp.draw(roll("receipts", "train", seed), (560, 1176))
        a, b = warp.back(*warp.forward(x, y))
        assert np.abs(a - x).max() < 0.1
        assert np.abs(b - y).max() < 0.1


def test_wear_removes_ink_and_keeps_the_size() -> None:
    ink = Image.new("L", (448, 1120))
    ink.paste(255, (40, 40, 200, 60))
    worn = [wear.strokes(roll("receipts", "train", seed), ink.copy(), 18) for seed in range(20)]
    assert all(layer.size == ink.size for layer in worn)
    assert any(np.asarray(layer).sum() < 0.9 * np.asarray(ink).sum() for layer in worn)
    page = Image.new("RGB", ink.size, (250, 250, 250))
    assert all(wear.capture(roll("receipts", "train", seed), page, 18).size == page.size for seed in range(10))
