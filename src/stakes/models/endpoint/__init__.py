"""A model behind an OpenAI-compatible server: budgets by resizing here, token counts checked against the server's.

    model = EndpointVLM("http://127.0.0.1:8000/v1", family="qwen2.5-vl")
    answer, = model.answer([Request("invoice.png", "What is the total?", budget=256)])

An image is fitted to its budget and sent as PNG, at a size that the server's own processor does not change; with no
budget it is sent as it is. The server's token count for it must equal the predicted one. A reply without text is
retried and then an error; it never becomes an answer. The server must be greedy at temperature 0 for a run to repeat.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Literal

from stakes.errors import BadInput, LedgerBreach, StakesError
from stakes.http import HttpClient, Retries, Stopped, public_address
from stakes.models.base import MAX_NEW_TOKENS, SUFFIX, Answer, Mechanism, Request, confidence_of
from stakes.models.endpoint.chat import EncodedImage, chat_body, encode_image, model_names, read_reply, set_parameter
from stakes.models.endpoint.token_check import ServerTokens
from stakes.models.identity import ModelName, family_parts
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry import tokens_as_sent
from stakes.vision.geometry.menus import ActuatorName, check_actuator, menu


@dataclass(frozen=True)
class EndpointOptions(Retries):
    """Less common options of an endpoint, beside its retries.

    ``check``: what happens when the server counts other tokens than predicted; "error" raises ``LedgerBreach``,
    "record" keeps the server's count. ``empty``: whether a finished reply of no text is an "error" or an "answer" (an
    empty one, as a local model may give). ``logprobs``: ask for log-probabilities, from which an answer's confidence is
    computed; some servers refuse them. ``extra``: more fields of the request's body; None removes a field, as in
    ``{"max_tokens": None, "max_completion_tokens": 16}``. ``actuator``: how budgets reach the server: by resizing,
    or by a parameter of its engine (``geometry.menus``); then budgets are the entries of its menu.
    """

    check: Literal["error", "record"] = "error"
    empty: Literal["error", "answer"] = "error"
    logprobs: bool = False
    extra: Mapping[str, Any] | None = None
    actuator: ActuatorName = "pixels"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.check not in ("error", "record") or self.empty not in ("error", "answer"):
            raise BadInput(
                f"check is error or record, and empty is error or answer, not {self.check!r} and {self.empty!r}"
            )


class EndpointVLM:
    """One model behind one server; at most ``concurrency`` requests in flight, over all threads that ask.

    ``model``: None for the only one that the server has. ``options``: the fields of ``EndpointOptions``: tries,
    timeout_s, pause_s, longest_pause_s, check, empty, logprobs, extra. ``server_counts``: how often the server's token
    count "agreed", "differed" or was "unknown".
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: str | None = None,
        *,
        family: str = "qwen2.5-vl",
        concurrency: int = 8,
        max_new_tokens: int = MAX_NEW_TOKENS,
        **options: Any,
    ) -> None:
        if concurrency < 1:
            raise BadInput(f"concurrency must be at least one request, not {concurrency!r}")
        if max_new_tokens < 1:
            raise BadInput(f"an answer is at least one token long, not {max_new_tokens}")
        self.family, self.max_new_tokens = named_family(family).name, max_new_tokens
        self.server_counts: Counter[str] = Counter()
        self._counts_lock = threading.Lock()
        self._options = EndpointOptions(**options)
        check_actuator(self._options.actuator, self.family)
        self.menu = menu(self._options.actuator, self.family)
        self._slots, self._concurrency = threading.BoundedSemaphore(concurrency), concurrency
        self._client = HttpClient(base_url, api_key, self._options, connections=concurrency)
        self._tokens = ServerTokens(self._client, lambda question: self._body(question, None))
        self.model = model or self._only_model()
        length = None if max_new_tokens == MAX_NEW_TOKENS else max_new_tokens
        actuator = None if self._options.actuator == "pixels" else self._options.actuator
        self.named = ModelName(name=self.model, endpoint=public_address(base_url), max_tokens=length, actuator=actuator)

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """One answer for each request, in order; if any fails, all of them."""
        answers: dict[int, Answer] = {}
        try:
            answers.update(self.answer_each(requests))
        except StakesError as error:
            if len(requests) == 1:
                raise
            answered = f"{len(answers)} of the {len(requests)} requests of this batch had been answered"
            raise type(error)(f"{error} ({answered})") from error
        return [answers[i] for i in range(len(requests))]

    def answer_each(self, requests: Sequence[Request]) -> Iterator[tuple[int, Answer]]:
        """Each answer with its request's index, as they arrive; one does not depend on what else is asked.

        The first failure stops the rest. Requests in flight are waited for and yielded, then the failure is raised.
        """
        for request in requests:
            if request.budget is not None or self._options.actuator != "vllm-deletion":
                self._require_mechanism(request.mechanism)
            if len(request.parts) > 1:
                raise BadInput("several images in one request are for a model on this machine; ask an endpoint by one")
        results: SimpleQueue[tuple[int, Answer] | Exception | None] = SimpleQueue()  # None: a thread has ended
        indices, encoding, stop = iter(range(len(requests))), threading.Lock(), threading.Event()
        encoded: dict[tuple[int, int | None, Any], EncodedImage] = {}

        def work() -> None:
            try:
                while not stop.is_set():
                    with encoding:  # images are fitted one at a time, while other requests are in flight
                        i = next(indices, None)
                        if i is None:
                            return
                        image, new = encode_image(requests[i], self.family, encoded, self._options.actuator)
                    with self._slots:
                        results.put((i, self._answer(requests[i], image, new, stop)))
            except Stopped:
                pass
            except Exception as error:
                stop.set()
                results.put(error)
            finally:
                results.put(None)

        # Daemons, so that Ctrl-C does not wait for a server that is silent.
        running = min(self._concurrency, len(requests))
        threads = [threading.Thread(target=work, daemon=True, name=f"stakes-endpoint-{n}") for n in range(running)]
        failure: Exception | None = None
        try:
            for thread in threads:
                thread.start()
            while running:
                match results.get():
                    case None:
                        running -= 1
                    case Exception() as error:
                        failure = failure or error
                    case pair:
                        yield pair
        finally:
            stop.set()
        if failure is not None:
            raise failure

    def identity(self) -> dict[str, str]:
        """Everything known here that could change an answer. The address is not part of it: a server may move."""
        by = {} if self.named.actuator is None else {"actuator": str(self.named.actuator)}
        return {
            **family_parts(self.family),
            **by,
            "model": self.model,
            "prompt": SUFFIX.strip(),
            "length": str(self.max_new_tokens),
            "extra": repr(sorted((self._options.extra or {}).items())),
        }

    def native_tokens(self, width: int, height: int, mechanism: Mechanism) -> int:
        """What an image of this size takes with no budget; with a menu, its largest entry, which holds every image."""
        self._require_mechanism(mechanism)
        return tokens_as_sent(self.family, width, height) if self.menu is None else self.menu[-1]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> EndpointVLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_mechanism(self, mechanism: Mechanism) -> None:
        deletes = self._options.actuator == "vllm-deletion"
        if deletes and mechanism == "resolution":
            raise BadInput("the actuator vllm-deletion deletes tokens; use the mechanism deletion")
        if mechanism != ("deletion" if deletes else "resolution"):
            raise BadInput(
                f"{mechanism} works inside a model, and this one is behind {self._client.server}; use resolution, or "
                "deletion with the actuator vllm-deletion and a vLLM that has the plugin of stakes"
            )

    def _answer(self, request: Request, image: EncodedImage, new: bool, stop: threading.Event) -> Answer:
        body = self._body(request.question, image.url) | ({"logprobs": True} if self._options.logprobs else {})
        if image.setting is not None:
            set_parameter(body, self._options.actuator, image.setting)
        read = partial(read_reply, allow_empty=self._options.empty == "answer")
        reply, ms = self._client.request("POST", self._client.url("chat/completions"), body, read, stop)
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
            confidence=confidence_of(reply.logprobs),
        )

    def _compare(self, counted: int | None, image: EncodedImage, request: Request) -> None:
        """Record and check the server's count; with no budget the server's own bounds hold and nothing is checked."""
        verdict = "unknown" if counted is None else "agreed" if counted == image.tokens else "differed"
        with self._counts_lock:
            self.server_counts[verdict] += 1
        if verdict == "differed" and request.budget is not None and self._options.check == "error":
            advice = "check the family, and that the server resizes no image itself (min_pixels, max_pixels)"
            if image.setting is not None:
                advice = f"it ignores the parameter of the actuator {self._options.actuator} ({image.setting})"
            took = f"took {counted} on {self._client.server}"
            raise LedgerBreach(f"an image fitted to {image.tokens} tokens of {self.family} {took}; {advice}")

    def _body(self, question: str, url: str | None) -> dict[str, Any]:
        detail = named_family(self.family).engine_parameter == "detail"
        return chat_body(self.model, question, url, self.max_new_tokens, self._options.extra, high_detail=detail)

    def _only_model(self) -> str:
        try:
            names, _ = self._client.request("GET", self._client.url("models"), None, model_names)
            if len(names) != 1:
                listed = ", ".join(names) or "none"
                raise BadInput(
                    f"{self._client.server} has {len(names)} models ({listed}); name the one to ask as model="
                )
        except BaseException:
            self.close()  # nobody else can: there is no endpoint yet
            raise
        return names[0]
