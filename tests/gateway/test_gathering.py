"""What comes together is answered together, once, and a bad one harms nobody else."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from stakes.gateway.local_server.batching import Full, Gathering


def test_what_waits_while_a_batch_is_answered_becomes_the_next_batch() -> None:
    go, batches = threading.Event(), list[list[int]]()

    def answer(asks: Sequence[int]) -> list[int]:
        batches.append(list(asks))
        go.wait(10)
        return [-ask for ask in asks]

    gathering = Gathering(answer, most=3, wait_s=0.0)
    first = gathering.submit(0)
    while not batches:
        pass
    futures = [gathering.submit(n) for n in range(1, 6)]
    assert futures[1].cancel(), "the client went away"
    go.set()
    assert first.result(10) == 0
    assert [future.result(10) for i, future in enumerate(futures) if i != 1] == [-1, -3, -4, -5]
    gathering.close()
    assert batches == [[0], [1, 3], [4, 5]]
    assert gathering.sizes == [1, 2, 2]


def test_the_first_of_a_batch_waits_a_moment_for_others() -> None:
    gathering: Gathering[int, int] = Gathering(lambda asks: list(asks), most=4, wait_s=30.0)
    futures = [gathering.submit(n) for n in range(4)]
    assert [future.result(10) for future in futures] == [0, 1, 2, 3], "a full batch does not wait"
    assert gathering.sizes == [4]
    gathering.submit(4)
    gathering.close()
    assert gathering.sizes == [4, 1], "closing does not wait either, and answers what is there"


def test_one_bad_request_fails_alone() -> None:
    def answer(asks: Sequence[int]) -> list[int]:
        if 2 in asks:
            raise ValueError("no twos")
        return list(asks)

    gathering = Gathering(answer, most=4, wait_s=30.0)
    futures = [gathering.submit(n) for n in range(4)]
    with pytest.raises(ValueError, match="no twos"):
        futures[2].result(10)
    assert [futures[n].result(10) for n in (0, 1, 3)] == [0, 1, 3]
    gathering.close()


def test_too_few_answers_are_an_error_and_never_somebody_elses() -> None:
    gathering: Gathering[int, int] = Gathering(lambda asks: list(asks)[1:], most=2, wait_s=30.0)
    futures = [gathering.submit(n) for n in range(2)]
    for future in futures:
        with pytest.raises(RuntimeError, match="0 answers to 1 requests"):
            future.result(10)
    gathering.close()


def test_more_than_may_wait_are_turned_away() -> None:
    go = threading.Event()
    gathering: Gathering[int, int] = Gathering(
        lambda asks: list(asks) if go.wait(10) else [], most=1, wait_s=0.0, waiting=2
    )
    futures = [gathering.submit(0)]
    while gathering.sizes != [1]:
        pass
    futures += [gathering.submit(1), gathering.submit(2)]
    with pytest.raises(Full, match="2 requests are waiting"):
        gathering.submit(3)
    go.set()
    assert [future.result(10) for future in futures] == [0, 1, 2]
    gathering.close()
