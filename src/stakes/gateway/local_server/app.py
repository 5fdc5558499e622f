"""Serves a model on this machine as an OpenAI-compatible app, with dynamic batching.

    python -m stakes.gateway.local_server.app ./my-vlm --port 8000
    stakes calibrate samples.jsonl --endpoint http://127.0.0.1:8000/v1

It has ``POST /v1/chat/completions`` and ``POST /v1/responses`` (whole or streamed) and ``GET /v1/models``. Images are
used as they are sent, since the client has resized them: an image whose sides are on the family's grid is not touched,
unless it is outside of what the checkpoint's own processor allows. Any other goes through that processor, as on every
server.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stakes.errors import BadInput, InfeasibleBudget
from stakes.gateway.local_server.batching import DynamicBatcher, QueueFull
from stakes.gateway.local_server.replies import ApiError, Completion, completion_reply
from stakes.gateway.local_server.request import ApiRequest, read_request
from stakes.gateway.proxy.scan import Api
from stakes.models.base import Request as Question
from stakes.models.embedded import unsure
from stakes.models.identity import model_name, native_tokens
from stakes.vision.geometry import family

if TYPE_CHECKING:
    from stakes.models.local.vlm import LocalVLM


MOST_BYTES = 64 << 20  # of a request; the largest page of 16384 tokens as PNG is half of that
DISCONNECT_POLL_S = 0.25  # how often a waiting request checks whether its client is still there

log = logging.getLogger(__name__)


def create_model_app(
    model: LocalVLM, name: str, *, batch: int = 32, wait_s: float = 0.005, waiting: int = 512
) -> Starlette:
    """The app; the model answers at most ``batch`` requests at once, and ``waiting`` more may queue."""
    worker = ModelWorker(model)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.batcher = DynamicBatcher(worker.answer, most=batch, wait_s=wait_s, waiting=waiting)
        try:
            yield
        finally:
            await run_in_threadpool(app.state.batcher.close)

    async def answer(http: Request, api: Api) -> Response:
        request = await run_in_threadpool(read_request, await _read_json(http), name, api)
        try:
            completion = await _result_while_connected(http, http.app.state.batcher.submit(request))
        except QueueFull as error:
            raise ApiError(f"{error}; ask again in a second", 429, "too_many_requests", after_s=1) from None
        except (BadInput, InfeasibleBudget) as error:
            raise ApiError(str(error)) from None
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception as error:  # only in the log: a library's message may hold anything
            log.error("a request failed", exc_info=error)
            raise ApiError("the model failed; the server's log says why", 500, "model_failed") from None
        return completion_reply(api, name, completion, stream=request.stream, with_usage=request.stream_usage)

    async def list_models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model", "owned_by": "stakes"}]})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", partial(answer, api="chat"), methods=["POST"]),
            Route("/v1/responses", partial(answer, api="responses"), methods=["POST"]),
            Route("/v1/models", list_models, methods=["GET"]),
        ],
        lifespan=lifespan,
        exception_handlers={ApiError: _error_reply, HTTPException: _error_reply},
    )


def processor_bounds(model: LocalVLM) -> dict[str, int]:
    """Areas below and above which the checkpoint's own processor resizes images; empty for families without them."""
    if family(model.family).factor is None:
        return {}
    size = model.processor.images.size
    return {"min_pixels": int(size["shortest_edge"]), "max_pixels": int(size["longest_edge"])}


