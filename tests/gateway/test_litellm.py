"""The hook inside a real LiteLLM proxy, which runs in a separate process and environment.

make test-litellm
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.gateway.gateways import HIGH, LOW, ask, encoded, gateway, page, policy, url_of
from tests.gateway.upstream import Upstream, honest, image_sizes, serving, until

import stakes

LITELLM = Path(stakes.__file__).parents[2] / ".venv-litellm/bin/litellm"
pytestmark = pytest.mark.skipif(not LITELLM.exists(), reason="LiteLLM is not installed; run: make test-litellm")

CONFIG = """
model_list:
  - model_name: tiny
    litellm_params: {{model: openai/tiny, api_base: "{upstream}", api_key: sk-upstream}}
router_settings: {{num_retries: 0}}
litellm_settings: {{callbacks: stakes_hook.hook, num_retries: 0}}
"""
# The controller's state is served on another port, so that the test sees what was spent inside the process.
HOOK = """
import json, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from stakes.gateway.litellm import Stakes
hook = Stakes({policy!r}, fail="closed", watch_s=0.05)
class State(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(hook.served.rules.controller.state()).encode())
    def log_message(self, *_): pass
threading.Thread(target=HTTPServer(("127.0.0.1", {port}), State).serve_forever, daemon=True).start()
"""


class Proxy:
    """A running proxy: ``url`` its base URL, ``state()`` the hook's controller, ``policy`` its file."""

    def __init__(self, url: str, state: str, policy_file: Path) -> None:
        self.url, self._state, self.policy = url, state, policy_file

    def state(self) -> dict[str, float]:
        found: dict[str, float] = httpx.get(self._state, timeout=10, trust_env=False).json()
        return found


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def up() -> Iterator[Upstream]:
    with serving() as one:
        yield one


@pytest.fixture(scope="module")
def proxy(up: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    home = tmp_path_factory.mktemp("litellm")
    policy().save(home / "policy.json")
    port, state = _port(), _port()
    (home / "config.yaml").write_text(CONFIG.format(upstream=up.url))
    (home / "stakes_hook.py").write_text(HOOK.format(policy=str(home / "policy.json"), port=state))
    command = [str(LITELLM), "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
    with (home / "log").open("w") as log, subprocess.Popen(
        command, cwd=home, env=environment, stdout=log, stderr=subprocess.STDOUT
    ) as running:  # fmt: skip
        try:
            ends = time.monotonic() + 180
            while time.monotonic() < ends:
                assert running.poll() is None, (home / "log").read_text()[-3000:]
                try:
                    if httpx.get(f"http://127.0.0.1:{port}/health/liveliness", trust_env=False).status_code == 200:
                        break
                except httpx.HTTPError:
                    time.sleep(0.3)
            else:
                pytest.fail((home / "log").read_text()[-3000:])
            yield Proxy(f"http://127.0.0.1:{port}/v1", f"http://127.0.0.1:{state}", home / "policy.json")
        finally:
            running.terminate()
            running.wait(20)


@pytest.fixture
def client(proxy: Proxy) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=proxy.url, api_key="sk-any", max_retries=0, timeout=60) as one:
        yield one


def _sent(up: Upstream) -> int:
    ((width, height),) = image_sizes(up.posts()[-1].json)
    return width * height // 784


def test_it_decides_as_the_gateway_does(proxy: Proxy, client: openai.OpenAI, up: Upstream) -> None:
    with gateway(up.url) as front, openai.OpenAI(base_url=front.base_url, api_key="k", max_retries=0) as other:
        for question in ("What is the total?", "What colour is the sky?"):
            ours = other.chat.completions.with_raw_response.create(**ask(question))
            sent = image_sizes(up.posts()[-1].json)
            theirs = client.chat.completions.with_raw_response.create(**ask(question))
            assert theirs.parse().choices[0].message.content == "42"
            assert image_sizes(up.posts()[-1].json) == sent
            names = [name for name in ours.headers if name.startswith("x-stakes-")]
            assert len(names) >= 8
            assert {name: theirs.headers.get(name) for name in names} == {name: ours.headers[name] for name in names}


def test_answered_requests_are_spent_and_refused_ones_are_not(
    proxy: Proxy, client: openai.OpenAI, up: Upstream
) -> None:
    before = proxy.state()
    client.chat.completions.create(**ask())
    spent = _sent(up)
    assert proxy.state()["tokens_spent"] == before["tokens_spent"] + spent
    up.script = lambda _, wire: wire.reply(b'{"error": {"message": "no", "code": "x"}}', 400)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**ask())
    up.script = honest
    after = proxy.state()
    assert (after["tokens_spent"], after["images_outstanding"]) == (before["tokens_spent"] + spent, 0)


def test_a_stream_is_fitted_and_spent(proxy: Proxy, client: openai.OpenAI, up: Upstream) -> None:
    before = proxy.state()["tokens_spent"]
    with client.chat.completions.with_streaming_response.create(**ask(), stream=True) as raw:
        assert raw.headers["x-stakes-tier"] == "high"
        pieces: Any = raw.parse()
        assert "".join(one.choices[0].delta.content or "" for one in pieces if one.choices) == "42"
    assert 0 < _sent(up) <= HIGH
    assert proxy.state()["tokens_spent"] == before + _sent(up)


