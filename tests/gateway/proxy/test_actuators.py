"""Where resizing does not work, the engine's parameter is set to the most tokens within the budgets."""

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.gateway.gateways import PAGE, ask, encoded, gateway, page, policy, url_of
from tests.gateway.upstream import Upstream, image_sizes

from stakes import BadInput, InfeasibleBudget, count_tokens
from stakes.vision.geometry.menus import check_actuator, choose_setting, settings_of


@pytest.mark.parametrize(
    ("actuator", "family", "expected"),
    [
        ("vllm", "qwen2.5-vl", {"min_pixels": 3136, "max_pixels": 256 * 784}),
        ("vllm", "gemma4", {"max_soft_tokens": 140}),
        ("lmdeploy", "qwen2.5-vl", {"image": {"min_pixels": 3136, "max_pixels": 256 * 784}}),
        ("lmdeploy", "internvl", {"image": {"max_dynamic_patch": 1}}),
    ],
)
def test_an_engines_parameter_is_written_flat_or_nested(
    upstream: Upstream, http: httpx.Client, actuator: str, family: str, expected: dict[str, Any]
) -> None:
    with gateway(upstream.url, policy(family=family), actuator=actuator) as front:
        body = ask("What is the total?")
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
    assert reply.status_code == 200
    sent = upstream.last.json
    assert sent["mm_processor_kwargs"] == expected
    assert sent["messages"] == body["messages"]  # the image itself is unchanged
    assert int(reply.headers["x-stakes-predicted-tokens"]) <= 256


@pytest.mark.parametrize(
    ("family", "actuator", "budget", "put"),
    [
        ("gpt-4o", "detail", 300, {"detail": "low"}),
        ("gpt-4o", "detail", 1200, {"detail": "high"}),
        ("gemini-3", "detail", 300, {"detail": "low"}),
        ("gemini-3", "detail", 1200, {"detail": "high"}),
    ],
)
def test_detail_is_set_on_each_image(
    upstream: Upstream, http: httpx.Client, family: str, actuator: str, budget: int, put: dict[str, str]
) -> None:
    rules = policy(
        family=family,
        mean_budget=budget,
        tiers={"high": {"cost": 5, "budget": budget}, "low": {"cost": 1, "budget": budget}},
    )
    with gateway(upstream.url, rules, actuator=actuator) as front:
        assert http.post(f"{front.base_url}/chat/completions", json=ask()).status_code == 200
    assert upstream.last.json["messages"][0]["content"][0]["image_url"] == {"url": PAGE, **put}


def test_gemini_gets_a_media_resolution(upstream: Upstream, http: httpx.Client) -> None:
    tiers = {"high": {"cost": 5, "budget": 600}, "low": {"cost": 1, "budget": 300}}
    with gateway(upstream.url, policy(family="gemini-3", mean_budget=600, tiers=tiers), actuator="gemini") as front:
        http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?"))
        assert upstream.last.json["messages"][0]["content"][0]["media_resolution"] == {
            "level": "MEDIA_RESOLUTION_MEDIUM"
        }
        http.post(f"{front.base_url}/chat/completions", json=ask("Who signed it?"))
        assert upstream.last.json["messages"][0]["content"][0]["media_resolution"] == {"level": "MEDIA_RESOLUTION_LOW"}


def with_detail(detail: str | None, question: str = "Who signed it?") -> dict[str, Any]:
    body = ask(question)
    if detail is not None:
        body["messages"][0]["content"][0]["image_url"]["detail"] = detail
    return body


def sent_image(upstream: Upstream) -> dict[str, Any]:
    image: dict[str, Any] = upstream.last.json["messages"][0]["content"][0]["image_url"]
    return image


@pytest.mark.parametrize("detail", [None, "auto", "high", "original", "low"])
@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl", "pixtral", "claude", "gemini"])
def test_detail_changes_nothing_where_the_family_does_not_define_it(
    upstream: Upstream, http: httpx.Client, family: str, detail: str | None
) -> None:
    upstream.script = lambda seen, wire: wire.reply(b"{}")
    tiers = {"high": {"cost": 5, "budget": 600}, "low": {"cost": 1, "budget": 300}}
    with gateway(upstream.url, policy(family=family, mean_budget=600, tiers=tiers)) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=with_detail(detail))
        assert reply.headers["x-stakes-outcome"] == "fitted"
        assert front.state()["images"] == 1
    ((width, height),) = image_sizes(upstream.last.json)
    assert count_tokens(family, width, height) == int(reply.headers["x-stakes-predicted-tokens"]) <= 300
    assert sent_image(upstream).get("detail") == (None if detail is None else "auto")  # LMDeploy would act on another


