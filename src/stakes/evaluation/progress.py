"""Report progress on stderr: a ``rich`` bar with the time left on a terminal, a plain line every ten seconds elsewhere.

progress = Progress(sys.stderr, "calibrate")
progress.start(total=7800, done=1200)
progress.advance(answers=32, tokens=9728)
progress.finish()
with progress_bar("checking", total=size) as advance:  # work other than answers
    advance(120)
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn

EVERY = 10.0  # seconds between two plain lines


class Progress:
    """Shows the progress of a run: a bar on a terminal, else a line at the start, every ten seconds, and at the end.

    Without a stream it shows nothing.
    """

    def __init__(
        self, stream: TextIO | None = None, what: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"), TimeRemainingColumn())
        self.stream, self.what, self.clock = stream, what, clock
        self.bar = _rich_bar(stream, TextColumn(what), *columns)
        self.total = self.done = self.new = self.tokens = 0
        self.began = self.printed = 0.0

    def start(self, total: int, done: int) -> None:
        """So many answers in all, of which the log holds ``done``; counts of an earlier run are reset."""
        self.total, self.done, self.new, self.tokens = total, done, 0, 0
        self.began = self.printed = self.clock()
        self.bar.start()
        self.task = self.bar.add_task(self.what, total=total, completed=done, pace="")
        self._print(f"{total - done:,} of {total:,} answers to go" + (f", {done:,} are in the log" if done else ""))

    def advance(self, answers: int, tokens: int) -> None:
        """So many more answers are on disk, which took so many visual tokens."""
        self.done, self.new, self.tokens = self.done + answers, self.new + answers, self.tokens + tokens
        now = self.clock()
        rate = self.new / max(now - self.began, 1e-9)
        pace = f"{rate:.1f} answers/s, {self.tokens:,} tokens"
        self.bar.update(self.task, advance=answers, pace=pace)
        if now - self.printed >= EVERY and self.done < self.total:
            self.printed = now
            left = format_duration((self.total - self.done) / rate)
            self._print(f"{self.done:,} of {self.total:,} answers ({self.done / self.total:.0%}), {pace}, {left} left")

    def finish(self) -> None:
        """The run ended, for whatever reason."""
        self.bar.stop()
        if self.new:
            took = format_duration(self.clock() - self.began)
            self._print(f"{self.done:,} of {self.total:,} answers, {self.tokens:,} tokens, {took}")

    def _print(self, text: str) -> None:
        if self.stream is not None and self.bar.disable:
            print(f"{self.what}: {text}", file=self.stream, flush=True)


@contextmanager
def progress_bar(what: str, total: int, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[int], None]]:
    """A function to call with how much more is done; the bar disappears at the end, and quick work prints nothing."""
    began = printed = clock()
    done = 0
    from rich.progress import Progress as RichProgress

    with _rich_bar(sys.stderr, *RichProgress.get_default_columns(), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def advance(more: int) -> None:
            nonlocal done, printed
            done, now = done + more, clock()
            bar.advance(task, more)
            if bar.disable and now - printed >= EVERY:
                printed = now
                left = format_duration((now - began) * (total - done) / max(done, 1))
                print(f"{what}: {done / max(total, 1):.0%}, {left} left", file=sys.stderr, flush=True)

        yield advance


def _rich_bar(stream: TextIO | None, *columns: "ProgressColumn", transient: bool = False) -> "RichProgress":
    """A bar that is drawn on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    hidden = stream is None or not stream.isatty()
    return RichProgress(*columns, console=Console(file=stream), transient=transient, disable=hidden)


def format_duration(seconds: float) -> str:
    """A duration for people: ``2 h 05 min``, ``3 min 20 s``, ``12 s``."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {whole % 60:02d} s" if minutes else f"{whole} s"
