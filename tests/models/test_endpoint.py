"""Through a real server: answers in order, images at exactly their budget, failures retried, then named."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PIL import ImageChops
from tests.models.chat_server import (
    Said,
    Server,
    completion,
    honest,
    image_usage,
    parts,
    received,
    seen_tokens,
    serving,
)
from tests.models.tiny import picture, tiny

from stakes import models
from stakes.errors import BadInput, LedgerBreach, StakesError, UnknownFamily, UnreadableImage
from stakes.models import VLM, Answer, Request
from stakes.models.about import family_of, identity, native_tokens
from stakes.models.endpoint import EndpointVLM
from stakes.vision.resize import fit

# The scripted server drops connections on purpose; its own half-closed sockets are not what is tested.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

PAGE = picture(500, 400)
Ask = Callable[..., EndpointVLM]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture
def endpoint(server: Server) -> Iterator[Ask]:
    made: list[EndpointVLM] = []

    def make(**options: Any) -> EndpointVLM:
        made.append(EndpointVLM(server.url, **{"pause_s": 0.01, "timeout_s": 10, **options}))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ask(model: EndpointVLM, budget: int | None = 64) -> Answer:
    (answer,) = model.answer([Request(PAGE, "What?", budget)])
    return answer


def test_the_server_gets_the_fitted_pixels_and_the_question_at_temperature_0(server: Server, endpoint: Ask) -> None:
    answer = ask(endpoint(api_key="sk-1"), 64)
    (body,) = server.asked
    fitted = fit(PAGE, 64)
    assert received(body).size == fitted.image.size
    assert ImageChops.difference(received(body), fitted.image).getbbox() is None
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("reader", 0, 16)
    assert parts(body)[1] == "What? Answer briefly."
    assert set(server.authorization) == {"Bearer sk-1"}
    assert (answer.text, answer.budget, answer.truncated) == ("re: What? Answer briefly.", 64, False)
    assert (answer.realised_tokens, answer.native_tokens) == (fitted.tokens, fitted.native)
    assert min(answer.timings.values()) > 0


def test_without_a_budget_the_image_goes_as_it_is_and_the_servers_bounds_hold(server: Server, endpoint: Ask) -> None:
    server.script = lambda body, n: completion("yes", image_usage(100))
    answer = ask(endpoint(), None)
    assert ImageChops.difference(received(server.asked[0]), PAGE).getbbox() is None
    assert (answer.budget, answer.native_tokens, answer.realised_tokens) == (None, 100, 100)


def test_answers_come_in_the_order_of_requests_and_no_more_at_once_than_allowed(server: Server, endpoint: Ask) -> None:
    def some_overtake(body: dict[str, Any], n: int) -> Said:
        time.sleep(0.05 if n % 3 == 0 else 0.01)
        return honest(body, n)

    server.script = some_overtake
    model = endpoint(concurrency=3)
    questions = [f"Question {i}?" for i in range(12)]
    caught: list[list[Answer]] = []
    requests = [Request(PAGE, question, (16, 64)[i % 2]) for i, question in enumerate(questions)]
    other = threading.Thread(target=lambda: caught.append(model.answer(requests)))
    other.start()
    caught.append(model.answer(requests))
    other.join()
    for answers in caught:
        assert [answer.text for answer in answers] == [f"re: {question} Answer briefly." for question in questions]
    assert server.most_at_once == 3
    assert sum(answer.timings["host"] > 0 for answer in caught[0]) == 2, (
        "fitted once for each budget, not each question"
    )
    assert model.answer([]) == []
    assert isinstance(model, VLM)


@pytest.mark.parametrize(
    "failure",
    [
        Said(status=500),
        Said("busy", 503),
        Said("slow down", 429),
        Said("<html>", 200),
        Said("[" * 100_000, 200),
        Said(json.dumps({"choices": []})),
        Said(json.dumps({"error": {"message": "overloaded"}})),
        Said("null"),
        Said(drop=True),
        completion(None),
        completion(""),
        completion(" \n"),
        completion(["yes"]),
        completion("ye", finish="abort"),
        completion("ye", finish=["stop"]),
    ],
)
def test_a_failure_that_passes_is_retried(server: Server, endpoint: Ask, failure: Said) -> None:
    server.script = lambda body, n: failure if n < 2 else honest(body, n)
    assert ask(endpoint()).text == "re: What? Answer briefly."
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (Said("boom", 500), "HTTP 500"),
        (Said("<html>"), "is not JSON: <html>"),
        (Said("{}"), "is not a chat completion"),
        (Said(drop=True), "RemoteProtocolError"),
        (completion(None, finish="length"), "has no text"),
        (completion("", image_usage(63)), "has no text"),
        (completion("half", finish="content_filter"), r"did not finish \(content_filter\)"),
    ],
)
def test_a_failure_that_stays_is_named_and_never_an_answer(
    server: Server, endpoint: Ask, failure: Said, says: str
) -> None:
    server.script = lambda body, n: failure
    with pytest.raises(StakesError, match=f"gave no answer in 3 tries.*{says}"):
        ask(endpoint(tries=3))
    assert len(server.asked) == 3


def test_an_empty_answer_is_taken_only_where_that_was_asked_for(server: Server, endpoint: Ask) -> None:
    server.script = lambda body, n: completion("", image_usage(seen_tokens(body)))
    assert ask(endpoint(empty="answer")).text == ""
    server.script = lambda body, n: completion("", image_usage(seen_tokens(body)), "length")
    with pytest.raises(StakesError, match="has no text"):
        ask(endpoint(empty="answer", tries=1))


def test_retry_after_holds_back_every_request(server: Server, endpoint: Ask) -> None:
    def busy_once(body: dict[str, Any], n: int) -> Said:
        return Said("slow down", 429, {"retry-after": "1"}) if n == 0 else honest(body, n)

    server.script = busy_once
    endpoint(concurrency=1).answer([Request(PAGE, "What?", 64), Request(PAGE, "Who?", 64)])
    assert server.times[1] - server.times[0] >= 1
    server.script = lambda body, n: Said("slow down", 429, {"retry-after": "3600"})
    began = time.monotonic()
    with pytest.raises(StakesError, match="in 1 try .*HTTP 429, asking to wait 3600 s"):
        ask(endpoint())
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("trickle", [False, True])
def test_a_request_that_takes_too_long_is_given_up_and_retried(server: Server, endpoint: Ask, trickle: bool) -> None:
    def slow_once(body: dict[str, Any], n: int) -> Said:
        said = honest(body, n)
        if n == 0 and not trickle:
            time.sleep(0.8)
        return Said(said.text, trickle=0.05) if n == 0 and trickle else said

    server.script = slow_once
    assert ask(endpoint(timeout_s=0.3)).text == "re: What? Answer briefly."
    assert len(server.asked) == 2
    server.script = lambda body, n: slow_once(body, 0)
    with pytest.raises(StakesError, match="ReadTimeout"):
        ask(endpoint(timeout_s=0.3, tries=1))


def test_a_server_that_is_gone_is_named_and_says_what_had_come(server: Server, endpoint: Ask) -> None:
    def dies(body: dict[str, Any], n: int) -> Said:
        return honest(body, n) if n < 3 else Said(drop=True)

    server.script = dies
    with pytest.raises(StakesError, match=r"gave no answer in 2 tries.*\(3 of the 6 answers asked for together"):
        endpoint(tries=2, concurrency=1).answer([Request(PAGE, f"Question {i}?", 64) for i in range(6)])
    assert len(server.asked) == 5, "the rest of the batch is not asked"
    server.stop()
    with pytest.raises(StakesError, match="ConnectError"):
        EndpointVLM(server.url, tries=2, pause_s=0.01)


def test_a_refusal_is_not_retried_and_keeps_the_key_and_the_image_to_itself(server: Server, endpoint: Ask) -> None:
    server.script = lambda body, n: Said(json.dumps({"error": {"message": f"bad key sk-1\x1b[31m {body}"}}), 401)
    with pytest.raises(BadInput, match=r"refused the request \(HTTP 401\): bad key … ?\[31m") as caught:
        ask(endpoint(api_key="sk-1"))
    assert len(server.asked) == 1
    assert len(str(caught.value)) < 400
    with pytest.raises(BadInput, match=r"HTTP 404.*does the address end in /v1\?"):
        EndpointVLM(server.url.removesuffix("/v1"))


def test_the_first_failure_stops_the_rest(server: Server, endpoint: Ask) -> None:
    def one_is_refused(body: dict[str, Any], n: int) -> Said:
        return Said("no", 400) if "3?" in parts(body)[1] else Said("later", 503)

    server.script = one_is_refused
    began = time.monotonic()
    with pytest.raises(BadInput, match="HTTP 400"):
        endpoint(pause_s=30).answer([Request(PAGE, f"Question {i}?", 64) for i in range(6)])
    assert time.monotonic() - began < 5, "those that were waiting to try again gave up"


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

    def counts(body: dict[str, Any], n: int) -> Said:
        image = seen_tokens(body) + 2 + wrong if parts(body)[0] else 0
        seam = int(bool(image) and "Who" in parts(body)[1])
        return completion("yes", {"prompt_tokens": words(body) + image - seam})

    requests = [Request(PAGE, q, b) for q in ("What is it?", "Who?", "When was that?") for b in (16, 64, 120)]
    expected = [fit(PAGE, request.budget or 0).tokens for request in requests]
    for tokenize in (True, False):
        server.tokenize = (lambda body: Said(json.dumps({"count": words(body)}))) if tokenize else None
        server.script, server.asked, server.paths, wrong = counts, [], [], 0
        model = endpoint(concurrency=2)
        assert [answer.realised_tokens for answer in model.answer(requests)] == expected
        assert model.server_counts == {"agreed": 9}
        probes = server.paths.count("/tokenize") if tokenize else len(server.asked) - 9
        assert 3 <= probes <= 6, "once per question, or at most once per thread"
        for wrong in (-6, 7, 200):
            with pytest.raises(LedgerBreach, match=f"fitted to {expected[0]} tokens .* took {expected[0] + wrong} on"):
                model.answer(requests[:1])
    server.script = lambda body, n: completion("yes", {"prompt_tokens": 70}) if parts(body)[0] else Said("no", 400)
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


def test_an_answer_that_was_cut_says_so(server: Server, endpoint: Ask) -> None:
    server.script = lambda body, n: completion("one two", image_usage(seen_tokens(body)), "length")
    assert ask(endpoint(max_new_tokens=2)).truncated
    assert server.asked[0]["max_tokens"] == 2


def test_extra_fields_are_sent_and_none_removes_one(server: Server, endpoint: Ask) -> None:
    model = endpoint(extra={"max_tokens": None, "max_completion_tokens": 16, "seed": 1})
    ask(model)
    assert "max_tokens" not in server.asked[0]
    assert (server.asked[0]["max_completion_tokens"], server.asked[0]["seed"]) == (16, 1)
    assert identity(model) != identity(endpoint())


def test_the_only_model_is_taken_and_several_are_listed(server: Server, endpoint: Ask) -> None:
    assert endpoint().model == "reader"
    assert identity(endpoint()) == identity(endpoint(model="reader"))
    server.models = json.dumps({"data": [{"id": "reader"}, {"id": "writer"}]})
    with pytest.raises(BadInput, match=r"has 2 models \(reader, writer\); name the one to ask"):
        endpoint()
    assert endpoint(model="writer").model == "writer"
    server.models = json.dumps({"data": []})
    with pytest.raises(BadInput, match=r"has 0 models \(none\)"):
        endpoint()
    server.models = "[]"
    with pytest.raises(StakesError, match="no list of models"):
        endpoint(tries=2)


def test_what_a_server_cannot_do_is_refused_before_it_is_asked(server: Server, endpoint: Ask) -> None:
    model = endpoint()
    for refused in ("deletion", "zero-mask"):
        with pytest.raises(BadInput, match=f"{refused} works inside a model, and this one is behind http"):
            model.answer([Request(PAGE, "What?", 64), Request(PAGE, "What?", 64, refused)])
    with pytest.raises(BadInput, match="deletion works inside"):
        native_tokens(model, 500, 400, "deletion")
    with pytest.raises(UnreadableImage, match="0 bytes"):
        model.answer([Request(b"", "What?", 64)])
    with pytest.raises(BadInput, match="internvl: not controllable by resizing"):
        ask(endpoint(family="internvl"))
    assert server.asked == []
    assert native_tokens(model, 500, 400, "resolution") == fit(PAGE, 64).native
    assert family_of(model) == "qwen2.5-vl"


def test_options_are_checked(server: Server) -> None:
    for options, error, says in (
        ({"concurrency": 0}, BadInput, "at least one request"),
        ({"max_new_tokens": 0}, BadInput, "at least one token long"),
        ({"tries": 0}, BadInput, "at least one try"),
        ({"timeout_s": 0}, BadInput, "some seconds"),
        ({"check": "maybe"}, BadInput, "check is error or record"),
        ({"api_key": "a\nb"}, BadInput, "no header can carry"),
        ({"family": "qwen"}, UnknownFamily, "unknown family 'qwen'"),
    ):
        with pytest.raises(error, match=says):
            EndpointVLM(server.url, **options)
    with pytest.raises(BadInput, match="is not an http"):
        EndpointVLM("ftp://somewhere/v1")


def test_load_takes_an_address(server: Server) -> None:
    with models.load(server.url, family="qwen3-vl", concurrency=2, max_new_tokens=5) as model:
        assert isinstance(model, EndpointVLM)
        assert (model.family, model.max_new_tokens) == ("qwen3-vl", 5)
        server.script = lambda body, n: completion("yes", image_usage(seen_tokens(body, 32)))
        assert ask(model, 80).realised_tokens == fit(PAGE, 80, "qwen3-vl").tokens


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

    def engine(body: dict[str, Any], n: int) -> Said:
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
            server.tokenize = lambda body: Said(json.dumps({"count": text_tokens(body)}))
        with EndpointVLM(server.url, family=local.family, concurrency=4, max_new_tokens=8, tries=1) as model:
            ours, theirs = model.answer(requests), local.answer(requests)
            assert model.server_counts == {"agreed": len(requests)}
    for one, other in zip(ours, theirs, strict=True):
        assert one.text == other.text != ""
        for same in ("native_tokens", "budget", "realised_tokens", "truncated", "input_tokens", "encoder_tokens"):
            assert getattr(one, same) == getattr(other, same)
    assert len({answer.text for answer in ours}) > 4
