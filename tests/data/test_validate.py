"""Validation checks a samples file line by line: every bad line is named, and a usable file can be read."""

import base64
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from stakes.data import validate
from stakes.data.sample import read_samples
from stakes.data.validate import FileReport, check
from stakes.errors import BadInput
from stakes.vision.image import decode

GOOD = {"id": "a", "image": "p.png", "question": "What is the total?", "answers": ["$5"], "document": "p"}


def _png(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.effect_noise((width, height), 80).save(file, "PNG")
    return file.getvalue()


def _write(folder: Path, lines: list[Any]) -> Path:
    file = folder / "samples.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return file


def _problems(report: FileReport) -> list[tuple[int | None, str, bool]]:
    return [(problem.line, problem.kind, problem.fatal) for problem in report.problems]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.png").write_bytes(_png(700, 900))
    (tmp_path / "small.png").write_bytes(_png(280, 280))
    (tmp_path / "torn.png").write_bytes(_png(700, 900)[:-400])
    return tmp_path


def test_every_bad_line_is_named_with_every_fault(folder: Path) -> None:
    file = _write(
        folder,
        [
            GOOD,
            "{broken",
            "",
            "[1]",
            {**GOOD, "id": "b", "answers": []},
            {**GOOD, "id": "a"},
            {**GOOD, "id": "c", "image": "none.png"},
            {**GOOD, "id": "d", "image": "torn.png", "answers": [" ", ""]},
            {**GOOD, "id": "e", "image": "http://example.org/p.png"},
            {**GOOD, "id": "f", "image": "small.png", "document": "s"},
            {"image": "p.png", "answer": "5", "document": "p"},
            {**GOOD, "id": None, "question": "", "tier": 5},
            {**GOOD, "id": "g", "question": "\ud800?"},
            {**GOOD, "id": "h", "image": None},
            {**GOOD, "id": "i", "question": "Who signed?"},
        ],
    )
    report = check(file)
    assert _problems(report) == [
        (2, "malformed", True), (4, "malformed", True), (5, "answers", True), (6, "duplicate", True),
        (7, "image", True), (8, "answers", True), (8, "image", True), (9, "image", True), (10, "native", False),
        (11, "answers", True), (11, "id", True), (11, "question", True), (12, "id", True), (12, "question", True),
        (12, "tier", True), (13, "malformed", True), (14, "image", True),
    ]  # fmt: skip
    messages = {(p.line, p.kind): p.message for p in report.problems}
    assert messages[6, "duplicate"] == "the id 'a' is that of line 1; make ids unique"
    assert "none.png is unreadable: no image can be read at" in messages[7, "image"]
    assert "torn.png is unreadable: the image cannot be decoded" in messages[8, "image"]
    assert messages[10, "native"] == "the image small.png has 100 native tokens, fewer than the largest budget 576"
    assert "the line has ['image', 'answer', 'document']" in messages[11, "answers"]
    assert not report.usable
    assert report.ignored_keys == {"answer": 1}
    assert report.record()["bad_lines"] == [2, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14]
    json.dumps(report.record(), ensure_ascii=False).encode()  # no half surrogate pair gets out


def test_headers_alone_do_not_show_a_torn_file(folder: Path) -> None:
    file = _write(folder, [{**GOOD, "image": "torn.png"}, {**GOOD, "id": "b", "question": "Who?", "image": "torn.png"}])
    assert not check(file).usable
    assert check(file, decode=False).usable


def test_counts_of_tiers_documents_and_images(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inline = "data:image/png;base64," + base64.b64encode(_png(280, 560)).decode()
    file = _write(
        folder,
        [
            {**GOOD, "tier": "medium"},
            {**GOOD, "id": 2, "question": "What is the total due?"},
            {**GOOD, "id": "c", "image": "./p.png", "question": "What is the sum total?"},
            {**GOOD, "id": "d", "question": "Who?", "image": inline, "document": None},
            {**GOOD, "id": "e", "question": "Why?", "image": inline, "document": None},
        ],
    )
    opened: list[Path | bytes] = []

    def open_image(source: Path | bytes) -> Image.Image:
        opened.append(source)
        return decode.open_image(source)

    monkeypatch.setattr(validate, "open_image", open_image)
    report = check(file, largest_budget=200)
    assert (report.samples, report.usable, report.problems) == (5, True, [])
    assert report.tiers == {"medium": 1, "high": 2, "low": 2}
    assert report.tiers_from == {"file": 1, "signal": 4}
    assert (report.documents, len(report.images), sorted(report.images.values())) == (1, 2, [2, 3])
    assert len(opened) == 2  # each image once, however many questions it has
    assert report.native_range == (200, 200, 800)


def test_one_image_in_two_documents_breaks_their_independence(folder: Path) -> None:
    file = _write(folder, [GOOD, {**GOOD, "id": "b", "question": "Who?", "document": "other"}])
    (problem,) = check(file).problems
    assert (problem.line, problem.fatal) == (2, False)
    assert problem.message == "the image p.png is of document 'other' here and of 'p' on line 1; " + (
        "documents that share an image count as one"
    )
    (folder / "copy.png").write_bytes((folder / "p.png").read_bytes())
    file = _write(folder, [GOOD, {**GOOD, "id": "b", "question": "Who?", "image": "copy.png", "document": "other"}])
    assert _problems(check(file)) == [(2, "document", False)], "a page under two names is one page"


def test_one_question_asked_twice_of_one_image_is_listed(folder: Path) -> None:
    (folder / "copy.png").write_bytes((folder / "p.png").read_bytes())
    again = {**GOOD, "id": "b", "question": "What  is the total? "}
    others = [{**GOOD, "id": "c", "image": "copy.png"}, {**GOOD, "id": "d", "image": "small.png", "document": "s"}]
    report = check(_write(folder, [GOOD, again, *others]), largest_budget=50)
    repeats = [problem for problem in report.problems if problem.kind == "repeat"]
    assert [(problem.line, problem.fatal) for problem in repeats] == [(2, False), (3, False)]
    assert repeats[0].message == "'b' asks the same about the same image as 'a' on line 1; keep one"


def test_files_for_signals_and_files_of_one_tier_are_usable_and_say_so(folder: Path) -> None:
    text_only = [{"id": i, "question": q, "answers": ["x"]} for i, q in enumerate(["Total?", "Who?"])]
    assert _problems(check(_write(folder, text_only))) == [(None, "image", False)]
    assert _problems(check(_write(folder, [GOOD, {**GOOD, "id": "b", "question": "Total?"}]))) == [
        (None, "tier", False)
    ]


def test_files_that_hold_nothing_or_cannot_be_opened(folder: Path) -> None:
    assert _problems(check(_write(folder, ["", " "]))) == [(None, "file", True)]
    with pytest.raises(BadInput, match="there is no file"):
        check(folder / "none.jsonl")
    with pytest.raises(BadInput, match="is a folder; give .*samples.jsonl"):
        check(folder)
    latin = folder / "latin.jsonl"
    latin.write_bytes(json.dumps(GOOD).encode() + b'\n{"id": "caf\xe9"}\n')
    (problem,) = check(latin).problems
    assert (problem.line, problem.message) == (2, "the line is not UTF-8 at byte 12")


def test_endless_lines_are_malformed_not_a_crash(folder: Path) -> None:
    file = _write(folder, ["[" * 200_000, '{"id": ' + "9" * 5000 + "}", GOOD])
    assert [kind for _, kind, _ in _problems(check(file))] == ["malformed", "malformed"]


def test_progress_adds_up_to_the_size_of_the_file(folder: Path) -> None:
    file = _write(folder, [GOOD, "{", {**GOOD, "id": "ü", "question": "Wer?"}])
    sizes: list[int] = []
    check(file, advance=sizes.append)
    assert sum(sizes) == file.stat().st_size


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(0, 3), st.floats(), st.text("ab \\\"\n\u2028", max_size=3),
    st.lists(st.one_of(st.text("ab ", max_size=2), st.none()), max_size=2),
)  # fmt: skip
RECORDS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("id", "image", "question", "answers", "task", "tier", "document", "x"), VALUES)
)
NEARLY_GOOD = st.builds(
    lambda number, change: {**GOOD, "id": number, **change}, st.integers(0, 9), st.one_of(st.just({}), RECORDS)
)
LINES = st.lists(st.one_of(NEARLY_GOOD.map(json.dumps), st.sampled_from(["", "{", "7", "null", "{}"])), max_size=6)


