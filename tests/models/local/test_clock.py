"""A clock sums milliseconds by stage, and on a GPU it waits for nothing before it is read."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.models.fast.captured import fresh
from tests.models.tiny import picture

from stakes.models import Request
from stakes.models.base import Answer
from stakes.models.local.resources import Clock, with_host


class Event:
    """A CUDA event on a device whose work takes 5 ms a piece."""

    queued = 0
    waited = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self, stream: Any) -> None:
        assert stream == "queue"
        self.at = 5.0 * Event.queued

    def synchronize(self) -> None:
        Event.waited += 1

    def elapsed_time(self, end: "Event") -> float:
        return end.at - self.at


def test_a_gpu_is_timed_by_its_queue_and_waited_for_when_the_clock_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "queue")
    clock: Any = Clock(SimpleNamespace(type="cuda"))  # type: ignore[arg-type]
    for stage, pieces in (("encoder", 3), ("decode", 1), ("encoder", 2)):
        with clock(stage):
            Event.queued += pieces
    assert Event.waited == 0
    assert dict(clock.spent) == {"encoder": 25.0, "decode": 5.0}
    assert Event.waited == 3
    clock.spent["decode"] += 1.0
    assert dict(clock.spent) == {"encoder": 25.0, "decode": 6.0}
    assert Event.waited == 3


def test_what_is_in_no_stage_is_the_hosts_in_equal_shares() -> None:
    answers = [Answer("", 1, None, 1, False, timings={"encoder": ms}) for ms in (3.0, 1.0)]
    assert [one.timings for one in with_host(answers, 10.0)] == [
        {"encoder": 3.0, "host": 3.0},
        {"encoder": 1.0, "host": 3.0},
    ]
    assert [one.timings["host"] for one in with_host(answers, 3.9)] == [0.0, 0.0]
    assert with_host([], 1.0) == []


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_the_stages_of_all_answers_add_up_to_the_call(family: str) -> None:
    model = fresh(family, fast=True)
    requests = [Request(picture(150, 120, n), "What is it?", 6, "deletion") for n in range(5)]
    began = time.perf_counter()
    answers = model.answer(requests)
    took = 1000 * (time.perf_counter() - began)
    spent = sum(ms for answer in answers for ms in answer.timings.values())
    assert 0.9 * took <= spent <= took
