"""Who serves the model on this machine? An OpenAI-compatible app over it, which batches what comes together.

    python -m stakes.gateway.local_server.app ./my-vlm --port 8000
    stakes calibrate samples.jsonl --endpoint http://127.0.0.1:8000/v1

``POST /v1/chat/completions`` and ``POST /v1/responses`` (whole or streamed) and ``GET /v1/models``. Images are taken as
they are sent, since the client has resized them: one whose sides are on the family's grid is not touched, unless it is
above what the checkpoint's own processor allows. Any other goes through that processor, as on every server.
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
from stakes.gateway.local_server.batching import Full, Gathering
from stakes.gateway.local_server.replies import Refused, Told, completion, events, models, response, response_events
from stakes.gateway.local_server.request import Ask, read_ask
from stakes.gateway.proxy.request import Api
from stakes.models.base import Request as Question
from stakes.models.identity import native_tokens
from stakes.vision.geometry import family

if TYPE_CHECKING:
    from stakes.models.local.vlm import LocalVLM


MOST_BYTES = 64 << 20  # of a request; the largest page of 16384 tokens as PNG is half of that
LOOK_S = 0.25  # how often somebody who waits is looked after

log = logging.getLogger(__name__)


def app_of(model: LocalVLM, name: str, *, batch: int = 32, wait_s: float = 0.005, waiting: int = 512) -> Starlette:
    """The app; ``batch`` requests at most are put to the model at once, ``waiting`` more may wait for their turn."""
    desk = Desk(model)

    @asynccontextmanager
    async def open_for_business(app: Starlette) -> AsyncIterator[None]:
        gathering = app.state.gathering = Gathering(desk.answer, most=batch, wait_s=wait_s, waiting=waiting)
        try:
            yield
        finally:
            await run_in_threadpool(gathering.close)

    async def answer(request: Request, api: Api) -> Response:
        body = await _body(request)
        ask = await run_in_threadpool(read_ask, body, name, api)
        try:
            told = await _when_told(request, request.app.state.gathering.submit(ask))
        except Full as error:
            raise Refused(f"{error}; ask again in a second", 429, "too_many_requests", after_s=1) from None
        except (BadInput, InfeasibleBudget) as error:
            raise Refused(str(error)) from None
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception as error:  # it stays in the log: a message of some library may hold anything
            log.error("a request failed", exc_info=error)
            raise Refused("the model failed; the server's log says why", 500, "model_failed") from None
        if ask.stream:
            said = events(name, told, with_usage=ask.stream_usage) if api == "chat" else response_events(name, told)
            return Response("".join(said), media_type="text/event-stream")
        return JSONResponse(completion(name, told) if api == "chat" else response(name, told))

    async def listed(_: Request) -> Response:
        return JSONResponse(models(name))

    return Starlette(
        routes=[
            Route("/v1/chat/completions", partial(answer, api="chat"), methods=["POST"]),
            Route("/v1/responses", partial(answer, api="responses"), methods=["POST"]),
            Route("/v1/models", listed, methods=["GET"]),
        ],
        lifespan=open_for_business,
        exception_handlers={Refused: _refused, HTTPException: _no_such_page},
    )


class Desk:
    """Puts what was asked to the model, and counts tokens as an engine does; used by one thread at a time."""

    def __init__(self, model: LocalVLM) -> None:
        self.model = model
        self.context = int(model.model.config.get_text_config().max_position_embeddings)

    def answer(self, asks: Sequence[Ask]) -> list[Told]:
        """One answer for each; those of one answer length share the model's batches."""
        text_tokens = [len(self.model.processor.ids(ask.question, 1)) - 1 for ask in asks]
        by_length: dict[int, list[int]] = defaultdict(list)
        for i, ask in enumerate(asks):
            by_length[self._length(ask, text_tokens[i])].append(i)
        told: dict[int, Told] = {}
        for length, members in by_length.items():
            model = self.model if length == self.model.max_new_tokens else replace(self.model, max_new_tokens=length)
            answers = model.answer([self._question(asks[i]) for i in members])
            for i, answer in zip(members, answers, strict=True):
                words = length if answer.truncated else 1 + len(self._ids(answer.text))
                image = answer.realised_tokens
                told[i] = Told(answer.text, answer.truncated, text_tokens[i] + image, image, words, asks[i].left_out)
        return [told[i] for i in range(len(asks))]

    def _question(self, ask: Ask) -> Question:
        """A size on the family's grid is given as its own budget, to which fitting is the identity."""
        width, height = ask.image.size
        kind, bounds = family(self.model.family), self.model.processor.images.size
        if kind.factor is None or kind.min_pixels is None or width % kind.factor or height % kind.factor:
            return Question(ask.image, ask.question)
        if not kind.min_pixels <= width * height <= int(bounds["longest_edge"]):
            return Question(ask.image, ask.question)
        return Question(ask.image, ask.question, budget=width * height // kind.factor**2)

    def _length(self, ask: Ask, text_tokens: int) -> int:
        length = self.model.max_new_tokens if ask.max_tokens is None else ask.max_tokens
        image = native_tokens(self.model, *ask.image.size, "deletion")  # within the checkpoint's own bounds
        if text_tokens + image + length > self.context:
            raise BadInput(
                f"a text of {text_tokens} tokens, an image of {image} and an answer of up to {length} are more than "
                f"the {self.context} that this model can hold; send a smaller image or ask for a shorter answer"
            )
        return length

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.model.processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


async def _body(request: Request) -> Any:
    data = bytearray()
    try:
        async for part in request.stream():
            data += part
            if len(data) > MOST_BYTES:
                most = MOST_BYTES >> 20
                raise Refused(f"the request is larger than {most} MB; send a smaller image", 413, "too_large")
    except ClientDisconnect:
        raise Refused("the request was cut off", 499, "cut_off") from None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise Refused("the body is not JSON", code="invalid_json") from None


async def _when_told(request: Request, future: Future[Told]) -> Told:
    """The answer, unless whoever asked hangs up: then it is not asked for any more."""
    waiting = asyncio.wrap_future(future)
    while not (await asyncio.wait({waiting}, timeout=LOOK_S))[0]:
        if await request.is_disconnected():
            waiting.cancel()
            raise ClientDisconnect
    return waiting.result()


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error.reply()


async def _no_such_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    return Refused(f"there is nothing at {where:.200} ({error.detail})", error.status_code, "not_found").reply()


def main(
    model: str,
    name: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    max_tokens: int | None = None,
) -> None:
    """Serve a local folder or a hub name; the address is printed once it can be asked."""
    from stakes.gateway.run import serve
    from stakes.models import load
    from stakes.models.local.vlm import LocalVLM

    loaded = load(model, max_new_tokens=max_tokens)
    if not isinstance(loaded, LocalVLM):
        raise BadInput(f"{model!r} is not a model on this machine, so there is nothing to serve; give a folder")
    app = app_of(loaded, name or Path(model).name)
    serve(app, host, port, lambda address: print(f"{address}/v1", flush=True))


if __name__ == "__main__":
    import typer

    typer.run(main)
