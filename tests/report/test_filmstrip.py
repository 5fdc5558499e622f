"""A filmstrip shows the very pixels that the model gets at each budget, and never calls a part of an answer right."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.report.runs import make_run, outcome, write_log, write_samples
from typer.testing import CliRunner

from stakes.cli import app
from stakes.data.sample import Sample
from stakes.data.synthetic import draw
from stakes.errors import BadInput
from stakes.report.data import read_run, report_data
from stakes.report.filmstrip import Place, dimmed, mark_of, place_of, seen
from stakes.report.gallery import make_gallery, samples_from_file
from stakes.vision.image.resize import fit

COSTS = {"high": 5.0, "low": 1.0}


def test_a_crop_has_the_pixels_of_the_fitted_page_and_no_others() -> None:
    page = draw("receipts", 3, "test")
    question = next(q for q in page.questions if q.tier == "high" and q.box)
    place = place_of(Sample("a", question.text, question.answers, box=question.box), page.image)
    assert question.box is not None
    assert place == Place(question.box)
    window = place.window(page.image.size)
    assert window[0] <= question.box[0] < question.box[2] <= window[2]
    assert window[1] <= question.box[1] < question.box[3] <= window[3]
    for budget in (64, 160, 448):
        fitted = fit(page.image, budget)
        crop = seen(fitted, window, 240)
        colors = {tuple(pixel) for pixel in np.asarray(crop).reshape(-1, 3)}
        x, y = fitted.scale
        left, top, right, bottom = (int(v * s) for v, s in zip(window, (x, y, x, y), strict=True))
        own = np.asarray(fitted.image)[top : bottom + 1, left : right + 1].reshape(-1, 3)
        assert colors <= {tuple(pixel) for pixel in own}
        assert crop.width == 240


def test_a_window_stays_inside_of_the_page_and_a_place_outside_is_refused() -> None:
    for box in ((0, 0, 10, 8), (580, 790, 600, 800), (0, 380, 600, 400)):
        left, top, right, bottom = Place(box).window((600, 800))
        assert 0 <= left < right <= 600
        assert 0 <= top < bottom <= 800
    page = fit(Image.new("RGB", (560, 448), "white"), 80)
    with pytest.raises(BadInput, match="outside of the image"):
        seen(page, (900, 900, 950, 920), 100)


def test_dropped_tokens_are_dimmed_and_kept_ones_are_not() -> None:
    page = fit(Image.new("RGB", (112, 56), "white"), 8)
    dark = np.asarray(dimmed(page, (2, 4), [0, 5]).image)[14::28, 14::28, 0]
    assert ((dark == 255) == np.array([[1, 0, 0, 0], [0, 1, 0, 0]], bool)).all()


def test_a_part_of_an_answer_is_never_shown_as_right() -> None:
    row = outcome("d/s", "high", 32, True, "resolution", "1,932")
    assert mark_of(row, ["11,932"]) == "part"
    assert mark_of(replace(row, metric="value"), ["1932"]) == "right"
    assert mark_of(replace(row, correct=False), ["11,932"]) == "wrong"


def test_ocr_finds_the_place_where_no_box_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rapidocr")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    page = draw("forms", 5, "test")
    question = next(q for q in page.questions if q.field == "invoice_number" or (q.tier == "high" and q.box))
    found = place_of(Sample("a", question.text, question.answers), page.image)
    assert found is not None
    left, top, right, bottom = question.box or (0, 0, 0, 0)
    middle = (found.box[0] + found.box[2]) / 2, (found.box[1] + found.box[3]) / 2
    assert found.of > 1 or (left <= middle[0] <= right and top <= middle[1] <= bottom)
    assert place_of(Sample("b", "?", ("not printed anywhere",)), page.image) is None


def test_what_ocr_read_is_not_called_cut_and_has_no_times(tmp_path: Path) -> None:
    path = make_run(tmp_path, COSTS)
    log = tmp_path / "policy.outcomes.jsonl"
    rows = [json.loads(line) | {"truncated": True} for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    samples = write_samples(tmp_path, log, "What is the total of")
    run = read_run(path)
    cards, _ = make_gallery(run, samples_from_file(samples, run))
    assert all(view["truncated"] for card in cards for view in card["views"])
    assert report_data(run)["latency"]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"basis": "legibility"}))
    run = read_run(path)
    cards, _ = make_gallery(run, samples_from_file(samples, run))
    assert not any(view["truncated"] for card in cards for view in card["views"])
    assert report_data(run)["latency"] == []


def test_a_log_with_more_budgets_than_the_policy_is_understood(tmp_path: Path) -> None:
    path = make_run(tmp_path, COSTS)
    run = read_run(path)
    write_log(
        tmp_path / "policy.outcomes.jsonl",
        [
            *run.outcomes,
            *(replace(row, budget=448, correct=True, score=1.0) for row in run.outcomes if row.budget == 32),
        ],
    )
    again = read_run(path)
    assert again.outcomes == run.outcomes
    assert any("answers at 448 tokens, of a calibration with another grid" in note for note in again.notes)
    assert not any("unfinished" in note for note in again.notes)


def test_the_command_draws_a_png_and_names_what_is_missing(tmp_path: Path) -> None:
    path = make_run(tmp_path, COSTS, 24, seed=4)
    samples = write_samples(tmp_path, tmp_path / "policy.outcomes.jsonl", "What is the total of")
    target = tmp_path / "strip.png"
    done = CliRunner().invoke(app, ["filmstrip", str(path), "--samples", str(samples), "-o", str(target), "--json"])
    assert done.exception is None, done.output
    rows = json.loads(done.output)["rows"]
    assert [row["tier"] for row in rows] == ["high", "low"]
    with Image.open(target) as image:
        assert image.width == 1200
    assert target.stat().st_size < 200_000
    missing = CliRunner().invoke(app, ["filmstrip", str(path)])
    assert "give --samples FILE" in str(missing.exception)
