"""While a batch is answered, the images of the next are read: the same log, errors at their own batch, one ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.oracle import Oracle
from tests.evaluation.runs import facts, go

from stakes.data.sample import Sample
from stakes.errors import UnreadableImage
from stakes.evaluation.outcome_log import read_outcomes
from stakes.models.base import Answer, Request


def watched(samples: Sequence[Sample], loading: Callable[[Sample], None]) -> list[Sample]:
    """The samples; ``loading`` is called before each image is read."""

    def with_watch(one: Sample) -> Sample:
        def load() -> Any:
            loading(one)
            return one.load()

        return replace(one, load=load)

    return [with_watch(one) for one in samples]


@dataclass
class Device(Oracle):
    """An oracle that is busy until ``ready`` is set, and notes what had been read and announced when it began."""

    ready: threading.Event = field(default_factory=threading.Event)
    announced: list[list[str | None]] = field(default_factory=list)

    def open_ahead(self, requests: Sequence[Request]) -> None:
        self.announced.append([request.sample for request in requests])

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        if not self.batches:
            assert self.ready.wait(20), "the next batch was not read while this one was answered"
        return super().answer(requests)


def test_the_next_batch_is_read_while_this_one_is_answered(samples: list[Sample], tmp_path: Path) -> None:
    model, read, plain = Device(), list[str](), tmp_path / "plain.jsonl"

    def loading(sample: Sample) -> None:
        read.append(sample.document)
        if len(read) == 3:  # two images fill the first batch
            model.ready.set()

    go(model, watched(samples, loading), tmp_path / "log.jsonl", grid=(32,))
    go(Oracle(), samples, plain, grid=(32,))
    assert facts(tmp_path / "log.jsonl") == facts(plain)
    assert model.announced == [[request.sample for request in batch] for batch in model.batches]
    assert len(read) == 6


def test_no_more_than_one_batch_is_read_ahead(samples: list[Sample], tmp_path: Path) -> None:
    read, seen = list[str](), list[int]()

    class Slow(Oracle):
        def answer(self, requests: Sequence[Request]) -> list[Answer]:
            seen.append(len(read))
            return super().answer(requests)

    go(Slow(), watched(samples, lambda one: read.append(one.document)), tmp_path / "log.jsonl", grid=(32,))
    assert len(seen) == 3
    assert all(count <= 2 * (batch + 2) for batch, count in enumerate(seen))


def test_an_image_that_cannot_be_read_stops_the_run_at_its_own_batch(samples: list[Sample], tmp_path: Path) -> None:
    bad, model, log = samples[-1].document, Oracle(), tmp_path / "log.jsonl"

    def loading(sample: Sample) -> None:
        if sample.document == bad:
            raise UnreadableImage(f"{bad} is damaged")

    with pytest.raises(UnreadableImage, match="is damaged"):
        go(model, watched(samples, loading), log, grid=(32,))
    assert len(model.batches) == 2  # of three
    assert len(read_outcomes(log)) == 16
    assert not any(thread.name.startswith("stakes-next-batch") for thread in threading.enumerate())
    assert go(model, samples, log, grid=(32,)).answered == 8  # and goes on from there


def test_an_error_of_the_model_leaves_no_thread_behind(samples: list[Sample], tmp_path: Path) -> None:
    class Broken(Oracle):
        def answer(self, _: Sequence[Request]) -> list[Answer]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(Broken(), samples, tmp_path / "log.jsonl")
    assert not any(thread.name.startswith("stakes-next-batch") for thread in threading.enumerate())
