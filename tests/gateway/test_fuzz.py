"""The OpenAPI description matches the app, and a fuzzer that follows it finds no 500 (``make test-fuzz``)."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway.gateways import Gateway, ask, calibrated, encoded, gateway, page, url_of
from tests.gateway.upstream import until

ROOT = Path(__file__).parents[2]
SCHEMATHESIS = ROOT / ".venv-fuzz/bin/schemathesis"
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")


def test_the_description_names_every_path_and_header(front: Gateway, http: httpx.Client) -> None:
    about = http.get(f"{front.address}/openapi.json").json()
    assert (about["openapi"], about["info"]["version"]) == ("3.1.0", version("stakes"))
    routes = {route.path for route in front.app.routes if "{" not in route.path}
    page_files = {"/", "/stakes/dashboard.js", "/stakes/ask.js", "/stakes/dashboard.css"}
    read = {"/v1/chat/completions", "/v1/responses", "/v1/messages"}
    assert routes - page_files == set(about["paths"]) - read - {"/v1/models"}
    headers = http.post(f"{front.base_url}/chat/completions", json=ask()).headers
    described = about["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["headers"]
    seldom = {"x-stakes-box", "x-stakes-attempts", "x-stakes-confidence", "x-stakes-review"}  # --trim, thresholds
    assert {name for name in headers if name.startswith(("x-stakes-", "x-request-"))} | seldom == set(described)
    for path in set(about["paths"]) - read - {"/stakes/decide", "/stakes/filmstrip"}:
        reply = http.get(front.address + path)
        assert (
            reply.headers["content-type"].split(";")[0]
            in (about["paths"][path]["get"]["responses"][str(reply.status_code)]["content"])
        )


@pytest.fixture
def sturdy() -> Iterator[str]:
    """An upstream in a separate process that answers 400 to whatever it cannot read."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.gateway import free_port

    port = free_port()
    command = [sys.executable, str(ROOT / "benchmarks/soak_stub.py"), "--port", str(port)]
    with subprocess.Popen(command) as running:
        try:
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            running.kill()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/models", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.skipif(not SCHEMATHESIS.exists(), reason="needs Schemathesis: make test-fuzz")
@pytest.mark.parametrize("knobs", [{}, {"fail": "open", "shadow": 0.3}, {"mode": "observe", "actuator": "vllm"}])
def test_a_fuzzer_that_follows_it_finds_no_500(sturdy: str, tmp_path: Path, knobs: dict[str, Any]) -> None:
    assert until(lambda: answers(sturdy), 20)
    with gateway(sturdy, calibrated(), **knobs) as front:
        about = httpx.get(f"{front.address}/openapi.json", trust_env=False).json()
        # A random string is hardly ever an image: it may also choose real, truncated and unusual ones.
        whole = url_of(encoded(page(280, 392)))
        odd = [
            whole,
            url_of(encoded(page(56, 84), "JPEG"), "image/jpeg"),
            whole[:-40],
            "data:image/png;base64,",
            "file:///x",
        ]
        image = about["components"]["schemas"]["Image"]["properties"]
        image["url"] = {"anyOf": [{"enum": [*odd, "https://127.0.0.1/x.png"]}, image["url"]]}
        schema = tmp_path / "openapi.json"
        schema.write_text(json.dumps(about))
        command = [
            str(SCHEMATHESIS), "run", str(schema), "--url", front.address, "--checks", ",".join(CHECKS),
            "--max-examples", os.environ.get("EXAMPLES", "50"), "--seed", "1", "--no-color", "--mode", "all",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == 0, done.stdout[-6000:]
        assert sum(
            sample.value
            for family in front.app.state.metrics.requests.collect()
            for sample in family.samples
            if sample.labels.get("outcome") in ("fitted", "observed") and sample.name.endswith("_total")
        ), "no image was fitted: every request of the fuzzer was refused"
