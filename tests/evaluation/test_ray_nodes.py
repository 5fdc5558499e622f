"""Answering over two Ray nodes of which one is killed in the middle: nothing is lost or doubled (``make test-ray``)."""

import os
import threading
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.oracle import Oracle
from tests.evaluation.runs import GRID, facts
from tests.evaluation.workers import Slow
from tests.gateway.upstream import until

from stakes.data.sample import Sample
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.ray import OverRay
from stakes.evaluation.runner import RunOptions, run

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: make test-ray"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own: files left to the collector, and what it deprecates
]


@pytest.fixture
def nodes() -> Iterator[tuple[Any, Any]]:
    """(a cluster of two nodes with a CPU each, the second node)."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.cluster_utils import Cluster

    memory = {"object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **memory})
    second = cluster.add_node(num_cpus=1, **memory)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster, second
    ray.shutdown()
    cluster.shutdown()


def test_a_node_killed_in_the_middle_loses_and_doubles_nothing(
    nodes: tuple[Any, Any], samples: list[Sample], tmp_path: Path
) -> None:
    cluster, second = nodes
    diary, assignments = tmp_path / "diary", [[budget] * len(samples) for budget in GRID]
    diary.touch()
    run(Oracle(), samples, assignments, Setting(), tmp_path / "plain.jsonl", RunOptions(batch_size=8))
    killed: list[bool] = []

    def kill() -> None:
        killed.append(until(lambda: second.node_id in diary.read_text(), 120))
        cluster.remove_node(second, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    over = OverRay(Oracle(), partial(_slow, str(diary)), 2)
    ran = run(Oracle(), samples, assignments, Setting(), tmp_path / "ray.jsonl", RunOptions(batch_size=8, workers=over))
    killer.join()
    assert killed == [True]
    assert len(set(diary.read_text().split())) == 2  # both nodes answered
    assert (ran.answered, ran.changed) == (72, 0)
    assert facts(tmp_path / "ray.jsonl") == facts(tmp_path / "plain.jsonl")


def _slow(diary: str) -> Slow:
    return Slow(diary=diary)
