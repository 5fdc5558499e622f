"""Models for workers on a Ray cluster: one that dies, one that opens its images, one that is not there."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.evaluation.oracle import Oracle

from stakes.errors import BadInput
from stakes.models.base import Answer, Request


@dataclass
class Mortal(Oracle):
    """Kills its own process at one question, as often as ``lives`` says, and writes down who loaded it."""

    diary: str = ""
    word: str = ""
    lives: int = 0

    def __post_init__(self) -> None:
        self.write("loaded")

    def write(self, what: str) -> None:
        with Path(self.diary).open("a") as file:
            file.write(f"{what} {os.getpid()}\n")

    def _answer(self, request: Request) -> Answer:
        if self.word and self.word in request.question:
            deaths = Path(self.diary).read_text().count("died")
            if deaths < self.lives:
                self.write("died")
                os.kill(os.getpid(), signal.SIGKILL)
        return super()._answer(request)


@dataclass
class Picky(Oracle):
    """Opens what it is asked about, as a real model does."""

    def _answer(self, request: Request) -> Answer:
        from stakes.vision.image.decode import open_image

        open_image(request.image)
        return super()._answer(request)


def gone() -> Oracle:
    """A model that is not on the worker's machine."""
    raise BadInput("no model at './gone': it is not a folder")


@dataclass
class Slow(Oracle):
    """Takes its time, and writes down on which node it answers."""

    diary: str = ""

    def _answer(self, request: Request) -> Answer:
        import time

        import ray

        with Path(self.diary).open("a") as file:
            file.write(f"{ray.get_runtime_context().get_node_id()}\n")
        time.sleep(0.1)
        return super()._answer(request)
