"""Is the client still there, and how far is its answer? Two small things that every request carries along."""

import asyncio
from typing import Any

from stakes.gateway.body import Receive, Send


class Answering:
    """Sends, and knows whether an answer has begun and ended."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = self.over = False
        self.complete = False  # the last event of a stream is out: some clients hang up then, before its end
        self.status: int | None = None

    async def __call__(self, message: Any) -> None:
        """Send one message of the answer."""
        self.begun = True
        self.status = message.get("status", self.status)
        if not message.get("more_body", True):
            self.over = True
        await self._send(message)


class Presence:
    """Cancels the request's task when its client goes away; there is nobody left to answer."""

    def __init__(self, receive: Receive, answering: Answering) -> None:
        self._receive, self._answering = receive, answering
        self._task = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self.fired = False

    def start(self) -> None:
        """To be called once the body has been read."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._task is not None and not self._answering.over:  # over: the server says so by the same word
            self.fired = True
            self._task.cancel()

    def stop(self) -> None:
        """The answer is out: a client that leaves now is none of our business."""
        if self._watching is not None:
            self._watching.cancel()

    def forgive(self) -> None:
        """The cancellation was ours."""
        if self._task is not None:
            self._task.uncancel()
