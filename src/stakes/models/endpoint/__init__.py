"""How does a model behind an OpenAI-compatible server answer? Budgets by resizing here, tokens checked against it.

    model = EndpointVLM("http://127.0.0.1:8000/v1", family="qwen2.5-vl")
    answer, = model.answer([Request("invoice.png", "What is the total?", budget=256)])

An image is fitted to its budget and sent as PNG, at a size that the server's own processor leaves as it is; with no
budget it is sent as it is. What the server counted for it must be what was predicted. A reply without text is retried
and then an error: it never becomes an answer. The server must be greedy at temperature 0 for a run to repeat.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Literal

from stakes.errors import BadInput, LedgerBreach, StakesError
from stakes.models.base import MAX_NEW_TOKENS, SUFFIX, Answer, Mechanism, Request
from stakes.models.endpoint.chat import Reply, Sent, chat_body, model_names, read_reply, send_once
from stakes.models.endpoint.token_check import ServerTokens
from stakes.models.wire import Stopped, Wire
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry import tokens_as_sent


class EndpointVLM:
    """One model behind one server; at most ``concurrency`` requests at once, over all threads that ask.

    ``model``: None for the only one that the server has. ``check``: what happens when the server counts other tokens
    than predicted; "error" raises ``LedgerBreach``, "record" keeps the server's count. ``empty``: whether a reply of no
    text that the server calls finished is an "error" or an "answer" (of nothing, as a model on this machine may give).
    ``extra``: more fields of the request's body; one that is None is left out, such as ``{"max_tokens": None,
    "max_completion_tokens": 16}``. ``server_counts``: how often the server's count "agreed", "differed", was "unknown".
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: str | None = None,
        *,
        family: str = "qwen2.5-vl",
        concurrency: int = 8,
        timeout_s: float = 120.0,
        tries: int = 5,
        max_new_tokens: int = MAX_NEW_TOKENS,
        check: Literal["error", "record"] = "error",
        empty: Literal["error", "answer"] = "error",
        extra: Mapping[str, Any] | None = None,
        pause_s: float = 1.0,
        longest_pause_s: float = 60.0,
    ) -> None:
        if concurrency < 1:
            raise BadInput(f"at least one request is asked at a time, not {concurrency!r}")
        if max_new_tokens < 1:
            raise BadInput(f"an answer is at least one token long, not {max_new_tokens}")
        if check not in ("error", "record") or empty not in ("error", "answer"):
            raise BadInput(f"check is error or record, and empty is error or answer, not {check!r} and {empty!r}")
        self.family, self.max_new_tokens = named_family(family).name, max_new_tokens
        self.server_counts: Counter[str] = Counter()
        self._verdicts = threading.Lock()
        self._check, self._empty, self._extra = check, empty, dict(extra or {})
        self._slots, self._concurrency = threading.BoundedSemaphore(concurrency), concurrency
        self._wire = Wire(
            base_url,
            api_key,
            tries=tries,
            timeout_s=timeout_s,
            pause_s=pause_s,
            longest_pause_s=longest_pause_s,
            connections=concurrency,
        )
        self._tokens = ServerTokens(self._wire, lambda question: self._body(question, None))
        self.model = model or self._only_model()

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """One answer for each request, in order; if any fails, all of them."""
        answers: dict[int, Answer] = {}
        try:
            answers.update(self.answer_each(requests))
        except StakesError as error:
            raise _told_with(error, len(answers), len(requests)) from error
        return [answers[i] for i in range(len(requests))]

    def answer_each(self, requests: Sequence[Request]) -> Iterator[tuple[int, Answer]]:
        """Each answer with its request's place, as they come: one does not depend on what else is asked.

        The first that fails stops the rest; those on their way are waited for and handed out, then it is raised.
        """
        for request in requests:
            self._refuse(request.mechanism)
        came: SimpleQueue[tuple[int, Answer] | Exception | None] = SimpleQueue()  # None: a thread has ended
        turns, turn, stop = iter(range(len(requests))), threading.Lock(), threading.Event()
        made: dict[tuple[int, int | None], Sent] = {}

        def work() -> None:
            try:
                while not stop.is_set():
                    with turn:  # images are fitted one at a time, while others are on their way
                        i = next(turns, None)
                        if i is None:
                            return
                        image, new = send_once(requests[i], self.family, made)
                    with self._slots:
                        came.put((i, self._answer(requests[i], image, new, stop)))
            except Stopped:
                pass
            except Exception as error:
                stop.set()
                came.put(error)
            finally:
                came.put(None)

        # Daemons, so that Ctrl-C does not wait for a server that is silent.
        count = min(self._concurrency, len(requests))
        threads = [threading.Thread(target=work, daemon=True, name=f"stakes-endpoint-{n}") for n in range(count)]
        failure: Exception | None = None
        try:
            for thread in threads:
                thread.start()
            while count:
                match came.get():
                    case None:
                        count -= 1
                    case Exception() as error:
                        failure = failure or error
                    case pair:
                        yield pair
        finally:
            stop.set()
        if failure is not None:
            raise failure

    def identity(self) -> dict[str, str]:
        """Whatever could change an answer and can be known from here; the address is no part, so a server may move."""
        return {
            "family": self.family,
            "model": self.model,
            "prompt": SUFFIX.strip(),
            "length": str(self.max_new_tokens),
            "extra": repr(sorted(self._extra.items())),
        }

    def native_tokens(self, width: int, height: int, mechanism: Mechanism) -> int:
        """What an image of this size takes with no budget."""
        self._refuse(mechanism)
        return tokens_as_sent(self.family, width, height)

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()

    def __enter__(self) -> EndpointVLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse(self, mechanism: Mechanism) -> None:
        if mechanism != "resolution":
            raise BadInput(
                f"{mechanism} works inside a model, and this one is behind {self._wire.where}; use resolution"
            )

    def _answer(self, request: Request, image: Sent, new: bool, stop: threading.Event) -> Answer:
        body = self._body(request.question, image.url)
        reply, ms = self._wire.ask("POST", self._wire.at("chat/completions"), body, self._read, stop)
        counted = self._tokens.of_image(reply.usage, request.question, image.tokens, stop)
        self._compare(counted, image, request)
        realised = image.tokens if counted is None else counted
        return Answer(
            text=reply.text,
            native_tokens=realised if request.budget is None else image.native,
            budget=request.budget,
            realised_tokens=realised,
            truncated=reply.truncated,
            timings={"host": image.ms if new else 0.0, "server": ms},
            input_tokens=realised,
            layer_tokens=float(realised),
            encoder_tokens=realised,
        )

    def _compare(self, counted: int | None, image: Sent, request: Request) -> None:
        """With no budget the server's own bounds hold, whatever they are, so nothing is compared."""
        verdict = "unknown" if counted is None else "agreed" if counted == image.tokens else "differed"
        with self._verdicts:
            self.server_counts[verdict] += 1
        if verdict == "differed" and request.budget is not None and self._check == "error":
            raise LedgerBreach(
                f"an image fitted to {image.tokens} tokens of {self.family} took {counted} on {self._wire.where}; "
                "check the family, and that the server resizes no image itself (min_pixels, max_pixels)"
            )

    def _body(self, question: str, url: str | None) -> dict[str, Any]:
        detail = named_family(self.family).engine_parameter == "detail"
        return chat_body(self.model, question, url, self.max_new_tokens, self._extra, high_detail=detail)

    def _read(self, reply: Any) -> Reply:
        return read_reply(reply, allow_empty=self._empty == "answer")

    def _only_model(self) -> str:
        try:
            names, _ = self._wire.ask("GET", self._wire.at("models"), None, model_names)
            if len(names) != 1:
                listed = ", ".join(names) or "none"
                raise BadInput(f"{self._wire.where} has {len(names)} models ({listed}); name the one to ask as model=")
        except BaseException:
            self.close()  # nobody else can: there is no endpoint yet
            raise
        return names[0]


def _told_with(error: StakesError, came: int, asked: int) -> StakesError:
    """The failure with how many answers had come, which ``answer`` cannot hand out."""
    if asked == 1:
        return error
    return type(error)(f"{error} ({came} of the {asked} answers asked for together had come)")
