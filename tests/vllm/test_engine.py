"""Against a real vLLM with the plugin (``make test-engine``): answers and counts are those of local deletion."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from tests.gateway.gateways import encoded, gateway, policy, url_of
from tests.models.tiny import picture
from tests.vllm.servers import Server, Top, pages

import stakes.vllm
from stakes import models
from stakes.gateway.monitoring.probe import check_upstream
from stakes.gateway.settings import Settings
from stakes.models import Request

BOUNDS: Any = {"min_pixels": 12544, "max_pixels": 1019200}  # of the embedded reader
DELETION = {"mechanism": "deletion", "selector": "redundancy", "mean_budget": 300}
HOW = ((304, "redundancy"), (64, "divprune"), (128, "saliency"), (100, "random"), (160, "top"))


def test_answers_equal_local_deletion_and_tokens_the_budget(server: Server) -> None:
    """Budgets and selectors mixed in one batch; ``top`` drops the lowest rows of portrait pages."""
    asked = [(*page, *HOW[at % len(HOW)]) for at, page in enumerate(pages(20) + pages(10, "charts"))]
    local = models.load("embedded")
    ours = local.answer([
        Request(image, question, budget, "deletion", Top() if name == "top" else name, "seed")
        for image, question, budget, name in asked
    ])  # fmt: skip
    with ThreadPoolExecutor(4) as pool:
        theirs = list(pool.map(
            lambda one: server.read(
                [one[0]], one[1], stakes_budget=one[2], stakes_selector=one[3], stakes_sample="seed"
            ), asked,
        ))  # fmt: skip
    assert [other.images for other in theirs] == [budget for _, _, budget, _ in asked]
    different = [(own.text, it.text) for own, it in zip(ours, theirs, strict=True) if own.text != it.text]
    print(f"{len(asked) - len(different)} of {len(asked)} answers are the same; different: {different}")
    assert len(different) <= 1
    assert sum(image.height > image.width for image, _, _, name in asked if name == "top") >= 3


def test_without_a_budget_tokens_and_answers_are_those_of_the_whole_image(server: Server) -> None:
    local = models.load("embedded")
    for image, question in pages(4):
        (own,) = local.answer([Request(image, question)])
        found = server.read([image], question)
        assert (found.text, found.images) == (own.text, own.native_tokens)


def test_the_gateway_serves_a_deletion_policy_and_its_predictions_agree(server: Server) -> None:
    tiers = {"high": {"cost": 5, "budget": 300}, "low": {"cost": 1, "budget": 60}}
    small = picture(140, 140)  # 25 tokens: within every budget
    with gateway(server.url, policy(**DELETION, tiers=tiers), actuator="vllm-deletion", **BOUNDS) as front:
        for tier, images, due in (
            ("high", [pages(1)[0][0]], 300), ("low", [pages(2)[1][0]], 60), ("low", [pages(3)[2][0], small], 2 * 60),
            ("high", [small], 25),
        ):  # fmt: skip
            parts = [{"type": "image_url", "image_url": {"url": url_of(encoded(image))}} for image in images]
            turn = {"role": "user", "content": [*parts, {"type": "text", "text": "What is the total?"}]}
            reply = httpx.post(
                f"{front.base_url}/chat/completions", timeout=300, trust_env=False, headers={"x-stakes-tier": tier},
                json={"model": "reader", "messages": [turn], "max_tokens": 4, "temperature": 0},
            )  # fmt: skip
            assert reply.status_code == 200, reply.text
            usage = reply.json()["usage"]["prompt_tokens_details"]["multimodal_tokens"]["image"]
            predicted = reply.headers["x-stakes-predicted-tokens"].split(",")
            assert (usage, sum(map(int, predicted))) == (due, due)
        assert front.metric("usage_checks_total", result="agreed") == 4
        assert front.metric("usage_checks_total", result="differed") == 0


def test_doctor_finds_the_plugin(server: Server) -> None:
    settings = Settings(upstream=server.url, actuator="vllm-deletion", **BOUNDS)
    found = {one.name: one for one in asyncio.run(check_upstream(settings, policy(**DELETION)))}
    assert found["upstream plugin"].state == "good"
    assert found["tokens follow"].state == "good", found["tokens follow"].found


def test_an_endpoint_answers_by_deletion(server: Server) -> None:
    local, (image, question) = models.load("embedded"), pages(35)[-1]
    request = Request(image, question, 200, "deletion")
    with models.load(server.url, actuator="vllm-deletion", max_new_tokens=local.max_new_tokens) as behind:
        (theirs,), (ours,) = behind.answer([request]), local.answer([request])
    assert (theirs.text, theirs.realised_tokens) == (ours.text, 200)


def test_the_versions_that_were_tested_hold_the_installed_vllm(server: Server) -> None:
    found = httpx.get(f"{server.url.removesuffix('/v1')}/version", trust_env=False).json()["version"]
    assert stakes.vllm.tested(found), f"vLLM {found} is not one of {stakes.vllm.TESTED}"
