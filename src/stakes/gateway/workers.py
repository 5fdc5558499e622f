"""Where is the slow work done? In a few threads off the event loop, with a time limit and a full house that says so.

Pillow lets go of the interpreter while it decodes, resizes and encodes, so threads are enough. A thread cannot be
stopped: work that ran past its time keeps its place until it ends, which the pixel and scan limits keep short, and
new work is refused once ``waiting`` places are taken.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from stakes.gateway.refusal import Refused
from stakes.gateway.settings import Limits

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """A bounded pool; used from one event loop."""

    def __init__(self, limits: Limits) -> None:
        self._pool = ThreadPoolExecutor(limits.workers, thread_name_prefix="stakes-fit")
        self._places, self._seconds = limits.waiting, limits.fit_s
        self.inside = 0  # pieces of work running or waiting

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``work`` returns or raises; 503 where nobody is free in time."""
        if self.inside >= self._places:
            raise Refused(503, "busy", "all workers are busy; try again in a moment", soft=True, retry_after=1)
        loop = asyncio.get_running_loop()
        self.inside += 1
        future = self._pool.submit(work, *args, **kwargs)
        future.add_done_callback(lambda _: _tell(loop, self._left))
        try:
            async with asyncio.timeout(self._seconds) as limit:
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Refused(
                503, "fit_timeout", f"the images were not ready in {self._seconds:g} s; send smaller ones", soft=True
            ) from None

    def close(self) -> None:
        """Take no more work; what runs is left to end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _left(self) -> None:
        self.inside -= 1


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:  # the loop has ended before the thread did
        return
