"""How far is it? A bar with the time left on a terminal, a plain line now and then anywhere else, on stderr.

progress = progress_on(sys.stderr, "calibrate")
progress.start(total=7800, done=1200)
progress.advance(answers=32, tokens=9728)
progress.finish()
with share_done("checking", total=size) as advance:  # work that is not answers
    advance(120)
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

EVERY = 10.0  # seconds between two plain lines


class Progress(Protocol):
    """Whoever wants to know how far a run is."""

    def start(self, total: int, done: int) -> None:
        """So many answers in all, of which the log holds ``done``."""

    def advance(self, answers: int, tokens: int) -> None:
        """So many more are on disk, for so many visual tokens."""

    def finish(self) -> None:
        """Nothing more comes, for whatever reason."""


class Silent:
    """Nobody wants to know."""

    def start(self, total: int, done: int) -> None:
        """Nothing."""

    def advance(self, answers: int, tokens: int) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""


class Lines:
    """A line at the start, at most one every ten seconds, and one at the end."""

    def __init__(self, stream: TextIO, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.what, self.clock = stream, what, clock
        self.total = self.done = self.new = self.tokens = 0
        self.began = self.spoke = 0.0

    def start(self, total: int, done: int) -> None:
        """Say what there is to do; what an earlier run counted is forgotten."""
        self.total, self.done, self.new, self.tokens = total, done, 0, 0
        self.began = self.spoke = self.clock()
        self._say(f"{total - done:,} of {total:,} answers to go" + (f", {done:,} are in the log" if done else ""))

    def advance(self, answers: int, tokens: int) -> None:
        """Count, and speak if it is time."""
        self.done, self.new, self.tokens = self.done + answers, self.new + answers, self.tokens + tokens
        now = self.clock()
        if now - self.spoke >= EVERY and self.done < self.total:
            self.spoke = now
            self._say(f"{self.done:,} of {self.total:,} answers ({self.done / self.total:.0%}), {self._pace()}")

    def finish(self) -> None:
        """Say how it went."""
        if self.new:
            took = spell(self.clock() - self.began)
            self._say(f"{self.done:,} of {self.total:,} answers, {self.tokens:,} tokens, {took}")

    def _pace(self) -> str:
        rate = self.new / max(self.clock() - self.began, 1e-9)
        return f"{rate:.1f} answers/s, {self.tokens:,} tokens, {spell((self.total - self.done) / rate)} left"

    def _say(self, text: str) -> None:
        print(f"{self.what}: {text}", file=self.stream, flush=True)


class Bar:
    """A rich bar."""

    def __init__(self, stream: TextIO, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"), TimeRemainingColumn())
        self.bar = RichProgress(TextColumn(what), *columns, console=Console(file=stream))
        self.task: Any = None
        self.new = self.tokens = 0
        self.began = 0.0

    def start(self, total: int, done: int) -> None:
        """Draw the bar."""
        self.began, self.new, self.tokens = time.monotonic(), 0, 0
        self.bar.start()
        self.task = self.bar.add_task("", total=total, completed=done, pace="")

    def advance(self, answers: int, tokens: int) -> None:
        """Move on."""
        self.new, self.tokens = self.new + answers, self.tokens + tokens
        rate = self.new / max(time.monotonic() - self.began, 1e-9)
        self.bar.update(self.task, advance=answers, pace=f"{rate:.1f} answers/s, {self.tokens:,} tokens")

    def finish(self) -> None:
        """Leave the bar as it is."""
        self.bar.stop()


class Shares:
    """A line every ten seconds with the share that is done, so that a quick command says nothing."""

    def __init__(self, stream: TextIO, what: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.what, self.total, self.clock = stream, what, total, clock
        self.done = 0
        self.began = self.spoke = clock()

    def __call__(self, more: int) -> None:
        """So much more is done."""
        self.done += more
        now = self.clock()
        if now - self.spoke >= EVERY:
            self.spoke = now
            left = spell((now - self.began) * (self.total - self.done) / max(self.done, 1))
            print(f"{self.what}: {self.done / max(self.total, 1):.0%}, {left} left", file=self.stream, flush=True)


@contextmanager
def share_done(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how much more is done; on a terminal a bar that goes away at the end."""
    if not sys.stderr.isatty():
        yield Shares(sys.stderr, what, total)
        return
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    with RichProgress(console=Console(stderr=True), transient=True) as bar:  # its own columns: share and time left
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)


def progress_on(stream: TextIO, what: str) -> Progress:
    """A bar where somebody watches, lines where something records."""
    return Bar(stream, what) if stream.isatty() else Lines(stream, what)


def spell(seconds: float) -> str:
    """A duration as a person says it: ``2 h 05 min``, ``3 min 20 s``, ``12 s``."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {whole % 60:02d} s" if minutes else f"{whole} s"