@given(LINES)
@example([json.dumps(GOOD)])
def test_what_check_calls_usable_can_be_read_and_what_cannot_be_read_it_names(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "p.png").write_bytes(_png(28, 28))
    file = _write(folder, lines)
    report = check(file)
    bad = {problem.line for problem in report.problems if problem.fatal}
    try:
        samples = read_samples(file)
    except BadInput as error:
        words = str(error).split()
        refused = int(words[1]) if words[0] == "line" else None
        assert refused in bad
    else:
        assert len(samples) == report.samples
        if report.usable:
            assert sum(report.tiers.values()) == len(samples)


@pytest.mark.parametrize(
    ("name", "tiers", "documents", "short", "copies"),
    [
        ("docvqa", {"high": 300, "low": 300}, 158, 0, 0),
        ("chartqa", {"high": 200, "low": 200}, 232, 192, 0),
        ("sroie", {"high": 79, "low": 80}, 40, 20, 8),  # two receipts are there twice
    ],
)
def test_real_questions_are_usable(
    real_data: Path, name: str, tiers: dict[str, int], documents: int, short: int, copies: int
) -> None:
    report = check(real_data / name / "questions.jsonl")
    assert report.usable
    assert (dict(report.tiers), report.documents, len(report.images)) == (tiers, documents, documents)
    kinds = Counter(problem.kind for problem in report.problems)
    assert kinds == Counter({"native": short, "document": copies, "repeat": copies})


def test_a_tiff_of_several_pages_is_named_on_each_of_its_lines(folder: Path) -> None:
    page = Image.effect_noise((700, 900), 80)
    page.save(folder / "scan.tiff", save_all=True, append_images=[page, page])
    page.save(folder / "one.tiff")
    page.save(folder / "moving.gif", save_all=True, append_images=[page.rotate(90)])
    images = ["scan.tiff", "one.tiff", "scan.tiff", "moving.gif"]
    file = _write(folder, [{**GOOD, "id": str(i), "image": name, "document": name} for i, name in enumerate(images)])
    report = check(file, largest_budget=500)
    named = [(problem.line, problem.message) for problem in report.problems if problem.kind == "pages"]
    message = "only the first of the 3 pages of the image scan.tiff is read; split it"
    assert named == [(1, message), (3, message)]
    assert report.usable
