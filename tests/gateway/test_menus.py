"""Engines with few sizes get the largest within the budget; one that ignores it is reported within ten requests."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.engines_of_menus import engine
from tests.gateway.gateways import Gateway, ask, encoded, gateway, page, policy, url_of
from tests.gateway.upstream import Upstream

from stakes import BadInput
from stakes.budgets.controller import Controller
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.cli import main
from stakes.gateway.proxy.actuators import check_servable
from stakes.gateway.settings import Settings
from stakes.models.endpoint import EndpointVLM
from stakes.signals import KeywordRule
from stakes.vision.geometry.menus import ActuatorName, menu, settings_of

SIZES = [(840, 1176), (1176, 840), (300, 900), (112, 84), (1700, 2200)]
URLS = [url_of(encoded(page(*size))) for size in SIZES]
MENUS: list[tuple[ActuatorName, str, tuple[int, ...]]] = [
    ("vllm", "gemma4", (70, 140, 280, 560, 1120)),
    ("lmdeploy", "gemma4", (70, 140, 280, 560, 1120)),
    ("gemini", "gemini-3", (280, 560, 1120, 2240)),
    ("detail", "gemini-3", (280, 560, 1120, 2240)),
    ("detail", "gpt-4o", (85, 1445)),
    ("detail", "gpt-5", (70, 1190)),
    ("detail", "gpt-5.4", (256, 2500, 10000)),
    ("detail", "gpt-5.4-mini", (415, 2489)),
    ("vllm", "idefics3", (172, 858, 1714, 2912)),
]


def rules(family: str, high: int, low: int, **more: Any) -> Any:
    tiers = {"high": {"cost": 5, "budget": high}, "low": {"cost": 1, "budget": low}}
    return policy(family=family, tiers=tiers, mean_budget=high, **more)


@pytest.mark.parametrize(("actuator", "family", "entries"), MENUS)
def test_a_menu_has_the_entries_of_its_engine(actuator: ActuatorName, family: str, entries: tuple[int, ...]) -> None:
    assert menu(actuator, family) == entries


@given(st.tuples(st.integers(30, 6000), st.integers(30, 6000)), st.sampled_from([(a, f) for a, f, _ in MENUS]))
def test_no_image_takes_more_than_its_entry(size: tuple[int, int], which: tuple[ActuatorName, str]) -> None:
    for setting in settings_of(*which, 4096):
        assert setting.most is not None
        assert setting.formula.tokens(*size) <= setting.most


@pytest.mark.parametrize(("actuator", "family", "entries"), MENUS)
def test_realised_equals_predicted_and_is_the_largest_entry_within_the_budget(
    upstream: Upstream, http: httpx.Client, actuator: ActuatorName, family: str, entries: tuple[int, ...]
) -> None:
    upstream.script = engine(actuator, family)
    settings = settings_of(actuator, family, 4096)
    with gateway(upstream.url, rules(family, entries[-1], entries[0]), actuator=actuator) as front:
        for question, budget in (("What is the total?", entries[-1]), ("Who signed it?", entries[0])):
            for url, size in zip(URLS, SIZES, strict=True):
                reply = http.post(f"{front.base_url}/chat/completions", json=ask(question, url))
                assert reply.status_code == 200, reply.text
                predicted = int(reply.headers["x-stakes-predicted-tokens"])
                counted = reply.json()["usage"]["prompt_tokens_details"]["multimodal_tokens"]["image"]
                assert counted == predicted <= budget
                last = [one.formula.tokens(*size) for one in settings if one.formula.tokens(*size) <= budget][-1]
                assert predicted == last
        assert front.metric("usage_checks_total", result="agreed") == 10
        assert http.get(f"{front.address}/readyz").json()["tokens_follow"] is not False


def test_a_cap_that_the_server_has_from_its_start_is_known(upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = engine("pixels", "gemma4-llama.cpp-1120", cap=140)
    budgets = rules("gemma4-llama.cpp-1120", 560, 70)
    with gateway(upstream.url, budgets, image_max_tokens=140) as front:
        seen = []
        for question in ("What is the total?", "Who signed it?"):
            for url in URLS:
                reply = http.post(f"{front.base_url}/chat/completions", json=ask(question, url))
                seen.append(int(reply.headers["x-stakes-predicted-tokens"]))
        assert front.metric("usage_checks_total", result="agreed") == 10
        assert 100 < max(seen) <= 140
        assert max(seen[5:]) <= 70
    with pytest.raises(BadInput, match="families of square patches"):
        check_servable(rules("pixtral", 560, 70), Settings(upstream=upstream.url, image_max_tokens=140))


def ask_until_reported(front: Gateway, http: httpx.Client, most: int = 10) -> tuple[int, str]:
    """(requests, sentence) once readiness says that tokens do not follow."""
    for number in range(1, most + 1):
        http.post(f"{front.base_url}/chat/completions", json=ask("Who signed the letter?", URLS[number % 2]))
        front.settle()
        about = http.get(f"{front.address}/readyz").json()
        if about["tokens_follow"] is False:
            return number, about["probe"]
    raise AssertionError(f"not reported in {most} requests")


IGNORING: list[tuple[ActuatorName, str, int, str]] = [
    ("vllm", "idefics3", 172, "mm_processor_kwargs"),
    ("gemini", "gemini-3", 280, "media_resolution"),
    ("detail", "gpt-4o", 85, "the detail of images"),
    ("detail", "gpt-5.4", 256, "the detail of images"),
]


@pytest.mark.parametrize(("actuator", "family", "low", "parameter"), IGNORING)
@pytest.mark.parametrize("states", ["image", "prompt"])
def test_an_engine_that_ignores_its_parameter_is_reported_within_ten_requests_and_by_how_much(
    upstream: Upstream, http: httpx.Client, actuator: ActuatorName, family: str, low: int, parameter: str, states: str
) -> None:
    upstream.script = engine(actuator, family, ignores=True, states=states)
    with gateway(upstream.url, rules(family, 4 * low, low), actuator=actuator) as front:
        number, sentence = ask_until_reported(front, http)
        assert number <= 10
        assert sentence.startswith("TOKENS DO NOT FOLLOW THE BUDGET: in 3 of the last 3 requests images took ")
        assert f"ignores {parameter}" in sentence
        times = float(sentence.partition(" times")[0].rpartition(" ")[2])
        assert times > 1.5
        assert front.metric("probe_follows") == 0


def test_a_cap_that_the_server_does_not_have_is_reported(upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = engine("pixels", "gemma4-llama.cpp-1120", ignores=True, cap=280)
    with gateway(upstream.url, rules("gemma4-llama.cpp-1120", 1120, 1120), image_max_tokens=280) as front:
        number, sentence = ask_until_reported(front, http)
    assert number <= 10
    assert "--image-max-tokens" in sentence


@pytest.mark.parametrize("states", ["image", "prompt", "nothing"])
def test_an_engine_that_follows_is_never_reported(upstream: Upstream, http: httpx.Client, states: str) -> None:
    upstream.script = engine("vllm", "gemma4", states=states)
    with (
        gateway(upstream.url, rules("gemma4", 280, 70), actuator="vllm") as front,
        pytest.raises(AssertionError, match="not reported in 12"),
    ):
        ask_until_reported(front, http, 12)


@pytest.mark.parametrize(("states", "excess"), [("image", "2.6 times as many"), ("prompt", "-77 tokens")])
def test_the_probe_says_by_how_much_an_engine_ignores_budgets(
    upstream: Upstream, http: httpx.Client, states: str, excess: str
) -> None:
    upstream.script = engine("vllm", "gemma4", ignores=True, states=states)
    with gateway(upstream.url, rules("gemma4", 560, 70), actuator="vllm", probe=True) as front:
        sentence = ""
        for _ in range(100):
            sentence = http.get(f"{front.address}/readyz").json()["probe"]
            if "expected" in sentence:
                break
    assert sentence.startswith("TOKENS DO NOT FOLLOW THE BUDGET: 63 and ")
    assert f"({excess})" in sentence
    assert "mm_processor_kwargs" in sentence


def test_the_controller_gives_entries_and_no_budgets_between_them() -> None:
    entries = (70, 140, 280, 560, 1120)
    made = Controller.from_policy(
        rules("gemma4", 1120, 140, menu=entries, floor=70, burst=900).model_copy(update={"mean_budget": 280})
    )
    granted: list[int] = []
    for _ in range(60):
        grant = made.grant("high", [1120])
        granted += grant.budgets
        made.settle(grant, sum(grant.budgets))
    assert set(granted) <= set(entries)
    assert len(set(granted)) > 1  # a shortage cuts to a smaller entry
    assert sum(granted) <= 280 * 60 + 900


def samples_file(folder: Path, number: int = 12) -> Path:
    page().save(folder / "page.png")
    lines = [
        {"id": f"s{i}", "image": "page.png", "question": q, "answers": ["42"], "document": f"d{i}"}
        for i in range(number)
        for q in [("What is the total?", "Who signed it?")[i % 2]]
    ]
    (folder / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "samples.jsonl"


def test_calibration_measures_exactly_the_entries_and_the_policy_is_served_on_them(
    upstream: Upstream, tmp_path: Path, http: httpx.Client
) -> None:
    upstream.script = engine("vllm", "gemma4")
    costs = {"high": 5.0, "low": 1.0}
    with EndpointVLM(upstream.url, family="gemma4", actuator="vllm") as model:
        found = calibrate(samples_file(tmp_path), model, costs=costs, mean_budget=280, signal=KeywordRule())
        assert {one.budget for one in found.run.outcomes.values()} == {70, 140, 280, 560, 1120}
        assert {one.realised for one in found.run.outcomes.values()} == {63, 140, 266, 560, 1092}
        with pytest.raises(BadInput, match="takes 70, 140, 280, 560, 1120 tokens, and not 96"):
            calibrate(
                samples_file(tmp_path), model, costs=costs, mean_budget=280, signal=KeywordRule(),
                options=CalibrationOptions(grid=(70, 96)),
            )  # fmt: skip
    found.policy.save(tmp_path / "policy.json")
    stored = json.loads((tmp_path / "policy.json").read_text())
    assert stored["menu"] == [70, 140, 280, 560, 1120]
    assert stored["model"]["actuator"] == "vllm"
    with gateway(upstream.url, found.policy, actuator="vllm") as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?"))
        assert int(reply.headers["x-stakes-budget"]) in found.policy.menu  # type: ignore[operator]
    other = Settings(upstream=upstream.url, actuator="lmdeploy")
    check_servable(found.policy, other)  # the same menu
    with pytest.raises(BadInput, match="serve it with --actuator vllm"):
        check_servable(found.policy.model_copy(update={"family": "internvl"}), other)


def test_the_command_calibrates_by_an_actuator_and_plain_budgets_follow_the_menu(
    upstream: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from stakes.commands.options.served_policy import read_policy

    upstream.script = engine("detail", "gpt-4o")
    where = tmp_path / "policy.json"
    options = ["--endpoint", upstream.url, "--family", "gpt-4o", "--actuator", "detail", "--mean-budget", "765"]
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", str(samples_file(tmp_path)), *options, "--signal", "keywords", "-o", str(where)])
    assert ended.value.code == 0, capsys.readouterr().err
    assert json.loads(where.read_text())["menu"] == [85, 1445]
    plain = read_policy(None, ["high=576", "low=100"], None, "gemma4", "vllm")
    assert plain.menu == (70, 140, 280, 560, 1120)
    assert Controller.from_policy(plain).state()["budget_high"] == 560
    assert read_policy(None, ["high=576", "low=100"], None, "qwen2.5-vl", "vllm").menu is None
