"""The confidence of an answer as it comes from the upstream: ask for log-probabilities, read them, take them out again.

    asking(b'{"model":"m"}')                              # b'{"model":"m","logprobs":true}'
    reader = AnswerReader(streamed=False, strip=True)
    client_body = reader.feed(body) + reader.end()
    reader.confidence                                     # 0.93: exp(mean log-probability), as calibration computes it

Log-probabilities that the client did not ask for are set to null, as servers write them that were not asked.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stakes.budgets.options.tier_plan import TierOption
from stakes.budgets.policy import Policy
from stakes.models.base import choice_logprobs, confidence_of

if TYPE_CHECKING:
    from stakes.gateway.monitoring.metrics import Metrics

ENOUGH = 3  # answers in a row without log-probabilities, after which none are expected
LONGEST_LINE = 1 << 20  # bytes of one event; a longer one is passed on unread
_DONE = b"data: [DONE]", b"data:[DONE]"


def asking(body: bytes) -> bytes:
    """The body of a chat request that also asks for log-probabilities; ``prepare_record`` came before."""
    return body[:-1] + b',"logprobs":true}'


def prepare_record(record: dict[str, Any]) -> bool:
    """Remove a ``logprobs`` that asks for none, so that ``asking`` repeats no key; whether the client asks for them."""
    if record.get("logprobs"):
        return True
    record.pop("logprobs", None)
    return False


def one_attempt(api: str, record: Mapping[str, Any]) -> str:
    """Why an answer to this request has no confidence, in a few words; empty where it has one."""
    if api != "chat":
        return f"the {api.title()} API carries no log-probabilities"
    several = next((name for name in ("n", "best_of") if record.get(name) not in (None, 1)), None)
    if several is not None:
        return f"{several} is {record[several]!r:.20}"
    if record.get("use_beam_search"):
        return "beam search"
    if (record.get("tools") and record.get("tool_choice") != "none") or record.get("functions"):
        return "the answer may be a call of a tool"
    return ""


@dataclass
class Attempts:
    """What is done about the confidence of one request's answer, and what came of it.

    ``asks``: log-probabilities are asked for; ``client_asked``: by the client itself. ``may_escalate``: a second
    attempt is to be reserved. ``second``: its budgets, once it is. ``refit``: fits the images to them. ``count``:
    attempts made. ``confidence``: of the answer that is returned. ``flagged``: whether a person reviews it, None where
    the tier has no review or the answer is not known yet. ``result``: sure, unpaid (unsure, and no second attempt was
    reserved), answered (by the second), failed (the second), too long (to be held) or not asked.
    """

    option: TierOption
    asks: bool = False
    may_escalate: bool = False
    client_asked: bool = False
    second: tuple[int, ...] = ()
    refit: Callable[[], Awaitable[None]] | None = field(default=None, repr=False)
    count: int = 1
    confidence: float | None = None
    flagged: bool | None = None
    in_stream: bool = False
    result: str = "not asked"

    def take(self, confidence: float | None) -> None:
        """This is the confidence of the answer."""
        self.confidence = confidence
        self.flagged = None if self.option.review_below is None else self.option.flags(confidence)

    def judge(self, confidence: float | None) -> bool:
        """Take the confidence of a first answer; whether the question is asked again."""
        self.take(confidence)
        unsure = self.option.next_budget(confidence) is not None
        self.result = "unpaid" if unsure else "sure"
        return unsure and bool(self.second)

    def headers(self) -> dict[str, str]:
        """The ``x-stakes-`` headers about it; a stream has confidence and review in its last comment."""
        review = None if self.option.review_below is None else "in-stream" if self.in_stream else _yes(self.flagged)
        confidence = None if self.confidence is None or self.in_stream else f"{self.confidence:.4f}"
        values = {"attempts": str(self.count), "confidence": confidence, "review": review}
        return {name: value for name, value in values.items() if value is not None}

    def comment(self) -> bytes:
        """What the headers could not say at the start of a stream, as a comment in it."""
        self.in_stream = False
        lines = [f": x-stakes-{name}: {value}\n" for name, value in self.headers().items()]
        self.in_stream = True
        return "".join([*lines, "\n"]).encode()

    def count_in(self, metrics: "Metrics", tier: str) -> None:
        """Count an answered request."""
        metrics.attempts.labels(tier, self.result).inc()
        if self.flagged:
            metrics.flagged.labels(tier).inc()

    def record(self) -> dict[str, Any]:
        """For the log, the dashboard and traces."""
        return {"attempts": self.count, "confidence": self.confidence, "review": self.flagged}


def _yes(flagged: bool | None) -> str | None:
    return None if flagged is None else "yes" if flagged else "no"


def not_asked(policy: Policy, why: str) -> str:
    """What follows where answers have no confidence, in a sentence; empty for a policy without thresholds."""
    if not policy.reads_confidence:
        return ""
    tiers = ", ".join(tier for tier, option in policy.options.items() if option.reads_confidence)
    sentence = f"NO CONFIDENCE: {why}; questions of {tiers} are asked once, with the budget of the first attempt"
    reviews = any(option.review_below is not None for option in policy.options.values())
    return sentence + (", and all of their answers are flagged for review" if reviews else "")


class AnswerReader:
    """Reads the log-probabilities of one answer, whole or streamed.

    ``strip``: take them out. ``at_end``: what a stream gets before its last event.
    ``found``: whether the answer had any.
    """

    def __init__(self, streamed: bool, strip: bool, at_end: "Callable[[AnswerReader], bytes] | None" = None) -> None:
        self._streamed, self._strip, self._at_end = streamed, strip, at_end
        self._rest = bytearray()
        self._logprobs: list[float] = []
        self.found = False

    @property
    def confidence(self) -> float | None:
        """The confidence of what was read so far."""
        return confidence_of(self._logprobs)

    def feed(self, chunk: bytes) -> bytes:
        """The next bytes for the client; of a whole answer there are none before its end."""
        self._rest += chunk
        if not self._streamed:
            return b""
        *lines, rest = self._rest.split(b"\n")
        out = b"".join(self._line(bytes(line)) + b"\n" for line in lines)
        if len(rest) > LONGEST_LINE:
            out, rest = out + bytes(rest), bytearray()
        self._rest = bytearray(rest)
        return out

    def end(self) -> bytes:
        """The last bytes."""
        rest, self._rest = bytes(self._rest), bytearray()
        return self._line(rest) if self._streamed else self._read(rest)

    def _line(self, line: bytes) -> bytes:
        if line.startswith(_DONE) and self._at_end is not None:
            note, self._at_end = self._at_end(self), None
            return note + line
        if not line.startswith(b"data:") or b'"logprobs"' not in line:
            return line
        read = self._read(line[5:])
        return b"data: " + read + (b"\r" if line.endswith(b"\r") else b"") if self._strip else line

    def _read(self, text: bytes) -> bytes:
        """Take over the log-probabilities of the first choice; the text without any, if they are stripped."""
        try:
            record = json.loads(text)
            choices = record["choices"]
            for choice in choices:
                found = choice_logprobs(choice)
                if found is not None and choice.get("index", 0) == 0:
                    self.found = True
                    self._logprobs += found
                if self._strip and "logprobs" in choice:
                    choice["logprobs"] = None
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return text  # no completion: it is passed on as it is
        return json.dumps(record, separators=(",", ":")).encode() if self._strip else text


class UpstreamConfidence:
    """Whether the upstream gives log-probabilities, by the probe and by its own answers.

    ``front``: why requests here never ask for them, for a front that does not see answers.
    """

    def __init__(self, front: str = "", report: Callable[[str], None] = lambda _: None) -> None:
        self.front, self._report = front, report
        self.refused = self.seen = False
        self._missing = 0

    @property
    def given(self) -> bool:
        """Whether the next answer is expected to have them."""
        return not (self.front or self.refused or self._missing >= ENOUGH)

    def begin(self, option: TierOption, api: str, record: dict[str, Any]) -> tuple[Attempts, str]:
        """How the answer to a request of such a tier is got, and a note where there is one attempt at most."""
        why = self.front or one_attempt(api, record)
        asks = not (why or self.refused)
        why = why or ("" if self.given else "the upstream gives no log-probabilities")
        attempts = Attempts(option, asks, not why and option.escalate is not None)
        attempts.client_asked = asks and prepare_record(record)
        if not why:
            return attempts, ""
        attempts.take(None)  # an answer without confidence is unsure
        return attempts, f"; one attempt: {why}"

    def add(self, found: bool) -> None:
        """An answer came, with or without them; the sentence is reported once, until one has them again."""
        self.seen |= found
        if self.refused:
            return
        self._missing = 0 if found else self._missing + 1
        if self._missing == ENOUGH:
            self._report(f"the last {ENOUGH} answers had none")

    def refuse(self) -> None:
        """The upstream refuses requests that ask for them; they are not asked for again."""
        if not self.refused:
            self.refused = True
            self._report("it refuses requests that ask for them")

    def probed(self, given: bool | None) -> None:
        """The probe asked: they came, or they did not; None where it is not known."""
        if given is False and self.given and not self.seen:
            self._missing = ENOUGH
            self._report("the probe's answer had none")
        elif given:
            self.refused, self._missing = False, 0
