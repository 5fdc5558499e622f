"""docs/gateway.md: every option, header, metric and path that it names exists, and its example runs."""

import io
import json
import re
import shlex
import shutil
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import httpx
import pytest
from tests.docs.site import blocks, read
from tests.gateway.gateways import ask, encoded, gateway, page
from tests.gateway.upstream import Upstream
from typer.main import get_command

from stakes.cli import app

TEXT = (Path(__file__).parents[2] / "docs/gateway.md").read_text("utf-8")


def _options(command: str) -> set[str]:
    found = get_command(app).commands[command]  # type: ignore[attr-defined]
    return {name for one in found.params for name in (*one.opts, *one.secondary_opts)}


@pytest.mark.parametrize("line", re.findall(r"^stakes .+$", TEXT.replace("\\\n", ""), re.MULTILINE))
def test_every_command_line_is_one(line: str) -> None:
    command = shlex.split(line)[1]
    used = {word for word in shlex.split(line) if word.startswith("--")}
    assert used <= _options(command), line


def test_every_option_in_the_text_exists() -> None:
    used = set(re.findall(r"`(--[a-z-]+)", TEXT))
    of_vllm = {"--api-key", "--mm-processor-kwargs", "--trust-request-mm-kwargs", "--enable-prompt-tokens-details"}
    of_engines = of_vllm | {"--mm-process-config"}
    assert len(used) > 12
    assert used - of_engines <= _options("serve") | _options("calibrate") | _options("doctor")


UNSURE = {"x-stakes-attempts", "x-stakes-confidence", "x-stakes-review"}  # of tiers with thresholds


def test_every_header_and_metric_is_documented(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url) as front:
        headers = http.post(f"{front.base_url}/chat/completions", json=ask()).headers
        there = set(front.app.state.metrics.registry._names_to_collectors)
        for path in ("/healthz", "/readyz", "/metrics", "/stakes/state", "/"):
            assert http.get(front.address + path).status_code == 200
    out = TEXT.split("| header out |")[1].split("Errors have")[0]
    sent = {name for name in headers if name.startswith("x-stakes-")}
    seldom = {"x-stakes-pages", "x-stakes-box", *UNSURE}  # with PDFs, --trim, thresholds
    assert set(re.findall(r"`(x-stakes-[a-z-]+)`", out)) == sent | seldom
    named = set(re.findall(r"`(stakes_\w+)[`{]", TEXT))
    assert named <= there
    assert {one for one in there if one.endswith("_total")} <= named  # no counter is left out


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_the_request_for_vllm_goes_through_with_its_key(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(read("docs/gateway.md"))
    exec(compile(next(b.text for b in found if b.language == "python" and not b.mark), "gateway.md", "exec"), {})
    keys = next(b.text for b in found if b.language == "text").split()
    line = next(one for b in found for one in b.lines if one.startswith("curl") and "request.json" in one)
    with gateway(upstream.url, client_keys=tuple(keys)) as front:
        words = shlex.split(line.replace("http://127.0.0.1:8080", front.address))
        answer, refused = (
            json.loads(subprocess.run(one, capture_output=True, timeout=20, check=True).stdout)
            for one in (words, [word.replace(keys[0], "no-key-of-ours") for word in words])
        )
    assert answer["choices"][0]["message"]["content"] == "42"
    assert refused["error"]["code"] == "invalid_api_key"


def test_the_python_example_runs(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("page.png").write_bytes(encoded(page()))
    found = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert found
    with gateway(upstream.url) as front, redirect_stdout(io.StringIO()) as out:
        code = found[1].replace("http://127.0.0.1:8080", front.address).replace('open("page.png", "rb").read()', "PAGE")
        exec(compile(code, "gateway.md", "exec"), {"PAGE": Path("page.png").read_bytes()})
    answer, tier, tokens = out.getvalue().splitlines()
    assert (answer, tier) == ("42", 'high keyword "total"')
    assert re.fullmatch(r"1260 to \d+", tokens)