class ModelWorker:
    """Runs requests on the model and counts tokens as an engine does; used by one thread at a time."""

    def __init__(self, model: LocalVLM) -> None:
        self.model, named = model, model_name(model)
        self.name = "" if named is None else named.name
        self.context = int(model.model.config.get_text_config().max_position_embeddings)

    def answer(self, requests: Sequence[ApiRequest]) -> list[Completion]:
        """One answer for each; requests with the same answer length share the model's batches."""
        text_tokens = [len(self.model.processor.ids(one.question.question, 1)) - 1 for one in requests]
        by_length: dict[int, list[int]] = defaultdict(list)
        for i, request in enumerate(requests):
            by_length[self._answer_length(request, text_tokens[i])].append(i)
        completions: dict[int, Completion] = {}
        for length, members in by_length.items():
            model = self.model if length == self.model.max_new_tokens else replace(self.model, max_new_tokens=length)
            answers = model.answer([self._with_budget(requests[i].question) for i in members])
            for i, answer in zip(members, answers, strict=True):
                ids = self.model.processor.tokenizer(answer.text, add_special_tokens=False)["input_ids"]
                image, output = answer.realised_tokens, length if answer.truncated else 1 + len(ids)
                prompt, left_out = text_tokens[i] + image, requests[i].left_out
                sure = answer.confidence, unsure(self.name, answer.confidence)
                each = self._logprobs(ids, answer.logprobs) if requests[i].logprobs else None
                completions[i] = Completion(answer.text, answer.truncated, prompt, image, output, left_out, *sure, each)
        return [completions[i] for i in range(len(requests))]

    def _logprobs(self, ids: Sequence[int], logprobs: Sequence[float]) -> tuple[tuple[str, float], ...]:
        """The tokens of an answer, the end token included, with their log-probabilities."""
        texts = [self.model.processor.tokenizer.decode([one]) for one in ids]
        known = len(logprobs) - len(texts) in (0, 1)
        return tuple(zip([*texts, ""] if known else [""] * len(logprobs), logprobs, strict=False))

    def _with_budget(self, question: Question) -> Question:
        """A size on the family's grid becomes its own budget, so that fitting does not change the image."""
        width, height = question.image.size
        factor, bounds = family(self.model.family).factor, processor_bounds(self.model)
        if factor is None or width % factor or height % factor:
            return question
        if not bounds["min_pixels"] <= width * height <= bounds["max_pixels"]:
            return question
        return replace(question, budget=width * height // factor**2)

    def _answer_length(self, request: ApiRequest, text_tokens: int) -> int:
        length = self.model.max_new_tokens if request.max_tokens is None else request.max_tokens
        width, height = request.question.image.size
        image = native_tokens(self.model, width, height, "deletion")  # in the checkpoint's own bounds
        if text_tokens + image + length > self.context:
            raise BadInput(
                f"a text of {text_tokens} tokens, an image of {image} and an answer of up to {length} are more than "
                f"the {self.context} that this model can hold; send a smaller image or ask for a shorter answer"
            )
        return length


async def _read_json(http: Request) -> Any:
    data = bytearray()
    try:
        async for part in http.stream():
            data += part
            if len(data) > MOST_BYTES:
                most = MOST_BYTES >> 20
                raise ApiError(f"the request is larger than {most} MB; send a smaller image", 413, "too_large")
    except ClientDisconnect:
        raise ApiError("the request was cut off", 499, "cut_off") from None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ApiError("the body is not JSON", code="invalid_json") from None


async def _result_while_connected(http: Request, future: Future[Completion]) -> Completion:
    """The answer; if the client disconnects first, the request is cancelled."""
    waiting = asyncio.wrap_future(future)
    while not (await asyncio.wait({waiting}, timeout=DISCONNECT_POLL_S))[0]:
        if await http.is_disconnected():
            waiting.cancel()
            raise ClientDisconnect
    return waiting.result()


async def _error_reply(http: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        where = f"{http.method} {http.url.path}"
        error = ApiError(f"there is nothing at {where:.200} ({error.detail})", error.status_code, "not_found")
    assert isinstance(error, ApiError)
    return error.reply()


def load_served(name: str, max_tokens: int | None = None) -> LocalVLM:
    """The model of a local folder or a hub name; of the types that can be served."""
    from stakes.models import load
    from stakes.models.local.stock import StockVLM
    from stakes.models.local.vlm import LocalVLM

    loaded = load(name, max_new_tokens=max_tokens)
    if isinstance(loaded, StockVLM):
        kind = loaded.model.config.model_type
        raise BadInput(f"{name!r} is a {kind}, which is not served here; serve it with an engine and give its address")
    if not isinstance(loaded, LocalVLM):
        raise BadInput(f"{name!r} is not a model on this machine, so there is nothing to serve; give a folder")
    return loaded


def main(
    model: str, name: str | None = None, host: str = "127.0.0.1", port: int = 8000, max_tokens: int | None = None
) -> None:
    """Serve a local folder or a hub name. The address is printed once the server is ready."""
    from stakes.gateway.run import serve

    app = create_model_app(load_served(model, max_tokens), name or Path(model).name)
    serve(app, host, port, lambda address: print(f"{address}/v1", flush=True))


if __name__ == "__main__":
    import typer

    typer.run(main)
