"""Runs a gateway in several processes on one listening socket, and starts anew those that end.

    supervise(worker, listening, folder, count=4, ready=print)

``worker(listening, siblings)`` serves until it gets SIGTERM; it runs in processes of its own. SIGTERM and SIGINT end
all of them, SIGHUP reaches all of them. A process that is killed is started again, after a pause that grows while that
keeps happening. If the first start of one fails, all end with its error. If the supervisor is killed, they end, too.
"""

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from stakes.errors import BadInput, StakesError
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.processes.siblings import Siblings

Worker = Callable[[socket.socket, Siblings, Callable[[], None]], None]
LONGEST_PAUSE_S, SETTLED_S, START_S = 10.0, 20.0, 120.0


@dataclass
class _Process:
    index: int
    starts: int = 0
    running: BaseProcess | None = None
    pipe: Connection | None = None
    began: float = 0.0
    pause_s: float = 0.0
    due: float = 0.0
    ready: bool = field(default=False)


def supervise(
    worker: Worker, listening: socket.socket, folder: Path, count: int, ready: Callable[[], None], end_s: float
) -> None:
    """Run so many processes until a signal ends them; ``ready`` is called once all serve; ``end_s`` to end."""
    if not hasattr(socket, "AF_UNIX"):
        raise BadInput("several processes need Unix sockets, which this system does not have; leave --processes out")
    Supervisor(worker, listening, folder, [_Process(index) for index in range(count)]).run(ready, end_s)


class Supervisor:
    """The processes of one gateway."""

    def __init__(self, worker: Worker, listening: socket.socket, folder: Path, processes: list[_Process]) -> None:
        self._worker, self._listening, self._folder, self._processes = worker, listening, folder, processes
        self._context, self._log, self._ending = multiprocessing.get_context("spawn"), Log(), False

    def run(self, ready: Callable[[], None], end_s: float) -> None:
        """Until a signal, or until a process fails to start the first time."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signalled)
        announced = False
        try:
            while not self._ending:
                self._start_due()
                self._listen()
                if not announced and all(one.ready for one in self._processes):
                    announced = True
                    ready()
        finally:
            self._end(end_s)

    def _signalled(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._send(signal.SIGHUP)
        else:
            self._ending = True

    def _send(self, number: int) -> None:
        for one in self._processes:
            if one.running is not None and one.running.pid is not None and one.running.is_alive():
                os.kill(one.running.pid, number)

    def _start_due(self) -> None:
        for one in self._processes:
            if one.running is None and time.monotonic() >= one.due:
                one.starts += 1
                one.pipe, theirs = self._context.Pipe()
                siblings = Siblings(self._folder, one.index, len(self._processes), one.starts)
                arguments = (self._worker, self._listening, siblings, theirs)
                one.running = self._context.Process(target=_work, args=arguments, name=f"stakes-{one.index}")
                one.running.start()
                theirs.close()
                one.began, one.ready = time.monotonic(), False

    def _listen(self) -> None:
        """Wait a moment for messages and ends."""
        pipes = {one.pipe: one for one in self._processes if one.pipe is not None}
        due = [one.due for one in self._processes if one.running is None]
        pause = max(0.0, min([0.5, *(at - time.monotonic() for at in due)]))
        for pipe in wait(list(pipes), timeout=pause):
            self._heard(pipes[pipe])  # type: ignore[index]

    def _heard(self, one: _Process) -> None:
        assert one.pipe is not None
        assert one.running is not None
        try:
            message = one.pipe.recv()
        except (EOFError, OSError):
            self._ended(one)
            return
        if message is None:
            one.ready = True
        elif one.starts == 1:
            raise BadInput(message)
        else:
            self._log.write("a process could not start", logging.ERROR, process=one.index, reason=message)

    def _ended(self, one: _Process) -> None:
        assert one.pipe is not None
        assert one.running is not None
        one.running.join()
        one.pipe.close()
        status, one.running, one.pipe = one.running.exitcode, None, None
        if self._ending:
            return
        if not one.ready and one.starts == 1:
            raise StakesError(f"process {one.index} of the gateway did not start (status {status}); see the log")
        lived = time.monotonic() - one.began
        one.pause_s = 0.0 if lived > SETTLED_S else min(LONGEST_PAUSE_S, max(0.2, 2 * one.pause_s))
        one.due = time.monotonic() + one.pause_s
        event = "a process of the gateway ended and is started again; what it held of the budget counts as spent"
        self._log.write(event, logging.ERROR, process=one.index, status=status, starts=one.starts)

    def _end(self, end_s: float) -> None:
        self._ending = True
        self._send(signal.SIGTERM)
        ends = time.monotonic() + end_s
        for one in self._processes:
            if one.running is not None:
                one.running.join(max(0.0, ends - time.monotonic()))
                if one.running.is_alive():
                    one.running.kill()
                    one.running.join()


def _work(worker: Worker, listening: socket.socket, siblings: Siblings, pipe: Connection) -> None:
    """Runs in a process of its own."""
    threading.Thread(target=_end_with_supervisor, args=[pipe], daemon=True, name="stakes-supervised").start()
    try:
        worker(listening, siblings, lambda: pipe.send(None))
    except StakesError as error:
        pipe.send(str(error))
        raise SystemExit(2) from None


def _end_with_supervisor(pipe: Connection) -> None:
    """The supervisor never writes: the pipe can only end, and it does when the supervisor is killed."""
    wait([pipe])
    os.kill(os.getpid(), signal.SIGTERM)
