"""How do requests that come at the same time share one batch? A queue, one thread, and a moment of patience.

    gather = Gathering(answer_all, most=32)
    gather.submit(ask).result()

The thread takes what waits, up to ``most``, and gives others ``wait_s`` to join the first of a batch; while a batch is
being answered the next one fills. A batch that fails is asked again one by one, so that a bad request is told so and
its neighbours are answered. What was cancelled before its turn (the client went away) is never asked.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from stakes.errors import StakesError

A = TypeVar("A")
B = TypeVar("B")


class Full(StakesError):
    """More wait than may wait."""


@dataclass
class _Waiting(Generic[A, B]):
    one: A
    future: Future[B] = field(default_factory=Future)


class Gathering(Generic[A, B]):
    """``answer``: a list of asks -> as many answers; it is called from one thread only."""

    def __init__(
        self, answer: Callable[[Sequence[A]], list[B]], *, most: int = 32, wait_s: float = 0.005, waiting: int = 512
    ) -> None:
        self.answer, self.most, self.wait_s = answer, most, wait_s
        self.sizes: list[int] = []  # of the last batches, newest last
        self._queue: queue.Queue[_Waiting[A, B] | None] = queue.Queue(waiting)
        self._thread = threading.Thread(target=self._work, daemon=True, name="stakes-gathering")
        self._thread.start()

    def submit(self, one: A) -> Future[B]:
        """Where its answer will be."""
        waiting: _Waiting[A, B] = _Waiting(one)
        try:
            self._queue.put_nowait(waiting)
        except queue.Full:
            raise Full(f"{self._queue.maxsize} requests are waiting already") from None
        return waiting.future

    def close(self) -> None:
        """Answer what waits, then end."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, until, last = [first], time.monotonic() + self.wait_s, False
            while len(batch) < self.most and not last:
                try:
                    more = self._queue.get(timeout=max(0.0, until - time.monotonic()))
                except queue.Empty:
                    break
                if more is None:
                    last = True
                else:
                    batch.append(more)
            self._answer([waiting for waiting in batch if waiting.future.set_running_or_notify_cancel()])
            if last:
                return

    def _answer(self, batch: list[_Waiting[A, B]]) -> None:
        if not batch:
            return
        self.sizes = [*self.sizes[-99:], len(batch)]
        try:
            answers = self.answer([waiting.one for waiting in batch])
            if len(answers) != len(batch):
                raise RuntimeError(f"{len(answers)} answers to {len(batch)} requests")
        except Exception as error:
            if len(batch) == 1:
                batch[0].future.set_exception(error)
                return
            for waiting in batch:
                self._answer([waiting])
            return
        for waiting, answer in zip(batch, answers, strict=True):
            waiting.future.set_result(answer)
