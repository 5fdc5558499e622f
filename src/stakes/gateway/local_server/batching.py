"""Dynamic batching: requests that arrive at the same time share one batch of the model.

    batcher = DynamicBatcher(answer_all, most=32)
    batcher.submit(request).result()

One thread takes what is queued, up to ``most``, and waits ``wait_s`` for others to join the first of a batch; while a
batch runs, the next one fills. A batch that fails is run again one by one, so that a bad request fails alone. A request
that is cancelled before its turn (the client disconnected) is never run.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from stakes.errors import StakesError

A = TypeVar("A")
B = TypeVar("B")


class QueueFull(StakesError):
    """As many requests are waiting as may wait."""


class DynamicBatcher(Generic[A, B]):
    """``answer`` maps a list of requests to as many answers; it is called from one thread only."""

    def __init__(
        self, answer: Callable[[Sequence[A]], list[B]], *, most: int = 32, wait_s: float = 0.005, waiting: int = 512
    ) -> None:
        self.answer, self.most, self.wait_s = answer, most, wait_s
        self.sizes: list[int] = []  # of the last 100 batches, newest last
        self._queue: queue.Queue[tuple[A, Future[B]] | None] = queue.Queue(waiting)
        self._thread = threading.Thread(target=self._run, daemon=True, name="stakes-batcher")
        self._thread.start()

    def submit(self, request: A) -> Future[B]:
        """Queue a request; returns the future of its answer."""
        future: Future[B] = Future()
        try:
            self._queue.put_nowait((request, future))
        except queue.Full:
            raise QueueFull(f"{self._queue.maxsize} requests are waiting already") from None
        return future

    def close(self) -> None:
        """Answer what is queued, then stop the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            batch, until = [entry], time.monotonic() + self.wait_s
            while len(batch) < self.most:
                try:
                    entry = self._queue.get(timeout=max(0.0, until - time.monotonic()))
                except queue.Empty:
                    break
                if entry is None:
                    break
                batch.append(entry)
            self._answer([(request, future) for request, future in batch if future.set_running_or_notify_cancel()])
            if entry is None:
                return

    def _answer(self, batch: list[tuple[A, Future[B]]]) -> None:
        if not batch:
            return
        self.sizes = [*self.sizes[-99:], len(batch)]
        try:
            answers = self.answer([request for request, _ in batch])
            if len(answers) != len(batch):
                raise RuntimeError(f"{len(answers)} answers to {len(batch)} requests")
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
            else:
                for one in batch:
                    self._answer([one])
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            future.set_result(answer)
