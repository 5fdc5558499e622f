"""Threads for image work, and the line before them: small work first, bounded, 503 when it is full.

workers = Workers(Limits(workers=2))
await workers.run_for(image.decode_bytes, fit_image, image, 256, "qwen2.5-vl", "png")
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from threading import Event, RLock
from typing import Any, ParamSpec, TypeVar

from stakes.gateway.proxy.errors import Refused
from stakes.gateway.settings import Limits

P = ParamSpec("P")
T = TypeVar("T")

_BYTES_PER_S = 20e6  # of work in line: a job of 20 MB goes after all that arrive within the next second


@dataclass(order=True)
class _Job:
    """Work in line. ``turn``: when it arrived, and later by the time that its bytes may take; the earliest is next."""

    turn: float
    number: int
    size: int = field(compare=False)
    work: Callable[[], Any] = field(compare=False)
    result: Future[Any] = field(compare=False, default_factory=Future)


class Workers:
    """Threads for image work, with a bounded line that small work passes through first; 503 when saturated.

    Pillow releases the GIL while it decodes, resizes and encodes, so threads are enough. A thread cannot be stopped:
    work beyond its time limit still counts until it ends, which the limits on pixels and scans keep short. Large work
    leaves one thread to small work, and all of it in line is bounded, so that it can neither delay ordinary pages nor
    fill the memory.
    """

    def __init__(self, limits: Limits) -> None:
        self._pool = ThreadPoolExecutor(limits.workers, thread_name_prefix="stakes-fit")
        self._limits, self._lock, self._number = limits, RLock(), count()
        self._line: list[_Job] = []
        self._running = self._running_large = 0
        self.inside = self.large_bytes = 0  # jobs running or waiting, and the bytes of the large ones

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``work`` returns or raises; 503 where the line is full or the time limit is over."""
        return await self.run_for(0, work, *args, **kwargs)

    async def run_for(self, size: int, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """``run`` for work that reads or decodes ``size`` bytes; too much large work is 503, failing open or not."""
        if self.inside >= self._limits.waiting:
            raise Refused(503, "busy", "all workers are busy; try again in a moment", passable=True, retry_after=1)
        large = size if self._is_large(size) else 0
        if self.large_bytes and self.large_bytes + large > self._limits.open_decode_bytes:
            message = "too many large images are being decoded; try again in a moment, or send smaller ones"
            raise Refused(503, "too_many_open_pixels", message, retry_after=2)
        turn = time.monotonic() + size / _BYTES_PER_S
        job = _Job(turn, next(self._number), size, lambda: work(*args, **kwargs))
        with self._lock:
            self.inside, self.large_bytes = self.inside + 1, self.large_bytes + large
            self._line.append(job)
            self._start()
        try:
            async with asyncio.timeout(self._limits.fit_s) as limit:
                return await asyncio.wrap_future(job.result)
        except TimeoutError:
            if not limit.expired():
                raise
            message = f"the images were not ready in {self._limits.fit_s:g} s; send smaller ones"
            raise Refused(503, "fit_timeout", message, passable=not large) from None  # hostile work is large
        finally:
            self._leave(job)

    async def run_images(self, size: int, work: Callable[..., T], /, *args: Any) -> T:
        """``run_for``, with a last argument: an event that is set once nobody waits, so that work on images can end."""
        abandoned = Event()
        try:
            return await self.run_for(size, work, *args, abandoned)
        finally:
            abandoned.set()

    def close(self) -> None:
        """Accept no more work; running work may end."""
        for job in list(self._line):
            job.result.cancel()
            self._leave(job)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _leave(self, job: _Job) -> None:
        """Take a job out of the line that nobody waits for any more."""
        with self._lock:
            if job.result.cancelled() and job in self._line:
                self._line.remove(job)
                self._end(job)

    def _is_large(self, size: int) -> bool:
        return size > self._limits.small_decode_bytes

    def _start(self) -> None:
        """Start the next jobs in line while threads are free; the lock is held."""
        for job in sorted(self._line):
            if self._running >= self._limits.workers:
                return
            large = self._is_large(job.size)
            if large and self._running_large >= max(1, self._limits.workers - 1):
                continue
            self._line.remove(job)
            if job.result.set_running_or_notify_cancel():
                self._running, self._running_large = self._running + 1, self._running_large + large
                self._pool.submit(self._work, job)
            else:
                self._end(job)

    def _work(self, job: _Job) -> None:
        try:
            deliver = partial(job.result.set_result, job.work())
        except BaseException as error:
            deliver = partial(job.result.set_exception, error)
        with self._lock:
            self._running -= 1
            self._running_large -= self._is_large(job.size)
            self._end(job)
            self._start()
        deliver()

    def _end(self, job: _Job) -> None:
        self.inside -= 1
        self.large_bytes -= job.size if self._is_large(job.size) else 0