def test_headers_and_metadata_name_the_tier(proxy: Proxy, client: openai.OpenAI, up: Upstream) -> None:
    client.chat.completions.create(**ask(), extra_headers={"x-stakes-tier": "low"})
    assert _sent(up) <= LOW
    client.chat.completions.create(**ask(), extra_body={"metadata": {"stakes_tier": "low"}})
    assert _sent(up) <= LOW
    raw = client.chat.completions.with_raw_response.create(**ask(), extra_headers={"x-stakes-bypass": "1"})
    assert (_sent(up), raw.headers["x-stakes-outcome"]) == (1260, "bypassed")
    client.chat.completions.create(**ask(), extra_headers={"x-stakes-tier": "grounding"})
    assert _sent(up) == 1260


def test_responses_are_fitted_too(proxy: Proxy, client: openai.OpenAI, up: Upstream) -> None:
    url = ask()["messages"][0]["content"][0]["image_url"]["url"]
    parts: Any = [{"type": "input_text", "text": "What is the total?"}, {"type": "input_image", "image_url": url}]
    answer = client.responses.create(model="tiny", input=[{"role": "user", "content": parts}])
    assert answer.output_text == "42"
    assert _sent(up) <= HIGH


def test_text_is_forwarded_unchanged(client: openai.OpenAI, up: Upstream) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="tiny", messages=[{"role": "user", "content": "What is 6 × 7?"}]
    )
    assert not [name for name in raw.headers if name.startswith("x-stakes")]
    assert up.posts()[-1].json["messages"] == [{"role": "user", "content": "What is 6 × 7?"}]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (ask("?", "data:image/png;base64,AAAA"), {}, 422),
        (ask("?", "file:///etc/passwd"), {}, 422),
        (ask(), {"x-stakes-tier": "nonsense"}, 400),
        (ask(extra_body={"mm_processor_kwargs": {"min_pixels": 10**7}}), {}, 422),
    ],
)
def test_what_the_gateway_refuses_is_refused_here(
    client: openai.OpenAI, up: Upstream, body: Any, headers: dict[str, str], status: int
) -> None:
    asked = len(up.posts())
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(**body, extra_headers=headers)
    assert caught.value.status_code == status
    assert len(up.posts()) == asked


def test_images_of_other_calls_are_refused(proxy: Proxy, up: Upstream) -> None:
    asked = len(up.posts())
    source = {
        "type": "base64",
        "media_type": "image/png",
        "data": ask()["messages"][0]["content"][0]["image_url"]["url"],
    }
    body = {
        "model": "tiny",
        "max_tokens": 8,
        "messages": [{"role": "user", "content": [{"type": "image", "source": source}]}],
    }
    reply = httpx.post(f"{proxy.url}/messages", json=body, headers={"x-api-key": "sk-any"}, timeout=60, trust_env=False)
    assert reply.status_code == 422, reply.text
    assert len(up.posts()) == asked


def test_a_failure_after_the_request_was_sent_is_spent(proxy: Proxy, client: openai.OpenAI, up: Upstream) -> None:
    before = proxy.state()["tokens_spent"]
    up.script = lambda _, wire: wire.reply(b'{"error": {"message": "engine died", "code": "x"}}', 500)
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(**ask())
    up.script = honest
    assert proxy.state()["tokens_spent"] == before + _sent(up)


def test_a_changed_policy_is_served(proxy: Proxy, client: openai.OpenAI, up: Upstream) -> None:
    tiers = {"high": {"cost": 5, "budget": 100}, "low": {"cost": 1, "budget": 64}}
    policy(tiers=tiers, fingerprint="changed").save(proxy.policy)

    def changed() -> bool:
        raw = client.chat.completions.with_raw_response.create(**ask())
        return raw.headers["x-stakes-policy"] == "changed" and _sent(up) <= 100

    assert until(changed)


# Run by LiteLLM's own Python: requests without a reported answer, by a repeated id and by the time limit.
LOST = """
import asyncio, sys
from stakes.gateway import litellm
hook = litellm.Stakes(sys.argv[1])
async def ask(call):
    body = {"litellm_call_id": call, "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": sys.argv[2]}}, {"type": "text", "text": "What is the total?"}]}]}
    await hook.async_pre_call_hook(None, None, body, "acompletion")
    state = hook.served.rules.controller.state()
    return int(state["tokens_spent"] > 0), int(state["images"]), int(state["images_outstanding"])
async def main():
    print(await ask("one"), await ask("one"))
    litellm.LONGEST_S = -1.0
    print(await ask("two"))
asyncio.run(main())
"""


def test_a_request_without_a_reported_answer_counts_as_spent(tmp_path: Path) -> None:
    policy().save(tmp_path / "policy.json")
    python = LITELLM.with_name("python")
    small = url_of(encoded(page(420, 420)))
    done = subprocess.run(
        [python, "-c", LOST, tmp_path / "policy.json", small], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["(0, 1, 1) (1, 2, 1)", "(1, 3, 1)"], done.stderr[-2000:]
