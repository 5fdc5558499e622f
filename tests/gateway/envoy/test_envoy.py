"""A real Envoy with ``stakes envoy`` as its external processor does what ``stakes serve`` does."""

import base64
import gzip
import importlib.util
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import yaml
from PIL import Image
from tests.gateway.gateways import ask
from tests.gateway.ledger.servers import free_port
from tests.gateway.processes import process
from tests.gateway.upstream import Upstream, image_sizes, serving, until

FOUND = importlib.util.find_spec("grpc") and importlib.util.find_spec("envoy")
PLACES = (FOUND.submodule_search_locations if FOUND else None) or []
BINARY = next((path for one in PLACES if (path := Path(one) / "_bin" / "envoy").exists()), None)
if BINARY is None:
    words = "needs grpcio, xds-protos and a real Envoy: make test-deploy"
    pytest.skip(words, allow_module_level=True)
CONFIG = Path(__file__).parents[3] / "deploy" / "envoy" / "envoy.yaml"
BUDGETS = ["--budget", "high=256", "--budget", "low=64", "--mean-budget", "200", "--burst", "2000"]


@dataclass
class Both:
    """The same upstream behind Envoy and behind ``serve``."""

    upstream: Upstream
    envoy: str
    serve: str
    processor: "subprocess.Popen[str]"


@contextmanager
def running_envoy(folder: Path, upstream: str, processor: int) -> Iterator[str]:
    """The example's own configuration with other ports."""
    config, port = yaml.safe_load(CONFIG.read_text("utf-8")), free_port()
    config["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"] = port
    ports = {"vllm": int(upstream.rpartition(":")[2].partition("/")[0]), "stakes": processor}
    for cluster in config["static_resources"]["clusters"]:
        endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
        endpoint["address"]["socket_address"]["port_value"] = ports[cluster["name"]]
    (folder / "envoy.json").write_text(json.dumps(config))
    command = [str(BINARY), "-c", str(folder / "envoy.json"), "--concurrency", "1", "--use-dynamic-base-id"]
    with (folder / "envoy.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as running:
        try:
            assert until(lambda: _answers(f"http://127.0.0.1:{port}/v1/models"), 30), (folder / "envoy.log").read_text()
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            running.kill()


def _answers(address: str) -> bool:
    try:
        return httpx.get(address, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("envoy")
    with (
        serving() as upstream,
        process(*BUDGETS, command="envoy") as (processor, about),
        process(*BUDGETS, "--upstream", upstream.url) as (_, served),
        running_envoy(folder, upstream.url, int(str(about["address"]).rpartition(":")[2])) as address,
    ):
        yield Both(upstream, address, str(served["address"]), processor)


@contextmanager
def through(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=address, api_key="x", max_retries=0, timeout=60) as client:
        yield client


def own(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("x-stakes-")}


def test_headers_and_fitted_images_are_those_of_serve(both: Both) -> None:
    for question in ("What is the total?", "Is there a logo?", "What is the IBAN?"):
        found = []
        for address in (both.envoy, both.serve):
            with through(address) as client:
                answer = client.chat.completions.with_raw_response.create(**ask(question))
            assert answer.parse().choices[0].message.content == "42"
            found.append((own(answer.headers), both.upstream.last.json, both.upstream.last.header("content-length")))
        assert found[0] == found[1]
        assert found[0][0]["x-stakes-outcome"] == "fitted"


def test_streams_pass(both: Both) -> None:
    with through(both.envoy) as client:
        stream = client.chat.completions.with_raw_response.create(**ask(), stream=True)
        assert own(stream.headers)["x-stakes-tier"] == "high"
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream.parse() if chunk.choices) == "42"


def test_an_image_of_five_megabytes_passes(both: Both) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1300, 1300, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "PNG")
    assert len(file.getvalue()) > 5_000_000
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    with through(both.envoy) as client:
        answer = client.chat.completions.with_raw_response.create(**ask("What is the total?", url))
    assert int(answer.headers["x-stakes-native-tokens"]) > 2000
    ((width, height),) = image_sizes(both.upstream.last.json)
    assert width * height < 300 * 28 * 28


def test_hints_are_read_and_not_sent_on(both: Both) -> None:
    with through(both.envoy) as client:
        answer = client.chat.completions.with_raw_response.create(**ask(), extra_headers={"x-stakes-tier": "low"})
    assert answer.headers["x-stakes-tier"] == "low"
    assert both.upstream.last.header("x-stakes-tier") is None


def test_refusals_are_those_of_serve(both: Both) -> None:
    found = []
    for address in (both.envoy, both.serve):
        with through(address) as client, pytest.raises(openai.APIStatusError) as error:
            client.chat.completions.create(**ask("What is the total?", "data:image/png;base64,AAAA"))
        found.append((error.value.status_code, error.value.body))
    assert found[0] == found[1]


def test_gzip_is_read_as_by_serve(both: Both) -> None:
    packed, found = gzip.compress(json.dumps(ask()).encode()), []
    for address in (both.envoy, both.serve):
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        answer = httpx.post(f"{address}/chat/completions", content=packed, headers=headers, trust_env=False, timeout=60)
        assert answer.status_code == 200
        found.append((both.upstream.last.json, both.upstream.last.header("content-encoding")))
    assert found[0] == found[1]


def test_text_passes_as_it_is(both: Both) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
    with through(both.envoy) as client:
        answer = client.chat.completions.with_raw_response.create(**body)  # type: ignore[call-overload]
    assert own(answer.headers) == {}
    assert both.upstream.last.json == body


def test_the_processor_is_one_of_the_commands_that_name_what_they_lack() -> None:
    script = "import sys; sys.modules['grpc'] = None; from stakes.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script, "envoy", *BUDGETS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "pip install 'stakes[gateway,envoy]'" in done.stderr
