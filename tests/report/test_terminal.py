"""Plots in a terminal: every point in its place, and no plot in a pipe."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from tests.report.runs import make_run, write_samples

from stakes.budgets.curve import Curve
from stakes.budgets.plan import make_plan
from stakes.report.terminal import bars, curves_text, frontier_text, plot

STAKES = [sys.executable, "-m", "stakes"]


def test_points_are_drawn_where_their_numbers_say() -> None:
    lines = plot({"high": [(0, 1.0), (50, 0.5), (100, 0.0)]}, width=64, height=11).split("\n")
    assert lines[0].index("H") == 6
    assert lines[5].index("H") == 6 + 25
    assert lines[10].rstrip().index("H") == 6 + 50
    assert lines[0].startswith("100% ┤")
    assert lines[10].startswith("  0% ┤")
    assert all(len(line) <= 64 for line in lines)


def test_points_that_fall_together_have_their_own_sign() -> None:
    lines = plot({"high": [(0, 1.0), (9, 0.0)], "low": [(0, 1.0), (9, 0.5)]}, width=64, height=11).split("\n")
    assert lines[0][6] == "+"
    assert "H" in lines[10]
    assert lines[-1] == "H = high, L = low, + = several"
    assert "several" not in plot({"high": [(0, 1.0)], "low": [(0, 0.5)]}, width=64)


def test_the_chosen_budget_is_marked_and_every_tier_has_its_letter() -> None:
    curves = {"high": Curve([32, 64], [0.9, 0.1], 10), "hill": Curve([32, 64], [0.8, 0.2], 10)}
    text = curves_text(curves, {"high": 64, "hill": 32}, 70)
    assert "H = high, I = hill; ◉ the chosen budget" in text
    assert text.count("◉") == 3
    both = frontier_text(curves, make_plan(curves, {"high": 5, "hill": 1}, {"high": 10, "hill": 10}, 960), 70)
    assert "5 = 5 to 1, 1 = 1 to 1" in both
    one = {"one": curves["high"]}
    assert frontier_text(one, make_plan(one, {"one": 1}, {"one": 10}, 640), 70) == ""


def test_a_flat_curve_and_bars_of_nothing_are_drawn() -> None:
    assert "50%" in plot({"a": [(8, 0.5)]}, width=60)
    assert bars({"uniform": 0.5, "cost": 0.25}, 40).split("\n")[1].count("█") == 12
    assert "█" not in bars({"uniform": 0.0}, 40)


def on_terminal(words: list[str], columns: int, folder: Path | None = None) -> list[str]:
    """The lines that a command prints on a terminal so wide, without their styles."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with subprocess.Popen([*STAKES, *words], stdout=theirs, stderr=subprocess.DEVNULL, cwd=folder) as run:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is gone
                break
            if not piece:
                break
            seen += piece
    os.close(ours)
    assert run.returncode == 0
    return [line.rstrip("\r") for line in re.sub(r"\x1b\[[0-9;]*m", "", seen.decode()).split("\n")]


def drawn(lines: list[str]) -> list[str]:
    """Those of figures and tables; sentences wrap by themselves."""
    return [line for line in lines if re.search(r"[┤│└█─]|  ", line)]


def test_a_plan_draws_on_a_terminal_and_not_into_a_pipe() -> None:
    words = ["plan", "--published", "docvqa"]
    piped = subprocess.run([*STAKES, *words], capture_output=True, text=True, check=True).stdout
    assert "┤" not in piped
    for columns in (80, 100):
        lines = on_terminal(words, columns)
        assert "error against visual tokens per image" in lines
        assert "cost-weighted error against the tokens of tier high, by cost ratio" in lines
        assert sum("┤" in line for line in lines) == 4
        assert all(len(line) <= columns for line in drawn(lines))
    assert not any("┤" in line for line in on_terminal(words, 50))  # too narrow to draw in


def test_an_evaluation_fits_80_columns_with_no_word_broken(tmp_path: Path) -> None:
    make_run(tmp_path, {"high": 5.0, "low": 1.0}, 24)
    write_samples(tmp_path, tmp_path / "policy.evaluation.jsonl", "What is the total of")
    words = ["evaluate", "samples.jsonl", "--policy", "policy.json", "--outcomes", "policy.evaluation.jsonl"]
    lines = on_terminal(words, 80, tmp_path)
    assert all(len(line) <= 80 for line in drawn(lines))
    text = "\n".join(lines)
    against = ("fall of CWE, 95 %", "wins:losses,", "p, by", "document", "pays from r")
    for head in ("error high", "error low", "average", *against):
        assert head in text
    assert sum("█" in line for line in lines) == 2


def test_a_calibration_draws_its_curves_and_frontier(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="a calibration needs the embedded reader")
    words = ["calibrate", "--pages", "forms", "--per-tier", "2", "--signal", "tier", "--grid", "64,304,576"]
    lines = on_terminal(words, 80, tmp_path)
    assert "error against visual tokens per image" in lines
    assert "cost-weighted error against the tokens of tier high, by cost ratio" in lines
    assert all(len(line) <= 80 for line in drawn(lines))
