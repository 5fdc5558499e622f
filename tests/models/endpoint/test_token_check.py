"""What a real server counts for an image is what was predicted, or a breach, or called unknown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.models.endpoint.chat_server import (
    ScriptedReply,
    Server,
    completion,
    image_usage,
    parts,
    received,
    seen_tokens,
    serving,
)
from tests.models.endpoint.endpoints import PAGE, Ask, ask
from tests.models.tiny import picture, tiny

from stakes.errors import LedgerBreach
from stakes.models import Request
from stakes.models.endpoint import EndpointVLM
from stakes.vision.image.resize import fit

# The scripted server drops connections on purpose; its own half-closed sockets are not what is tested.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


def test_another_count_than_predicted_is_a_breach_or_on_record(server: Server, endpoint: Ask) -> None:
    server.script = lambda body, n: completion("yes", image_usage(seen_tokens(body) - 9))
    tokens = fit(PAGE, 64).tokens
    with pytest.raises(LedgerBreach, match=f"fitted to {tokens} tokens of qwen2.5-vl took {tokens - 9} on http"):
        ask(endpoint())
    model = endpoint(check="record")
    assert ask(model).realised_tokens == tokens - 9
    assert model.server_counts == {"differed": 1}


def test_a_count_is_found_by_the_prompt_less_its_text(server: Server, endpoint: Ask) -> None:
    """Two markers around each image, and one question whose text loses a token beside it."""
    wrong = 0

    def words(body: dict[str, Any]) -> int:
        return 5 + len(parts(body)[1].split())

    def counts(body: dict[str, Any], n: int) -> ScriptedReply:
        image = seen_tokens(body) + 2 + wrong if parts(body)[0] else 0
        seam = int(bool(image) and "Who" in parts(body)[1])
        return completion("yes", {"prompt_tokens": words(body) + image - seam})

    requests = [Request(PAGE, q, b) for q in ("What is it?", "Who?", "When was that?") for b in (16, 64, 120)]
    expected = [fit(PAGE, request.budget or 0).tokens for request in requests]
    for tokenize in (True, False):
        server.tokenize = (lambda body: ScriptedReply(json.dumps({"count": words(body)}))) if tokenize else None
        server.script, server.bodies, server.paths, wrong = counts, [], [], 0
        model = endpoint(concurrency=2)
        assert [answer.realised_tokens for answer in model.answer(requests)] == expected
        assert model.server_counts == {"agreed": 9}
        probes = server.paths.count("/tokenize") if tokenize else len(server.bodies) - 9
        assert 3 <= probes <= 6, "once per question, or at most once per thread"
        for wrong in (-6, 7, 200):
            with pytest.raises(LedgerBreach, match=f"fitted to {expected[0]} tokens .* took {expected[0] + wrong} on"):
                model.answer(requests[:1])
    server.script = lambda body, n: (
        completion("yes", {"prompt_tokens": 70}) if parts(body)[0] else ScriptedReply("no", 400)
    )
    model = endpoint()
    assert ask(model).realised_tokens == fit(PAGE, 64).tokens
    assert model.server_counts == {"unknown": 1}


@pytest.mark.parametrize(
    "usage", [None, [], "many", {"prompt_tokens": "70"}, {"prompt_tokens": True}, {"prompt_tokens_details": 3}]
)
def test_without_a_count_the_prediction_stands_and_is_called_unknown(server: Server, endpoint: Ask, usage: Any) -> None:
    server.script = lambda body, n: completion("yes", usage)
    model = endpoint()
    assert ask(model).realised_tokens == fit(PAGE, 64).tokens
    assert model.server_counts == {"unknown": 1}


@pytest.mark.parametrize("count", ["usage", "tokenize", "text"])
@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_a_model_behind_a_server_answers_and_spends_as_on_this_machine(family: str, count: str) -> None:
    """The tiny model, real but for its size, reads the PNG as any engine would: by its own processor."""
    local = tiny(family)

    def text_tokens(body: dict[str, Any]) -> int:
        content = [{"type": "text", "text": parts(body)[1]}]
        text = local.processor.tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], chat_template=local.processor.template, tokenize=False
        )
        return len(local.processor.tokenizer(text)["input_ids"])

    def engine(body: dict[str, Any], n: int) -> ScriptedReply:
        url, text = parts(body)
        if url is None:
            return completion("", {"prompt_tokens": text_tokens(body)})
        question = text.removesuffix(" Answer briefly.")
        (answer,) = local.answer([Request(received(body), question)])
        usage = image_usage(answer.realised_tokens)
        usage["prompt_tokens"] = len(local.processor.ids(question, answer.realised_tokens))
        if count != "usage":
            del usage["prompt_tokens_details"]
        return completion(answer.text, usage, "length" if answer.truncated else "stop")

    requests = [
        Request(picture(*size, seed), question, budget)
        for seed, size in enumerate([(500, 400), (300, 460)])
        for question in ("What is the total?", "Who signed it, and when?")
        for budget in (70, 90)
    ]
    with serving(engine) as server:
        if count == "tokenize":
            server.tokenize = lambda body: ScriptedReply(json.dumps({"count": text_tokens(body)}))
        with EndpointVLM(server.url, family=local.family, concurrency=4, max_new_tokens=8, tries=1) as model:
            ours, theirs = model.answer(requests), local.answer(requests)
            assert model.server_counts == {"agreed": len(requests)}
    for one, other in zip(ours, theirs, strict=True):
        assert one.text == other.text != ""
        for same in ("native_tokens", "budget", "realised_tokens", "truncated", "input_tokens", "encoder_tokens"):
            assert getattr(one, same) == getattr(other, same)
    assert len({answer.text for answer in ours}) > 4
