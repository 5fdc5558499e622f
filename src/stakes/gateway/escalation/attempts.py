"""The attempts of one request whose tier escalates or reviews: ask, read the confidence, ask again, answer once.

| what happens | answer | tokens booked |
|---|---|---|
| the first answer is sure | the first | of the first attempt |
| it is unsure, and a second attempt was reserved | the second | of both |
| the second attempt fails: upstream, fit, the key's limit | the first | of both, or of the first if nothing was sent |
| the first attempt fails | the failure | as for any request |
| the client leaves | none | of the attempts that were sent |

The grant reserves both attempts before the first is sent (``budgets.options.grant``), so the total holds in every row.
The first attempt is held in memory where a second may follow, and a whole answer until its confidence is known. A
stream that is not held carries its confidence in comment lines before its last event.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp

from stakes.gateway.escalation.confidence import AnswerReader, asking
from stakes.gateway.proxy.decide import RequestPlan, may_have_read
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.upstream import NETWORK_ERRORS, SentBody, StreamEnd, is_stream, response_headers
from stakes.gateway.proxy.usage import UsageReader, compare_usage

if TYPE_CHECKING:
    from stakes.gateway.proxy.handler import ActiveRequest, ProxyHandler
    from stakes.gateway.proxy.request import ReceivedRequest

REFUSED = (400, 422)  # how servers answer a parameter that they do not take
MOST_HELD = 4 << 20  # bytes of an answer; with log-probabilities some 30,000 tokens
Ask = Callable[[SentBody], Awaitable[aiohttp.ClientResponse]]
Relay = Callable[[list[tuple[bytes, bytes]], UsageReader | None], Awaitable[None]]


@dataclass
class Held:
    """A response whose body was read; not ``whole`` where it is too long to be held, and its rest is still to come."""

    response: aiohttp.ClientResponse
    body: bytes
    whole: bool
    reader: AnswerReader

    async def send(self, active: "ActiveRequest", browsers: bool, headers: Any, usage: UsageReader | None) -> None:
        """Send a whole answer to the client."""
        if usage is not None:
            usage.feed(self.body)
        theirs = [one for one in response_headers(self.response.raw_headers, browsers) if one[0] != b"content-length"]
        length = (b"content-length", str(len(self.body)).encode())
        start = {"status": self.response.status, "headers": [*theirs, length, *headers]}
        await active.send({"type": "http.response.start", **start})
        await active.send({"type": "http.response.body", "body": self.body, "more_body": False})


class TwoAttempts:
    """One request that is asked for its confidence; ``ask`` sends a body to the upstream."""

    def __init__(
        self,
        handler: "ProxyHandler",
        active: "ActiveRequest",
        plan: RequestPlan,
        received: "ReceivedRequest",
        ask: Ask,
    ) -> None:
        assert plan.attempts is not None
        self._handler, self._active, self._plan, self._received = handler, active, plan, received
        self._ask, self._attempts = ask, plan.attempts
        self._confidence, self._metrics = handler.preparer.confidence, handler.monitors.metrics
        self._sent = SentBody(b"")

    async def serve(self) -> None:
        """Answer the client once."""
        try:
            answer = await self._first()
            if isinstance(answer, Held) and self._is_unsure(answer):
                answer = await self._again(answer)
        except BaseException as error:
            self._handler.unanswered(self._active, self._plan, self._sent, error)
            raise
        await self._relay(answer)

    def _body(self) -> SentBody:
        """The body of the current attempt, which asks for log-probabilities."""
        assert self._plan.body is not None
        return SentBody(self._plan.body if self._attempts.client_asked else asking(self._plan.body))

    async def _first(self) -> "Held | aiohttp.ClientResponse":
        """The first answer, or the response that is to be passed on as it comes."""
        self._sent = self._body()
        with self._metrics.attempts_in_flight.labels("first").track_inprogress():
            response = await self._ask(self._sent)
            if response.status in REFUSED and not (self._confidence.seen or self._attempts.client_asked):
                return await self._without_logprobs(response)
            if response.status != 200 or (is_stream(response) and not self._attempts.second):
                return response
            held = await self._hold(response)
        self._metrics.first_attempt.observe(self._active.seconds())
        return held

    async def _without_logprobs(self, refusal: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
        """Ask without log-probabilities, which the upstream may have refused; its status says that it read no image."""
        assert self._plan.body is not None
        sent = SentBody(self._plan.body)
        try:
            response = await self._ask(sent)
        except BaseException:
            refusal.close()
            raise
        if response.status in REFUSED:
            response.close()
            return refusal
        refusal.close()
        self._sent = sent
        self._attempts.take(None)
        if response.status == 200:  # any other status, as of a busy upstream, says nothing about the refusal
            self._confidence.refuse()
        return response

    def _is_unsure(self, answer: Held) -> bool:
        """Take over the confidence of a first answer; whether it is asked again."""
        if not answer.whole:
            self._attempts.take(None)
            self._attempts.result = "too long"
            return False
        self._confidence.add(answer.reader.found)
        return self._attempts.judge(answer.reader.confidence)

    async def _again(self, first: Held) -> "Held | aiohttp.ClientResponse":
        """The second answer, or the first where there is none."""
        plan, attempts, before = self._plan, self._attempts, self._plan.fitting
        confidence = "no confidence" if attempts.confidence is None else f"confidence {attempts.confidence:.3f}"
        usage = UsageReader(is_stream(first.response))
        usage.feed(first.body)
        compare_usage(self._metrics, plan, usage)
        sent, taken, status, why = SentBody(b""), 0, 0, "the client left"
        answer: Held | aiohttp.ClientResponse | None = None
        try:
            with self._metrics.attempts_in_flight.labels("second").track_inprogress():
                assert attempts.refit is not None
                await attempts.refit()
                taken = plan.take_second()
                sent = self._body()
                response = await self._ask(sent)
                status, why = response.status, f"the upstream answered {response.status}"
                if status == 200:
                    answer = response if is_stream(response) else await self._hold(response)
                else:
                    response.close()
        except Refused as refusal:
            why = refusal.code.replace("_", " ")
        finally:
            if answer is None:  # the first one stands, or the client has left
                plan.second_failed(before, sent.begun and (not status or may_have_read(status)), taken)
                plan.why += f"; {confidence}, but the second attempt failed: {why}"
                attempts.result = "failed"
        if answer is None:
            return first
        plan.second_answered(before)
        plan.why += f"; {confidence} at {','.join(map(str, before.budgets))} tokens: asked again"
        attempts.count, attempts.result = 2, "answered"
        attempts.take(answer.reader.confidence if isinstance(answer, Held) else None)
        return answer

    async def _hold(self, response: aiohttp.ClientResponse) -> Held:
        """Read a response; 502 where its end is missing."""
        streamed = is_stream(response)
        reader = AnswerReader(streamed, strip=not self._attempts.client_asked)
        end = StreamEnd(response, self._plan.api) if streamed else None
        parts, size = list[bytes](), 0
        try:
            while chunk := await response.content.readany():
                parts.append(chunk)
                size += len(chunk)
                if end is not None:
                    end.feed(chunk)
                if size > MOST_HELD or not self._counted(len(chunk)):
                    return Held(response, b"".join(parts), False, reader)
        except NETWORK_ERRORS as error:
            kind = "read_timeout" if isinstance(error, TimeoutError) else "dropped"
            raise self._broken(response, kind) from None
        except BaseException:  # the client left: the upstream need not finish
            response.close()
            raise
        if end is not None and end.missing:
            raise self._broken(response, "cut_off")
        return Held(response, reader.feed(b"".join(parts)) + reader.end(), True, reader)

    def _broken(self, response: aiohttp.ClientResponse, kind: str) -> Refused:
        response.close()
        self._metrics.upstream_errors.labels(kind).inc()
        return Refused(502, f"upstream_{kind}", "the upstream failed in the middle of its response")

    def _counted(self, count: int) -> bool:
        """Count bytes as being in memory; False where there are too many, and no more of this answer is held."""
        try:
            self._handler.hold(self._active, count)
        except Refused:
            return False
        return True

    async def _relay(self, answer: "Held | aiohttp.ClientResponse") -> None:
        """Send the answer to the client, and settle."""
        response = answer.response if isinstance(answer, Held) else answer
        upstream, active, attempts = self._handler.upstream, self._active, self._attempts
        relay: Relay
        if isinstance(answer, Held) and answer.whole:
            relay = partial(answer.send, active, upstream.answers_browsers)
        else:
            reader, before = None, answer.body if isinstance(answer, Held) else b""
            if is_stream(response) and response.status == 200:
                attempts.in_stream = True
                reader = AnswerReader(True, not attempts.client_asked, self._end_stream)
            relay = partial(upstream.relay, response, active.send, self._plan.api, answer=reader, before=before)
        try:
            await self._handler.relay_images(active, response, self._plan, self._received, relay)
        finally:
            response.release() if active.send.over else response.close()

    def _end_stream(self, reader: AnswerReader) -> bytes:
        """A stream that was not held ends: take over its confidence, and say it in a comment."""
        self._confidence.add(reader.found)
        if self._attempts.count > 1 or self._attempts.result == "too long":
            self._attempts.take(reader.confidence)
        else:
            self._attempts.judge(reader.confidence)
        return self._attempts.comment()
