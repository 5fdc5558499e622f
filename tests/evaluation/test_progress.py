"""Lines say what is left; a bar is drawn where somebody watches."""

import io

import pytest

from stakes.evaluation.progress import Bar, Lines, Shares, Silent, progress_on, share_done, spell


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_come_every_ten_seconds_with_pace_and_time_left() -> None:
    stream, now = io.StringIO(), [0.0]
    lines = Lines(stream, "calibrate", clock=lambda: now[0])
    lines.start(total=1000, done=200)
    for second in (4, 8, 12, 16, 20, 23):
        now[0] = second
        lines.advance(answers=100, tokens=5000)
    lines.finish()
    assert stream.getvalue().splitlines() == [
        "calibrate: 800 of 1,000 answers to go, 200 are in the log",
        "calibrate: 500 of 1,000 answers (50%), 25.0 answers/s, 15,000 tokens, 20 s left",
        "calibrate: 800 of 1,000 answers (80%), 26.1 answers/s, 30,000 tokens, 8 s left",
        "calibrate: 800 of 1,000 answers, 30,000 tokens, 23 s",
    ]


def test_a_second_run_does_not_count_the_first() -> None:
    stream, terminal, now = io.StringIO(), Terminal(), [0.0]
    lines, bar = Lines(stream, "reproduce", clock=lambda: now[0]), Bar(terminal, "reproduce")
    for tokens in (5000, 700):
        for one in (lines, bar):
            one.start(total=100, done=0)
        now[0] += 10
        for one in (lines, bar):
            one.advance(answers=50, tokens=tokens)
            one.finish()
    assert stream.getvalue().splitlines()[-2:] == [
        "reproduce: 50 of 100 answers (50%), 5.0 answers/s, 700 tokens, 10 s left",
        "reproduce: 50 of 100 answers, 700 tokens, 10 s",
    ]
    assert "5,700" not in terminal.getvalue()


def test_a_terminal_gets_a_bar_and_a_file_gets_lines() -> None:
    terminal = Terminal()
    bar = progress_on(terminal, "evaluate")
    assert isinstance(bar, Bar)
    bar.start(total=10, done=2)
    bar.advance(answers=8, tokens=100)
    bar.finish()
    assert "10/10" in terminal.getvalue()
    assert isinstance(progress_on(io.StringIO(), "evaluate"), Lines)
    Silent().start(1, 0)


def test_work_that_is_not_answers_says_its_share_only_when_it_is_slow() -> None:
    stream, now = io.StringIO(), [0.0]
    advance = Shares(stream, "checking", 1000, clock=lambda: now[0])
    for second in (5, 9, 12, 20):
        now[0] = second
        advance(100)
    assert stream.getvalue().splitlines() == ["checking: 30%, 28 s left"]


def test_a_terminal_gets_a_bar_of_shares_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with share_done("drawing forms", 10) as advance:
        advance(10)
    assert "drawing forms" in terminal.getvalue()
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with share_done("drawing forms", 10) as advance:
        assert isinstance(advance, Shares)


def test_durations_are_spelt_as_people_say_them() -> None:
    assert [spell(s) for s in (0.4, 59.6, 200, 7500)] == ["0 s", "1 min 00 s", "3 min 20 s", "2 h 05 min"]
