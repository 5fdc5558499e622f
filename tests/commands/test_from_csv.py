"""``stakes data from-csv``: a table of documents becomes samples that every other command reads."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.commands.test_newcomer import stakes

from stakes import count_tokens
from stakes.budgets.curve import default_grid
from stakes.commands.options.tables import what_can_be_shown


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    (tmp_path / "scans").mkdir()
    for name, shade in (("a.png", 40), ("b.jpg", 80)):
        Image.effect_noise((392, 280), shade).save(tmp_path / "scans" / name)
    return tmp_path


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def _table(folder: Path, text: str, name: str = "invoices.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_a_row_per_document_gives_a_question_per_field_and_the_next_command(scans: Path) -> None:
    file = _table(scans, "\ufefffile,total,issue_date,company\na.png,12.50,2026-01-02,Acme\nb,3.00,,Beta\n")
    status, out, err = stakes(
        "data", "from-csv", file, "--images", scans / "scans", "--tier", "total=20", "--tier", "issue_date=5",
        "--answer", "total", "--answer", "issue_date", "--answer", "company",
        "--question", "total=What is the amount due?",
    )  # fmt: skip
    assert (status, err) == (0, "")
    samples = _read(scans / "invoices.jsonl")
    assert [(s["id"], s["tier"], s["answers"]) for s in samples] == [
        ("2/total", "total", ["12.50"]), ("2/issue_date", "issue_date", ["2026-01-02"]),
        ("2/company", "other", ["Acme"]),
        ("3/total", "total", ["3.00"]), ("3/company", "other", ["Beta"]),
    ]  # fmt: skip
    assert [s["question"] for s in samples[:2]] == ["What is the amount due?", "What is the issue date?"]
    assert {(s["image"], s["document"]) for s in samples} == {("scans/a.png", "a.png"), ("scans/b.jpg", "b.jpg")}
    assert "5 questions on 2 documents" in out
    assert "1 empty cell left out" in out
    assert "\nNext: stakes calibrate" in out
    assert "--cost total=20 --cost issue_date=5 --cost other=1 --mean-budget " in out
    checked = stakes("data", "check", scans / "invoices.jsonl", "--largest-budget", 100, "--json")
    assert (checked[0], json.loads(checked[1])["usable"], json.loads(checked[1])["questions"]) == (0, True, 3)


def test_names_with_spaces_are_quoted_in_the_next_command(scans: Path) -> None:
    file = _table(scans, "file,Total Amount,date\na.png,12.50,2026\n", "my invoices.csv")
    options = "--images", scans / "scans", "--tier", "Total Amount=20", "--tier", "date=1"
    status, out, err = stakes("data", "from-csv", file, *options)
    assert (status, err) == (0, "")
    words = shlex.split(out.splitlines()[-1])
    assert words[:-1] == ["Next:", "stakes", "calibrate", str(scans / "my invoices.jsonl"),
                          "--cost", "Total Amount=20", "--cost", "date=1", "--mean-budget"]  # fmt: skip
    assert shlex.split(out.splitlines()[-2])[-1] == str(scans / "my invoices.jsonl")


def test_json_lines_end_where_a_line_ends(scans: Path) -> None:
    file = _table(scans, '{"file": "a.png", "answer": "1\u20282"}\n \r\n{"file": "b", "answer": "3"}\n', "rows.json")
    status, _, err = stakes("data", "from-csv", file, "--images", scans / "scans")
    assert (status, err) == (0, "")
    assert [s["answers"] for s in _read(scans / "rows.jsonl")] == [["1\u20282"], ["3"]]


def test_a_field_may_share_the_tier_of_another(scans: Path) -> None:
    file = _table(scans, "file;total;tax;shop\na.png;12,50;2,00;Acme\n")
    tiers = "--tier", "total=20", "--tier", "tax=total", "--tier", "shop=1"
    status, out, _ = stakes("data", "from-csv", file, "--images", scans / "scans", *tiers)
    assert (status, [s["tier"] for s in _read(scans / "invoices.jsonl")]) == (0, ["total", "total", "shop"])
    assert "--cost total=20 --cost shop=1 --mean-budget " in out


def test_a_json_array_with_common_names_needs_no_option(scans: Path) -> None:
    rows = [{"file": "scans/a.png", "query": "Who?", "label": ["Ann", "A."]}]
    file = _table(scans, json.dumps(rows), "pairs.json")
    assert stakes("data", "from-csv", file)[0] == 0
    (sample,) = _read(scans / "pairs.jsonl")
    assert (sample["question"], sample["answers"]) == ("Who?", ["Ann", "A."])


def test_pages_of_pdfs_are_drawn_and_are_one_document(scans: Path) -> None:
    pytest.importorskip("pypdfium2")
    pages = [Image.new("RGB", (360, 540), shade) for shade in ("white", "black", "gray")]
    pages[0].save(scans / "bill.pdf", save_all=True, append_images=pages[1:], resolution=72)
    file = _table(scans, "file,total\nbill.pdf#2,1\nbill.pdf#3,2\n")
    status, _, err = stakes("data", "from-csv", file, "--tier", "total=2")
    assert (status, err) == (0, "")
    samples = _read(scans / "invoices.jsonl")
    assert [(s["image"], s["document"]) for s in samples] == [
        ("invoices-pages/bill-2.png", "bill.pdf"), ("invoices-pages/bill-3.png", "bill.pdf"),
    ]  # fmt: skip
    with Image.open(scans / "invoices-pages" / "bill-2.png") as image:
        assert image.size == (1000, 1500)  # 5 x 7.5 inches at 200 dpi
        assert max(image.convert("L").tobytes()) < 20
    _table(scans, "file,total\nbill.pdf#9,1\n")
    assert "bill.pdf#9 is not there: the PDF has 3 pages" in stakes("data", "from-csv", file, "--tier", "total=2")[2]
    _table(scans, "file,total\nbill.pdf,1\n")
    assert "has 3 pages; write bill.pdf#1" in stakes("data", "from-csv", file, "--tier", "total=2")[2]


def test_a_renamed_key_is_named_with_its_remedy(scans: Path) -> None:
    file = _table(scans, '{"id": "1", "query": "What?", "answers": ["x"]}\n', "s.jsonl")
    assert "rename query to question" in stakes("calibrate", file)[2]
    assert "rename query to question" in stakes("data", "check", file)[1]


def test_more_documents_can_show_a_smaller_error() -> None:
    """1 - (0.05 / 2) ** (1 / n) for n of 75: three quarters of 100 without a mistake, and one that is not seen."""
    shown = what_can_be_shown({"high": 100, "low": 20}, "document")
    assert "high 5% (100 documents), low 22% (20 documents)" in shown
    assert "Too few" not in shown


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("file,total\na.png,1,250.00\n", "line 2 of .* has 3 cells, and the table has 2 columns"),
        ("file,total\nc,1\n", "c.jpg, c.png all match 'c'; write the name in full"),
    ],
)
def test_a_row_that_can_be_read_in_two_ways_is_refused(scans: Path, text: str, says: str) -> None:
    for name in ("c.png", "c.jpg"):
        Image.effect_noise((392, 280), 60).save(scans / "scans" / name)
    status, _, err = stakes(
        "data", "from-csv", _table(scans, text), "--images", scans / "scans", "--answer", "total"
    )  # fmt: skip
    assert status == 2
    assert re.search(says, " ".join(err.split()))


def test_the_next_command_has_a_mean_budget_that_the_smallest_image_can_take(scans: Path) -> None:
    Image.new("RGB", (459, 800), "white").save(scans / "scans" / "a.png")
    Image.new("RGB", (1400, 1400), "white").save(scans / "scans" / "b.jpg")
    least = count_tokens("qwen2.5-vl", 459, 800)
    file = _table(scans, "file,total,shop\na.png,1.00,Acme\nb.jpg,2.00,Beta\n")
    made = ("from-csv", file, "--images", scans / "scans", "--tier", "total=2", "--tier", "shop=1")
    for words in (made, ("check", file.with_suffix(".jsonl"))):
        mean = int(stakes("data", *words)[1].split("--mean-budget ")[-1])
        assert default_grid(mean)[-1] <= least < default_grid(mean + 1)[-1]


def test_what_spreadsheets_and_windows_write_is_read(scans: Path) -> None:
    text = "\ufeffsep=;\r\nfile;total;company;;\r\nscans\\a.png;1.240,50;Acme;;\r\nscans\\b.jpg;3,00;Beta;;\r\n"
    (scans / "export.csv").write_bytes(text.encode())
    status, _, err = stakes("data", "from-csv", scans / "export.csv", "--tier", "total=20", "--tier", "company=1")
    assert (status, err) == (0, "")
    samples = _read(scans / "export.jsonl")
    assert [s["answers"] for s in samples] == [["1.240,50"], ["Acme"], ["3,00"], ["Beta"]]
    assert {s["image"] for s in samples} == {"scans/a.png", "scans/b.jpg"}


def test_one_tier_names_a_second_one_instead_of_a_command_that_fails(scans: Path) -> None:
    file = _table(scans, "file,total,company\na.png,1,Acme\nb.jpg,3,Beta\n")
    status, out, err = stakes("data", "from-csv", file, "--images", scans / "scans", "--tier", "total=20")
    assert (status, err) == (0, "")
    assert "Next:" not in out
    assert "nothing to move tokens between" in out
    assert out.rstrip().endswith("such as --tier company=1.")
    status, out, _ = stakes("data", "check", scans / "invoices.jsonl", "--largest-budget", 100)
    assert (status, "Next:" in out) == (0, False)


def test_rows_that_repeat_a_question_are_counted(scans: Path) -> None:
    file = _table(scans, "file,total,company\na.png,1,Acme\na.png,2,Acme\n")
    options = "--images", scans / "scans", "--tier", "total=20", "--tier", "company=1"
    assert "2 questions asked of the same image before" in stakes("data", "from-csv", file, *options)[1]


def test_the_folder_of_the_images_is_found_and_missing_rows_are_told_from_a_missing_folder(scans: Path) -> None:
    file = _table(scans, "file,total\na.png,1\nb.jpg,2\n")
    missing = stakes("data", "from-csv", file, "--tier", "total=20")
    assert (missing[0], f"has the first one: give --images {scans / 'scans'}" in missing[2]) == (2, True)
    file = _table(scans, "file,total\na.png,1\nc.jpg,2\n")
    some = stakes("data", "from-csv", file, "--tier", "total=20", "--images", scans / "scans")
    assert "c.jpg; images of 1 other row were found: add these files, or remove their rows" in some[2]


def test_the_check_shows_costs_that_leave_something_to_choose(scans: Path) -> None:
    file = _table(scans, "file,total,company\na.png,1,Acme\nb.jpg,3,Beta\n")
    stakes("data", "from-csv", file, "--images", scans / "scans", "--tier", "total=20", "--tier", "company=1")
    out = stakes("data", "check", scans / "invoices.jsonl", "--largest-budget", 100)[1]
    assert "--cost total=5 --cost company=1" in out.splitlines()[-1]
    assert "are examples: write what a mistake in each tier costs you" in out
