"""Curves in a terminal: every point in its place, and nothing drawn where no one looks."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

from stakes.budgets.curve import Curve
from stakes.report.text import bars, curves_text, frontier_text, plot


def test_points_stand_where_their_numbers_say() -> None:
    lines = plot({"high": [(0, 1.0), (50, 0.5), (100, 0.0)]}, width=64, height=11).split("\n")
    assert lines[0].index("H") == 6
    assert lines[5].index("H") == 6 + 25
    assert lines[10].rstrip().index("H") == 6 + 50
    assert lines[0].startswith("100% ┤")
    assert lines[10].startswith("  0% ┤")
    assert all(len(line) <= 64 for line in lines)


def test_the_chosen_budget_is_marked_and_every_tier_has_its_letter() -> None:
    curves = {"high": Curve([32, 64], [0.9, 0.1], 10), "hill": Curve([32, 64], [0.8, 0.2], 10)}
    text = curves_text(curves, {"high": 64, "hill": 32}, 70)
    assert "H = high, I = hill; ◉ the chosen budget" in text
    assert text.count("◉") == 3
    both = frontier_text(curves, {"high": 5, "hill": 1}, {"high": 10, "hill": 10}, 960, 70, 64)
    assert "5 = 5 to 1, 1 = 1 to 1" in both
    assert frontier_text({"one": curves["high"]}, {"one": 1}, {"one": 10}, 640, 70, 64) == ""


def test_a_flat_curve_and_bars_of_nothing_are_drawn() -> None:
    assert "50%" in plot({"a": [(8, 0.5)]}, width=60)
    assert bars({"uniform": 0.5, "cost": 0.25}, 40).split("\n")[1].count("█") == 12
    assert "█" not in bars({"uniform": 0.0}, 40)


def test_a_plan_draws_on_a_terminal_and_not_into_a_pipe() -> None:
    words = [sys.executable, "-m", "stakes.cli", "plan", "--published", "docvqa"]
    piped = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "┤" not in piped
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 90, 0, 0))
    with subprocess.Popen(words, stdout=theirs) as run:
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
    assert run.returncode == 0
    assert "error against visual tokens" in seen.decode()
    assert "┤" in seen.decode()
