"""The vLLM that is tested against: the embedded reader, at most 200 tokens a step, so that images are cut in chunks."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.gateway.engines import free_port, vllm
from tests.vllm.servers import TRUST, Server, with_plugin_and_selector


@pytest.fixture(scope="session")
def script(request: pytest.FixtureRequest) -> str:
    given = request.config.getoption("--engine")
    if not given:
        pytest.skip("needs a vLLM: --engine PATH of a command that serves CHECKPOINT PORT")
    return str(given)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin, and a selector of another package."""
    return with_plugin_and_selector(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def server(script: str, site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = (TRUST, "--max-num-batched-tokens", "200")
    with vllm(script, free_port(), tmp_path_factory.mktemp("vllm") / "log", *options, site=site) as url:
        yield Server(url)
