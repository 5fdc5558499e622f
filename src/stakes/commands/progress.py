"""How far is it? A bar with the time left on a terminal, a plain line now and then in a log; always on stderr.

with progress("checking", total=size) as advance:
    advance(120)
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_SECONDS = 10.0


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how much more is done; the bar goes away at the end."""
    if not sys.stderr.isatty():
        yield _Log(what, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)


class _Log:
    """A line each ten seconds, so that a quick command says nothing."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self.started = self.spoken = time.monotonic()

    def __call__(self, more: int) -> None:
        self.done += more
        now = time.monotonic()
        if now - self.spoken >= EVERY_SECONDS:
            self.spoken = now
            left = (now - self.started) * (self.total - self.done) / max(self.done, 1)
            share = self.done / max(self.total, 1)
            print(f"stakes: {self.what}: {share:.0%}, about {left:.0f} s left", file=sys.stderr, flush=True)