def test_low_detail_of_gpt_takes_its_own_tokens_within_the_budget(upstream: Upstream, http: httpx.Client) -> None:
    tiers = {"high": {"cost": 5, "budget": 600}, "low": {"cost": 1, "budget": 300}}
    with gateway(upstream.url, policy(family="gpt-4o", mean_budget=600, tiers=tiers)) as front:
        for detail in (None, "auto", "high", "original"):
            http.post(f"{front.base_url}/chat/completions", json=with_detail(detail))
            assert sent_image(upstream)["detail"] == "high"
            assert sent_image(upstream)["url"] != PAGE
        spent = front.state()["tokens_spent"]
        reply = http.post(f"{front.base_url}/chat/completions", json=with_detail("low"))
        assert (reply.headers["x-stakes-outcome"], reply.headers["x-stakes-predicted-tokens"]) == ("fitted", "85")
        assert upstream.last.json == with_detail("low")
        assert front.state()["tokens_spent"] == spent + 85


def test_low_detail_above_the_budget_is_refused(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(family="gpt-4o-mini")) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=with_detail("low"))
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "infeasible_budget")
    assert "takes 2833 tokens in gpt-4o-mini, above 64" in reply.json()["error"]["message"]
    assert not upstream.seen


def test_a_rotated_image_of_low_detail_is_sent_upright(upstream: Upstream, http: httpx.Client) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    lying = url_of(encoded(page(560, 1120), "JPEG", exif=exif.tobytes()), "image/jpeg")
    body = with_detail("low")
    body["messages"][0]["content"][0]["image_url"]["url"] = lying
    tiers = {"high": {"cost": 5, "budget": 600}, "low": {"cost": 1, "budget": 300}}
    with gateway(upstream.url, policy(family="gpt-4o", mean_budget=600, tiers=tiers)) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
    assert reply.headers["x-stakes-predicted-tokens"] == "85"
    assert sent_image(upstream)["detail"] == "low"
    ((width, height),) = image_sizes(upstream.last.json)
    assert width > height


@pytest.mark.parametrize("actuator", ["vllm", "lmdeploy"])
def test_an_engines_parameter_leaves_no_detail_beside_it(upstream: Upstream, http: httpx.Client, actuator: str) -> None:
    with gateway(upstream.url, policy(family="internvl"), actuator=actuator) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=with_detail("high", "What is the total?"))
    assert reply.status_code == 200
    assert sent_image(upstream) == {"url": PAGE, "detail": "auto"}


def test_a_budget_below_every_setting_is_refused(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(family="internvl"), actuator="vllm") as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=ask("Who signed it?"))
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "infeasible_budget")
    assert reply.json()["error"]["message"] == "no setting takes 64 tokens or fewer; the least is 256"


@pytest.mark.parametrize(
    ("actuator", "family"),
    [("pixels", "smolvlm"), ("vllm", "gpt-4o"), ("detail", "qwen2.5-vl"), ("gemini", "gpt-4o"), ("vllm", "gemma3")],
)
def test_an_actuator_that_does_not_fit_the_family_is_refused_at_the_start(actuator: Any, family: str) -> None:
    with pytest.raises(BadInput):
        check_actuator(actuator, family)


@given(
    st.lists(st.tuples(st.integers(60, 3000), st.integers(60, 3000)), min_size=1, max_size=4),
    st.integers(8, 4000),
    st.sampled_from(["qwen2.5-vl", "qwen3-vl", "internvl", "gemma4", "idefics3", "smolvlm"]),
)
def test_the_setting_is_the_largest_within_the_budget(sizes: list[tuple[int, int]], total: int, family: str) -> None:
    settings = settings_of("vllm", family, total)
    every = [sum(one.formula.tokens(*size) for size in sizes) for one in settings]
    within = [tokens for tokens in every if tokens <= total]
    if not within:
        with pytest.raises(InfeasibleBudget):
            choose_setting(settings, sizes, total)
        return
    setting, tokens = choose_setting(settings, sizes, total)
    assert sum(tokens) == max(within)
    if family.startswith("qwen"):
        pixels = setting.value["max_pixels"]
        assert tokens == [count_tokens(family, *size, max_pixels=pixels) for size in sizes]
