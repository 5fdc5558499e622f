"""``deploy/ray_serve.py`` on a real local Ray: two replicas with one ledger are one gateway.

Run by ``make test-ray``.
"""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway.gateways import ask, policy
from tests.gateway.ledger.servers import free_port
from tests.gateway.upstream import Upstream, serving

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: make test-ray"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own: files left to the collector, and what it deprecates
]
ROOT = Path(__file__).parents[2]
MEAN, BURST = 100, 1500


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Upstream]]:
    folder = tmp_path_factory.mktemp("ray")
    policy(mean_budget=MEAN, burst=BURST).save(folder / "policy.json")
    with serving() as upstream, pytest.MonkeyPatch.context() as patch:
        given = {"POLICY": folder / "policy.json", "UPSTREAM": upstream.url, "LEDGER": folder / "ledger.json"}
        env = {f"STAKES_{name}": str(value) for name, value in given.items()}
        env |= {"PYTHONPATH": os.pathsep.join([str(ROOT / "deploy"), *sys.path]), "RAY_USAGE_STATS_ENABLED": "0"}
        for name, value in env.items():
            patch.setenv(name, value)
        patch.syspath_prepend(str(ROOT / "deploy"))
        import ray
        from ray import serve

        options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "num_cpus": 4}
        ray.init(address="local", object_store_memory=80 << 20, runtime_env={"env_vars": env}, **options)
        port = free_port()
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        from ray_serve import app  # type: ignore[import-not-found]

        serve.run(app, route_prefix="/")
        try:
            yield f"http://127.0.0.1:{port}", upstream
        finally:
            serve.shutdown()
            ray.shutdown()


def test_replicas_fit_images_and_keep_one_total(served: tuple[str, Upstream]) -> None:
    address, upstream = served
    tokens = []
    for _ in range(24):
        answer = httpx.post(f"{address}/v1/chat/completions", json=ask(), trust_env=False, timeout=60)
        assert answer.json()["choices"][0]["message"]["content"] == "42"
        tokens.append(int(answer.headers["x-stakes-predicted-tokens"]))
    assert len(upstream.posts()) >= len(tokens)  # and the probes of both
    ahead = [sum(tokens[: n + 1]) - MEAN * (n + 1) for n in range(len(tokens))]
    assert MEAN < max(ahead) <= BURST
    shown = {httpx.get(f"{address}/metrics", trust_env=False).text for _ in range(6)}
    assert any('stakes_controller{name="ledger_processes"} 2.0' in text for text in shown)


def test_streams_pass(served: tuple[str, Upstream]) -> None:
    address, _ = served
    body = ask(stream=True)
    with httpx.stream("POST", f"{address}/v1/chat/completions", json=body, trust_env=False, timeout=60) as answer:
        assert answer.headers["x-stakes-tier"] == "high"
        assert "".join(answer.iter_text()).endswith("data: [DONE]\n\n")
