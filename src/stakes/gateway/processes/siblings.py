"""The other processes of one gateway: each answers the others' questions on a socket in a folder of their own.

    siblings = Siblings(folder, index=0, count=4)
    async with siblings.answering(lambda question: …):
        reports = await siblings.ask({"what": "report"})

A question and its answer are one JSON value each. A process that does not answer in time is left out. ``keep`` stores
what a process has counted, for the time after its end.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANSWER_S = 5.0  # half of what Prometheus waits for by default
_LINE = 1 << 16


@dataclass(frozen=True)
class Siblings:
    """The processes of one gateway, as one of them sees the others. ``starts``: how often this one was started."""

    folder: Path
    index: int
    count: int
    starts: int = 1

    def _socket(self, index: int) -> str:
        return str(self.folder / f"{index}.sock")

    @property
    def others(self) -> list[int]:
        """The numbers of the others."""
        return [index for index in range(self.count) if index != self.index]

    @asynccontextmanager
    async def answering(self, answer: Callable[[Any], Any]) -> AsyncIterator[None]:
        """Answer questions for as long as the block lasts."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, ValueError):
                writer.write(json.dumps(answer(json.loads(await reader.readline()))).encode())
                await writer.drain()
            writer.close()

        path = self._socket(self.index)
        with suppress(FileNotFoundError):  # of a process that was killed
            os.unlink(path)
        server = await asyncio.start_unix_server(connected, path, limit=_LINE)
        try:
            yield
        finally:
            server.close()
            with suppress(FileNotFoundError):
                os.unlink(path)

    async def ask(self, question: Any, only: int | None = None) -> list[Any]:
        """The answers of all others, or of one, that answer in time."""
        asked = self.others if only is None else [only]
        answers = await asyncio.gather(*(self._ask(index, question) for index in asked))
        return [answer for answer in answers if answer is not None]

    async def _ask(self, index: int, question: Any) -> Any:
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(self._socket(index))
                try:
                    writer.write(json.dumps(question).encode() + b"\n")
                    return json.loads(await reader.read())
                finally:
                    writer.close()
        except (OSError, ValueError, TimeoutError):
            return None

    def keep(self, counted: Any) -> None:
        """Store what this process has counted."""
        path = self.folder / f"{os.getpid()}.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(counted), encoding="utf-8")
        part.replace(path)

    def ended(self, living: set[int]) -> list[Any]:
        """What was kept by processes other than these."""
        files = [path for path in self.folder.glob("*.json") if path.stem.isdecimal() and int(path.stem) not in living]
        return [json.loads(path.read_text(encoding="utf-8")) for path in files]
