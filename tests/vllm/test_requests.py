"""What requests may ask of a real vLLM with the plugin (``make test-engine``), alone, in batches and from caches."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.models.tiny import picture
from tests.vllm.servers import Server, pages, read

from stakes import models
from stakes.models import Request

REFUSED = [
    ({"stakes_budget": 0}, "at least 1"),
    ({"stakes_budget": -3}, "at least 1"),
    ({"stakes_budget": 3.5}, "whole number"),
    ({"stakes_budget": True}, "whole number"),
    ({"stakes_budget": "304"}, "whole number"),
    ({"stakes_budget": {"image": 304}}, "whole number"),
    ({"stakes_budget": 5000}, "exceeds the"),
    ({"stakes_budget": []}, "0 entries and the request 1 images"),
    ({"stakes_budget": [1, 2]}, "2 entries and the request 1 images"),
    ({"stakes_budget": ["1"]}, "whole number"),
    ({"stakes_budgets": 5}, "no stakes_budgets"),
    ({"stakes_native": 5}, "no stakes_native"),
    ({"stakes_budget": 5, "stakes_selector": "nope"}, "no selector is called"),
    ({"stakes_budget": 5, "stakes_selector": "fastv"}, "needs the question"),
    ({"stakes_budget": 5, "stakes_selector": "os:system"}, "cannot name code"),
    ({"stakes_sample": "x"}, "without a stakes_budget"),
]


def native(image: Any) -> int:
    return int(image.width * image.height // 784)


@pytest.mark.parametrize(("own", "says"), REFUSED)
def test_what_cannot_be_done_is_a_400_with_the_reason(server: Server, own: dict[str, Any], says: str) -> None:
    reply = server.ask([picture(280, 420)], "What?", **own)
    assert reply.status_code == 400
    assert says in reply.json()["error"]["message"]


def test_one_token_and_all_tokens_are_budgets(server: Server) -> None:
    local, (image, question) = models.load("embedded"), pages(36)[-1]
    least, whole = local.answer([Request(image, question, 1, "deletion"), Request(image, question)])
    found = server.read([image], question, stakes_budget=1)
    assert (found.text, found.images) == (least.text, 1)
    found = server.read([image], question, stakes_budget=native(image))
    assert (found.text, found.images) == (whole.text, whole.native_tokens)


def test_several_images_have_budgets_of_their_own(server: Server) -> None:
    local, ((first, question), (second, _)) = models.load("embedded"), pages(38)[-2:]
    for budgets in ((120, 40), (None, 64), (64, None), (1, 200)):
        request = Request((first, second), question, mechanism="deletion", budgets=budgets)
        (own,) = local.answer([request])
        found = server.read([first, second], question, stakes_budget=list(budgets))
        assert (found.text, found.images) == (own.text, own.realised_tokens)


def test_a_budget_counts_after_the_engines_own_resizing(server: Server) -> None:
    image, question = pages(39)[-1]
    smaller: dict[str, Any] = {"max_pixels": 150 * 784}
    whole = server.read([image], question, **smaller).images
    assert 100 < whole <= 150
    assert server.read([image], question, stakes_budget=90, **smaller).images == 90
    assert server.read([image], question, stakes_budget=whole, **smaller).images == whole
    reply = server.ask([image], question, stakes_budget=whole + 1, **smaller)
    assert reply.status_code == 400
    assert f"exceeds the {whole} tokens" in reply.json()["error"]["message"]
    sized: dict[str, Any] = {"size": {"shortest_edge": 12544, "longest_edge": 150 * 784}}
    assert server.read([image], question, stakes_budget=90, **sized).images == 90


def test_a_list_stays_aligned_when_one_of_its_images_is_cached(server: Server) -> None:
    (first, question), (second, _), (third, _) = pages(33)[-3:]
    assert server.read([second], question, stakes_budget=[48]).images == 48
    once = server.read([first, second, third], question, stakes_budget=[32, 48, None])
    assert once.images == 32 + 48 + native(third)
    again = server.read([first, second, third], question, stakes_budget=[32, 48, None])  # now all are cached
    assert (again.text, again.images, again.prompt) == (once.text, once.images, once.prompt)
    swapped = server.read([first, second, third], question, stakes_budget=[None, 32, 48])
    assert swapped.images == 32 + 48 + native(first)


def test_caches_keep_budgets_and_selectors_of_an_image_apart(server: Server) -> None:
    """The same page by five ways in turn, twice: the second time everything is in vLLM's caches."""
    local, (image, question) = models.load("embedded"), pages(34)[-1]
    ways = [(160, "redundancy"), (161, "redundancy"), (160, "saliency"), (40, "divprune"), (None, None)]
    ours = local.answer([
        Request(image, question) if budget is None else Request(image, question, budget, "deletion", name)
        for budget, name in ways
    ])  # fmt: skip
    for _ in range(2):
        for (budget, name), own in zip(ways, ours, strict=True):
            options: dict[str, Any] = {} if budget is None else {"stakes_budget": budget, "stakes_selector": name}
            found = server.read([image], question, **options)
            assert (found.text, found.images) == (own.text, own.realised_tokens)


def test_a_stream_and_several_choices_state_the_budget(server: Server) -> None:
    image, question = pages(1)[0]
    body = server.body([image], question, 12, stakes_budget=77)
    one = read(server.post(body))
    both = server.post({**body, "n": 2, "temperature": 1, "top_k": 1})  # vLLM refuses n above 1 at temperature 0
    assert {read(both, choice).text for choice in (0, 1)} == {one.text}
    assert read(both).images == one.images == 77
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    with httpx.stream("POST", f"{server.url}/chat/completions", json=streamed, timeout=300, trust_env=False) as reply:
        events = [json.loads(line[6:]) for line in reply.iter_lines() if line.startswith("data: {")]
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])
    assert text.strip() == one.text
    assert events[-1]["usage"]["prompt_tokens_details"]["multimodal_tokens"] == {"image": 77}


def test_text_whole_images_and_refused_requests_in_one_batch(server: Server) -> None:
    asked = pages(6)
    bodies = [server.body([image], question, stakes_budget=30 + at) for at, (image, question) in enumerate(asked)]
    bodies += [server.body([], "What is the total?"), server.body([asked[0][0]], asked[0][1])]
    alone = [read(server.post(body)) for body in bodies]
    refused = [server.body([asked[0][0]], "What?", stakes_budget=5000)] * 3
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(server.post, [*bodies, *refused]))
    assert [reply.status_code for reply in replies[-3:]] == [400] * 3
    together = [read(reply) for reply in replies[:-3]]
    assert [(one.text, one.images) for one in together] == [(one.text, one.images) for one in alone]
    assert [one.images for one in together[:6]] == [30 + at for at in range(6)]
