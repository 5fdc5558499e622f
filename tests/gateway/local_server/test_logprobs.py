"""The local server gives log-probabilities, so that a gateway before it computes the confidence that the model has."""

import httpx
import pytest
from tests.gateway.local_server.test_app import MODEL, PAGE, body_of, chat

from stakes.gateway.escalation.confidence import AnswerReader
from stakes.gateway.local_server.app import create_model_app
from stakes.gateway.run import running
from stakes.models.base import Request, confidence_of


def test_log_probabilities_are_the_models_own() -> None:
    (local,) = MODEL.answer([Request(PAGE, "What?", 80)])
    app = create_model_app(MODEL, "tiny", batch=6, wait_s=0.0)
    with running(app) as address, httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        content = chat(client, body_of(logprobs=True))["choices"][0]["logprobs"]["content"]
        assert [one["logprob"] for one in content] == pytest.approx(local.logprobs, abs=1e-4)
        assert confidence_of([one["logprob"] for one in content]) == pytest.approx(local.confidence, abs=1e-4)
        text = client.post("/v1/chat/completions", json=body_of(logprobs=True, stream=True)).text
        reader = AnswerReader(streamed=True, strip=True)
        assert '"logprobs":null' in (reader.feed(text.encode()) + reader.end()).decode()
        assert reader.confidence == pytest.approx(local.confidence, abs=1e-4)
        assert chat(client, body_of())["choices"][0]["logprobs"] is None
        for wrong in ({"top_logprobs": 2}, {"logprobs": "yes"}):
            body = body_of(logprobs=True) | wrong
            assert client.post("/v1/chat/completions", json=body).status_code == 400
