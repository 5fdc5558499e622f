"""Lines say what is left; a bar is drawn on a terminal."""

import io

import pytest

from stakes.evaluation.progress import Progress, format_duration, progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_come_every_ten_seconds_with_pace_and_time_left() -> None:
    stream, now = io.StringIO(), [0.0]
    lines = Progress(stream, "calibrate", clock=lambda: now[0])
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
    shown = [Progress(to, "reproduce", clock=lambda: now[0]) for to in (stream, terminal)]
    for tokens in (5000, 700):
        for one in shown:
            one.start(total=100, done=0)
        now[0] += 10
        for one in shown:
            one.advance(answers=50, tokens=tokens)
            one.finish()
    assert stream.getvalue().splitlines()[-2:] == [
        "reproduce: 50 of 100 answers (50%), 5.0 answers/s, 700 tokens, 10 s left",
        "reproduce: 50 of 100 answers, 700 tokens, 10 s",
    ]
    assert "5,700" not in terminal.getvalue()


def test_a_terminal_gets_a_bar_and_no_lines() -> None:
    terminal = Terminal()
    bar = Progress(terminal, "evaluate")
    bar.start(total=10, done=2)
    bar.advance(answers=8, tokens=100)
    bar.finish()
    assert "10/10" in terminal.getvalue()
    assert "to go" not in terminal.getvalue()


def test_the_default_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    silent = Progress()
    silent.start(1, 0)
    silent.advance(1, 32)
    silent.finish()
    assert capsys.readouterr() == ("", "")


def test_work_other_than_answers_prints_its_share_only_when_it_is_slow(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with progress_bar("checking", 1000, clock=lambda: now[0]) as advance:
        for second in (5, 9, 12, 20):
            now[0] = second
            advance(100)
    assert capsys.readouterr().err.splitlines() == ["checking: 30%, 28 s left"]


def test_a_terminal_gets_a_bar_of_shares_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar("drawing forms", 10) as advance:
        advance(10)
    assert "drawing forms" in terminal.getvalue()


def test_durations_read_as_people_write_them() -> None:
    durations = [format_duration(s) for s in (0.4, 59.6, 200, 7500)]
    assert durations == ["0 s", "1 min 00 s", "3 min 20 s", "2 h 05 min"]
