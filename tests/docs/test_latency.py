"""The tables of a GPU run say what its results say, and a bar that is missed is called so."""

import json
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.latency_tables import FASTEST, bars, cells, ratio_at_most, rounded, tables

FILE = Path(__file__).parents[2] / "docs" / "results" / "latency-h200.json"


@pytest.fixture
def run() -> Any:
    return json.loads(FILE.read_text(encoding="utf-8"))


def test_the_tables_are_made_of_the_results_beside_them(run: Any) -> None:
    assert tables(run["results"]) == run["tables"]
    assert len(cells(run["results"])) == len(run["tables"]["latency-cells"]["rows"]) == 26


@pytest.mark.parametrize(
    ("bar", "place", "enough", "short"),
    [
        (0, ("resolution, batch 1, 304", "ratio_to_floor"), 1.5, 1.501),
        (1, ("resolution, batch 1, 304", "times_faster_than_stock"), 4.0, 3.99),
        (3, ("resolution, batch 1, 304", "ours", "without_host"), 80.0, 120.0),
        (4, ("resolution, batch 32, 32", "ours", "without_host"), 200.0, 300.0),
        (5, ("two tiers", "times_full_resolution"), 1.8, 1.79),
        (6, ("two tiers", "times_stock_full_resolution"), 6.0, 5.9),
        (7, ("deletion pays", "batch 32", "share_of_prediction"), 0.8, 0.79),
        (8, ("selectors", "1296", "selector_of_encoder"), 0.049, 0.05),
        (9, ("selectors", "16000", "selector_of_encoder"), 0.199, 0.2),
    ],
)
def test_a_bar_is_met_or_missed_by_what_was_measured(
    run: Any, bar: int, place: tuple[str, ...], enough: float, short: float
) -> None:
    for value, said in ((enough, "met"), (short, "**missed**")):
        results = deepcopy(run["results"])
        at = results
        for name in place[:-1]:
            at = at[name]
        at[place[-1]] = value
        assert bars(results)[bar][2] == said


def test_every_cell_counts(run: Any) -> None:
    results = run["results"]
    for cell in cells(results).values():
        cell["ratio_to_floor"] = 1.5
    assert bars(results)[2][1:] == ["26 of 26", "met"]
    results["deletion, batch 1, 96"]["ratio_to_floor"] = 1.51
    assert bars(results)[2][1:] == ["25 of 26; deletion, batch 1, 96: 1.510", "**missed**"]


def test_every_cell_counts_by_the_fastest_product_of_any_run(run: Any) -> None:
    results = run["results"]
    cell = results["deletion, batch 1, 96"]
    for fast in (FASTEST, 2 * FASTEST):  # a run as fast or faster counts with its own rate
        assert ratio_at_most(cell, fast) == pytest.approx(cell["ours"]["without_host"] / cell["floor"]["all"], rel=1e-3)
    results["rates"]["TFLOP_per_s"] = FASTEST / 2
    at_most = 0.5 * (cell["floor"]["encoder"] + cell["floor"]["prefill"]) + cell["floor"]["decode"]
    for times, said in ((1.499, "met"), (1.51, "**missed**")):
        for other in cells(results).values():
            other["ours"]["without_host"] = 1.0
        cell["ours"]["without_host"] = times * at_most
        row = bars(results)[10]
        assert row[1:] == [f"worst: deletion, batch 1, 96: {times:.2f}", said]


def test_the_steady_state_counts_the_host_and_is_open_until_it_is_measured(run: Any) -> None:
    results = run["results"]
    assert [row[1:] for row in bars(results)[-2:]] == [["not measured", "open"]] * 2
    assert "latency-steady" not in tables(results)
    part = {"all": 130.0, "host": 1.0, "ratio_with_host": 1.3}
    for batch, said in (("1", "met"), ("32", "**missed**")):
        worst = {**part, "ratio_with_host": 1.31}
        found = {"resolution, full": part, "deletion, 304": worst}
        results[f"steady state, batch {batch}"] = {
            name: {"batches": 10, "floor": 100.0, "one_by_one": part, "ahead": ahead} for name, ahead in found.items()
        }
        assert bars(results)[11 if batch == "1" else 12][1:] == ["1.31", said]
    rows = tables(results)["latency-steady"]["rows"]
    assert rows[3] == ["32", "304", "deletion", "100", "130", "130", "1.30", "1.31"]


def test_rounding_keeps_five_digits_of_every_number() -> None:
    assert rounded({"a": [1234.5678, 3, "x"], "b": 0.000123456}) == {"a": [1234.6, 3, "x"], "b": 0.00012346}


def test_pages_come_from_a_folder_in_turn_or_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from benchmarks.latency_model import drawn
    from PIL import Image

    with pytest.raises(SystemExit, match=r"holds no .png, .jpg, .jpeg or .webp file"):
        drawn(1, 2, 3, tmp_path)
    names = ["f.png", "e.jpg", "a.JPG", "d.png", "c.jpeg", "b.png"]
    for grey, name in enumerate(names):
        Image.new("L", (90, 40), 40 * grey).save(tmp_path / name)
    by_name = [40 * names.index(name) for name in sorted(names)]
    found = drawn(7, 2, 3, tmp_path)
    assert [np.asarray(page)[5, 5, 0] for page in found] == pytest.approx([*by_name, by_name[0]], abs=2)
    assert {page.size for page in [*found, *drawn(1, 2, 3)]} == {(56, 84)}
