"""Known upstreams are recognized by what they state of themselves, and the documentation prints the same table."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commands.test_doctor import _checks
from tests.gateway.upstream import Seen, Upstream, Wire, honest, serving

from stakes.commands.output import as_markdown
from stakes.gateway.monitoring.upstreams import COLUMNS, UPSTREAMS, table
from stakes.vision.geometry.menus import settings_of, supported

DOCS = Path(__file__).parents[3] / "docs" / "gateway.md"


def model(**more: Any) -> dict[str, Any]:
    return {"id": "tiny", "object": "model", "created": 1, **more}


# name: (a model as it lists it, headers of its responses, paths beside /v1, what doctor finds)
STUBS: dict[str, tuple[dict[str, Any], tuple[str, ...], dict[str, Any], str]] = {
    "vllm": (model(owned_by="vllm", max_model_len=4096), (), {"/version": {"version": "0.32.0"}}, "vLLM 0.32.0;"),
    "vllm without": (model(owned_by="vllm"), ("server: uvicorn",), {}, "vLLM;"),
    "sglang": (
        model(owned_by="sglang"), (), {"/get_server_info": {"version": "0.5.12", "tp_size": 1}}, "SGLang 0.5.12;",
    ),
    "lmdeploy": (model(owned_by="lmdeploy", permission=[]), (), {}, "LMDeploy;"),
    "llama.cpp": (
        model(owned_by="llamacpp"), ("server: llama.cpp",), {"/props": {"build_info": "b8681-abc"}},
        "llama.cpp b8681-abc;",
    ),
    "llama.cpp renamed": (model(owned_by="me"), ("Server: llama.cpp",), {}, "llama.cpp;"),
    "ollama": (model(owned_by="library"), (), {"/api/version": {"version": "0.12.6"}}, "Ollama 0.12.6;"),
    "ollama of a user": (model(owned_by="ann"), (), {"/api/version": {"version": "0.30.7"}}, "Ollama 0.30.7;"),
    "tgi": (
        model(owned_by="tiny", created=0), (),
        {"/info": {"model_id": "tiny", "version": "3.3.2", "docker_label": None}}, "TGI 3.3.2;",
    ),
    "azure": (model(), ("apim-request-id: 5", "x-ms-region: West"), {}, "Azure OpenAI;"),
    "openai": (model(owned_by="system"), ("openai-version: 2020-10-01",), {}, "OpenAI;"),
    "anthropic": (
        {"type": "model", "id": "tiny", "display_name": "Tiny"}, ("anthropic-organization-id: o",), {}, "Anthropic;",
    ),
    "gemini": (model(id="models/gemini-3-flash", owned_by="google"), (), {}, "Gemini;"),
    "an imitation": (model(owned_by="openai"), (), {"/version": {"version": "1"}}, "not recognized"),
    "not JSON": (model(), (), {"/api/version": "7", "/props": [], "/info": None}, "not recognized"),
    "a bad version": (model(owned_by="vllm"), (), {"/version": {"version": "<b>\n" * 50}}, "vLLM;"),
}  # fmt: skip


@pytest.fixture
def up() -> Iterator[Upstream]:
    with serving() as one:
        yield one


@pytest.mark.parametrize("name", STUBS)
def test_doctor_recognizes_what_a_server_states(up: Upstream, name: str) -> None:
    listed, headers, paths, found = STUBS[name]

    def answer(seen: Seen, wire: Wire) -> None:
        if seen.path == "/v1/models":
            return wire.reply(json.dumps({"data": [listed]}).encode(), 200, "application/json", *headers)
        if seen.path.startswith("/v1/"):
            return honest(seen, wire)
        if seen.path in paths:
            return wire.reply(json.dumps(paths[seen.path]).encode())
        return wire.reply(b"{}", 404)

    up.script = answer
    checks = _checks("--upstream", up.url)[1]
    assert checks["upstream engine"]["found"].startswith(found)
    assert checks["upstream engine"]["state"] == ("absent" if found == "not recognized" else "good")


def test_an_actuator_that_the_engine_does_not_take_is_a_warning(up: Upstream) -> None:
    listing = json.dumps({"data": [model(owned_by="sglang")]}).encode()
    up.script = lambda seen, wire: wire.reply(listing) if seen.path == "/v1/models" else honest(seen, wire)
    row = _checks("--upstream", up.url, "--actuator", "vllm")[1]["upstream engine"]
    assert (row["state"], row["advice"]) == ("unknown", "SGLang takes no --actuator vllm; give pixels")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://api.openai.com/v1", "OpenAI"),
        ("https://team.openai.azure.com/openai/v1", "Azure OpenAI"),
        ("https://team.services.ai.azure.com/openai/v1", "Azure OpenAI"),
        ("https://api.anthropic.com/v1", "Anthropic"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "Gemini"),
        ("https://api.openai.com.example/v1", None),
        ("https://notapi.openai.com/v1", None),
        ("http://127.0.0.1:8000/v1", None),
    ],
)
def test_services_are_recognized_by_their_hosts(address: str, name: str | None) -> None:
    assert next((one.name for one in UPSTREAMS if one.is_at(address, {}, [])), None) == name


def test_the_documentation_prints_the_table_and_every_actuator_in_it_exists() -> None:
    assert as_markdown(COLUMNS, table()) in DOCS.read_text(encoding="utf-8")
    families = {
        "pixels": "qwen2.5-vl",
        "vllm": "gemma4",
        "vllm-deletion": "qwen2.5-vl",
        "lmdeploy": "gemma4",
        "detail": "gpt-4o",
        "gemini": "gemini-3",
    }
    for actuator in {name for one in UPSTREAMS for name in one.actuators}:
        assert actuator in supported(families[actuator])
        assert actuator in ("pixels", "vllm-deletion") or settings_of(actuator, families[actuator], 256)
