"""The tables of a GPU run say what its results say, and a bar that is missed is called so."""

import json
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import latency_steady_tables as steady_tables
from benchmarks.latency_tables import FASTEST, bars, cells, ratio_at_most, rounded, tables

FILE = Path(__file__).parents[2] / "docs" / "results" / "latency-h200.json"
STEADY = FILE.with_name("latency-steady-h200.json")


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


def test_the_tables_of_the_steady_state_are_made_of_the_results_beside_them() -> None:
    steady = json.loads(STEADY.read_text(encoding="utf-8"))
    assert steady_tables.tables(steady["results"]) == steady["tables"]


def steady_run() -> Any:
    """Results of ``latency_steady.py`` with one cell of each batch, and pages of one kind."""
    part = {"all": 130.0, "median": 130.0, "slowest": 140.0, "ratio": 1.3, "sustained_ratio": 1.2}
    part |= {"encoder": 50.0, "selector": 0.0, "prefill": 40.0, "decode": 39.0, "host": 0.0}
    cell = {"batches": 10, "floor": 100.0, "sustained_floor": 108.0, "one_by_one": part, "ahead": part}
    one = {"encoder": 100.0, "native_tokens": 972, "encoder_tokens": 500.4}
    return {
        "about": dict.fromkeys(("device", "torch", "transformers", "python", "date"), "-"),
        "rates": {"TB_per_s": 4.0, "TFLOP_per_s": 700.0, "sustained_TFLOP_per_s": 650.0},
        "steady, batch 1, deletion, 304": deepcopy(cell),
        "steady, batch 32, resolution, 304": {"skipped": "no time left"},
        "steady, batch 32, resolution, full": deepcopy(cell),
        "blank, docvqa": {"redundancy": one, "blank+redundancy": one, "encoder_ratio": 0.6, "all_ratio": 0.8},
        "blank, the encoder alone": {"1.0": 10.0, "0.3": 4.0},
    }


def test_the_steady_state_counts_the_host_and_every_cell_by_both_floors() -> None:
    results = steady_run()
    assert [row[2] for row in steady_tables.bars(results)] == ["met"] * 5
    assert steady_tables.bars(results)[0][1] == "1 of 1, worst 1.30 (deletion, 304)"
    worse = (("steady, batch 1, deletion, 304", 1.41), ("steady, batch 32, resolution, full", 1.31))
    for at, (name, ratio) in enumerate(worse):
        for more, kind in enumerate(steady_tables.FLOORS):
            changed = deepcopy(results)
            changed[name]["ahead"][kind] = ratio
            missed = [row[2] == "**missed**" for row in steady_tables.bars(changed)]
            assert missed == [place == 2 * at + more for place in range(5)]
    results["blank, docvqa"]["encoder_ratio"] = 0.61
    assert steady_tables.bars(results)[4][1:] == ["61 %", "**missed**"]
    without = {name: one for name, one in results.items() if "batch 1" not in name}
    assert steady_tables.bars(without)[0][1:] == ["not measured", "open"]


def test_tables_of_the_steady_state_leave_out_what_was_not_reached() -> None:
    found = steady_tables.tables(steady_run())
    assert found["steady"]["rows"][0][3:] == ["100", "108", "130", "140", "130", "1.30", "1.20", "1.30"]
    assert [row[:3] for row in found["steady"]["rows"]] == [["1", "304", "deletion"], ["32", "full", "resolution"]]
    assert found["steady-stages"]["rows"][0][3:] == ["50.0", "0.0", "40.0", "39.0", "1.0", "130"]
    assert found["steady-blank"]["rows"][0] == ["docvqa", "500 of 972", "100", "100", "0.60", "0.80"]
    assert found["steady-blank"]["rows"][1][:2] == ["the encoder alone", "30 %"]


def test_blank_tokens_that_a_run_did_not_reach_are_taken_from_another_one_and_said_to_be() -> None:
    results, other = steady_run(), steady_run()
    other["blank, sroie"] = deepcopy(other["blank, docvqa"])
    other["blank, docvqa"]["encoder_ratio"] = 0.1
    results["blank, sroie"] = {"skipped": "no time left"}
    found = steady_tables.merged(results, [other])
    assert found["blank, sroie"] == other["blank, sroie"]
    assert found["blank, docvqa"]["encoder_ratio"] == 0.6
    table = steady_tables.tables(found)["steady-blank"]
    assert table["findings"] == ["measured in another run, on another GPU of this kind: sroie"]
    assert steady_tables.tables(steady_tables.merged(results, []))["steady-blank"]["findings"] == []


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
