"""An external processor for Envoy (``envoy.filters.http.ext_proc``): it fits a request, and answers are not sent to it.

    await serve(decisions, "127.0.0.1:9002", ready=print)

For each request Envoy sends its headers and its whole body (BUFFERED), and gets the body with fitted images, or a
refusal to answer with. Of the response Envoy sends the headers alone: their status settles the budget, and the
``x-stakes-`` headers are added. A request without a body is let go after its headers.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.service.ext_proc.v3.external_processor_pb2_grpc import (
    ExternalProcessorServicer,
    add_ExternalProcessorServicer_to_server,
)
from envoy.type.v3.http_status_pb2 import HttpStatus

from stakes.gateway.in_process import InProcess
from stakes.gateway.monitoring.logs import Log, without_quotes
from stakes.gateway.proxy.decide import RequestPlan, may_have_read
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.http_limits import unpack, unpacked_size
from stakes.gateway.proxy.scan import Action, route_of

_SPARE = 1 << 20  # of a message, for headers
_SET = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
_BODY_HEADERS = ("content-encoding", "content-md5", "digest", "content-digest")
Messages = AsyncIterator[ext_proc.ProcessingRequest]


class BudgetProcessor(ExternalProcessorServicer):  # type: ignore[misc]
    """Serves the streams of Envoy, one for each request."""

    def __init__(self, decisions: InProcess) -> None:
        self._decisions, self._log = decisions, Log()

    async def Process(self, request_iterator: Messages, _: Any) -> AsyncIterator[ext_proc.ProcessingResponse]:  # noqa: N802
        """One request: its headers, its body, then the headers of its response."""
        exchange = Exchange(self._decisions, self._log)
        try:
            async for message in request_iterator:
                yield await exchange.answer(message)
        finally:
            exchange.end()


class Exchange:
    """One request on its way through Envoy."""

    def __init__(self, decisions: InProcess, log: Log) -> None:
        self._decisions, self._log = decisions, log
        self._headers: dict[bytes, bytes] = {}
        self._action: Action = "pass"
        self._plan: RequestPlan | None = None

    async def answer(self, message: ext_proc.ProcessingRequest) -> ext_proc.ProcessingResponse:
        """The answer to one message of Envoy."""
        kind = message.WhichOneof("request")
        try:
            if kind == "request_headers":
                return self._begin(message.request_headers)
            if kind == "request_body":
                return await self._fit(message.request_body.body)
            if kind == "response_headers":
                return self._answered(_headers_of(message.response_headers))
        except Refused as refusal:
            return self._refuse(refusal)
        except Exception as error:
            self._log.write("request failed", logging.ERROR, failure=error)
            return self._refuse(Refused(500, "internal_error", "the gateway failed"))
        raise ValueError(f"Envoy sent {kind}, which the processing mode of its filter must leave out")

    def _begin(self, message: ext_proc.HttpHeaders) -> ext_proc.ProcessingResponse:
        """Read the headers; a request without a body is let go."""
        self._headers = _headers_of(message)
        path = self._headers.get(b":path", b"").partition(b"?")[0].decode("latin-1")
        self._action = route_of(self._headers.get(b":method", b"").decode("latin-1"), path)
        let_go = self._action == "pass" or message.end_of_stream
        mode = ProcessingMode(
            request_body_mode=ProcessingMode.NONE, response_header_mode=ProcessingMode.SKIP
        ) if let_go else None  # fmt: skip
        common = ext_proc.CommonResponse(header_mutation=self._without_own())
        return ext_proc.ProcessingResponse(
            request_headers=ext_proc.HeadersResponse(response=common), mode_override=mode
        )

    async def _fit(self, body: bytes) -> ext_proc.ProcessingResponse:
        """The body with fitted images; none where it stays as it is."""
        encoding = self._headers.get(b"content-encoding", b"").strip().lower()
        decisions, text = self._decisions, body
        if encoding:
            most = decisions.settings.limits.body_bytes
            text = await decisions.workers.run_for(unpacked_size(body, encoding, most), unpack, body, encoding, most)
        self._plan = await decisions.plan(self._action, text, self._headers) if body else None
        fitted = None if self._plan is None else self._plan.body
        if fitted is None:
            return ext_proc.ProcessingResponse(request_body=ext_proc.BodyResponse())
        mutation = _mutation({"content-length": str(len(fitted))}, _BODY_HEADERS)
        common = ext_proc.CommonResponse(header_mutation=mutation, body_mutation=ext_proc.BodyMutation(body=fitted))
        return ext_proc.ProcessingResponse(request_body=ext_proc.BodyResponse(response=common))

    def _answered(self, headers: Mapping[bytes, bytes]) -> ext_proc.ProcessingResponse:
        """Settle by the status of the response, and add the headers."""
        plan, self._plan = self._plan, None
        if plan is None:
            return ext_proc.ProcessingResponse(response_headers=ext_proc.HeadersResponse())
        status = int(headers.get(b":status", b"0"))
        plan.settle(may_have_read(status))
        self._write(plan, status, "answered")
        own = {name.decode(): value.decode("ascii") for name, value in plan.headers(self._decisions.settings.mode)}
        common = ext_proc.CommonResponse(header_mutation=_mutation(own))
        return ext_proc.ProcessingResponse(response_headers=ext_proc.HeadersResponse(response=common))

    def _refuse(self, refusal: Refused) -> ext_proc.ProcessingResponse:
        headers, body = refusal.reply(self._action)
        given = {name.decode(): value.decode("latin-1") for name, value in headers if name != b"connection"}
        self._log.write("refused", logging.WARNING, status=refusal.status, reason=refusal.code)
        status: Any = refusal.status
        return ext_proc.ProcessingResponse(
            immediate_response=ext_proc.ImmediateResponse(
                status=HttpStatus(code=status), headers=_mutation(given), body=body, details=refusal.code
            )
        )

    def _without_own(self) -> ext_proc.HeaderMutation:
        own = [name.decode("latin-1") for name in self._headers if name.startswith(b"x-stakes-")]
        return ext_proc.HeaderMutation(remove_headers=own)

    def _write(self, plan: RequestPlan, status: int | None, result: str) -> None:
        self._log.write(
            "request", path=self._headers.get(b":path", b"").decode("latin-1"), status=status, result=result,
            **plan.decision(), why=without_quotes(plan.why), images=plan.images, booked=plan.booked,
        )  # fmt: skip

    def end(self) -> None:
        """The stream is over: images of a request that Envoy may have sent on count as read."""
        plan, self._plan = self._plan, None
        if plan is not None:
            plan.settle(read=True)
            self._write(plan, None, "cancelled")


def _headers_of(message: ext_proc.HttpHeaders) -> dict[bytes, bytes]:
    """Names are in lower case in Envoy."""
    return {one.key.encode("latin-1"): one.raw_value or one.value.encode("latin-1") for one in message.headers.headers}


def _mutation(headers: Mapping[str, str], removed: tuple[str, ...] = ()) -> ext_proc.HeaderMutation:
    options = [
        HeaderValueOption(header=HeaderValue(key=name, raw_value=value.encode("latin-1")), append_action=_SET)
        for name, value in headers.items()
    ]
    return ext_proc.HeaderMutation(set_headers=options, remove_headers=removed)


async def serve(
    decisions: InProcess, address: str, ready: Callable[[int], None], stop: Callable[[], Awaitable[Any]], end_s: float
) -> None:
    """Serve until ``stop`` returns; ``ready`` gets the port. Streams then have ``end_s`` to end."""
    most = decisions.settings.limits.body_bytes + _SPARE  # gRPC's own limit is 4 MB
    options = [("grpc.max_receive_message_length", most), ("grpc.max_send_message_length", most)]
    server = grpc.aio.server(options=options)
    add_ExternalProcessorServicer_to_server(BudgetProcessor(decisions), server)
    port = server.add_insecure_port(address)
    await server.start()
    ready(port)
    try:
        await stop()
    finally:
        await server.stop(end_s)
        await asyncio.to_thread(decisions.close)
