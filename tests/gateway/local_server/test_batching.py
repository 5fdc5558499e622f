"""Requests that arrive together share a batch, each is answered once, and a bad one fails alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from stakes.gateway.local_server.batching import DynamicBatcher, QueueFull


def test_requests_that_wait_during_a_batch_become_the_next_batch() -> None:
    go, batches = threading.Event(), list[list[int]]()

    def answer(requests: Sequence[int]) -> list[int]:
        batches.append(list(requests))
        go.wait(10)
        return [-request for request in requests]

    batcher = DynamicBatcher(answer, most=3, wait_s=0.0)
    first = batcher.submit(0)
    while not batches:
        pass
    futures = [batcher.submit(n) for n in range(1, 6)]
    assert futures[1].cancel(), "the client went away"
    go.set()
    assert first.result(10) == 0
    assert [future.result(10) for i, future in enumerate(futures) if i != 1] == [-1, -3, -4, -5]
    batcher.close()
    assert batches == [[0], [1, 3], [4, 5]]
    assert batcher.sizes == [1, 2, 2]


def test_the_first_of_a_batch_waits_a_moment_for_others() -> None:
    batcher: DynamicBatcher[int, int] = DynamicBatcher(lambda requests: list(requests), most=4, wait_s=30.0)
    futures = [batcher.submit(n) for n in range(4)]
    assert [future.result(10) for future in futures] == [0, 1, 2, 3], "a full batch does not wait"
    assert batcher.sizes == [4]
    batcher.submit(4)
    batcher.close()
    assert batcher.sizes == [4, 1], "closing does not wait either, and answers what is there"


def test_one_bad_request_fails_alone() -> None:
    def answer(requests: Sequence[int]) -> list[int]:
        if 2 in requests:
            raise ValueError("no twos")
        return list(requests)

    batcher = DynamicBatcher(answer, most=4, wait_s=30.0)
    futures = [batcher.submit(n) for n in range(4)]
    with pytest.raises(ValueError, match="no twos"):
        futures[2].result(10)
    assert [futures[n].result(10) for n in (0, 1, 3)] == [0, 1, 3]
    batcher.close()


def test_too_few_answers_are_an_error_and_never_go_to_another_request() -> None:
    batcher: DynamicBatcher[int, int] = DynamicBatcher(lambda requests: list(requests)[1:], most=2, wait_s=30.0)
    futures = [batcher.submit(n) for n in range(2)]
    for future in futures:
        with pytest.raises(RuntimeError, match="0 answers to 1 requests"):
            future.result(10)
    batcher.close()


def test_requests_beyond_the_queue_are_refused() -> None:
    go = threading.Event()
    batcher: DynamicBatcher[int, int] = DynamicBatcher(
        lambda requests: list(requests) if go.wait(10) else [], most=1, wait_s=0.0, waiting=2
    )
    futures = [batcher.submit(0)]
    while batcher.sizes != [1]:
        pass
    futures += [batcher.submit(1), batcher.submit(2)]
    with pytest.raises(QueueFull, match="2 requests are waiting"):
        batcher.submit(3)
    go.set()
    assert [future.result(10) for future in futures] == [0, 1, 2]
    batcher.close()
