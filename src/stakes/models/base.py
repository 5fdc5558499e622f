"""The protocol of every model: requests in, answers out, in batches.

    model = load("Qwen/Qwen2.5-VL-7B-Instruct")
    answer, = model.answer([Request("invoice.png", "What is the total?", budget=256, mechanism="deletion")])
    answer.text, answer.native_tokens, answer.realised_tokens

"N tokens" is never ambiguous: an answer states what the image would take (native), what was allowed (budget), what the
encoder emitted, what entered the language model (input), what remained after the last drop (realised) and the mean over
decoder layers (layer).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from stakes.errors import BadInput
from stakes.vision.geometry import whole_number

Mechanism = Literal["resolution", "deletion", "zero-mask"]
MECHANISMS: tuple[Mechanism, ...] = ("resolution", "deletion", "zero-mask")
SUFFIX = " Answer briefly."
MAX_NEW_TOKENS = 16
DEFAULT_SELECTOR = "redundancy"
Statistic = Literal["geometric mean token probability", "OCR line score"]
CONFIDENCE: Statistic = "geometric mean token probability"
"""The statistic of ``Answer.confidence``; docs/dev/decisions.md has the measurement that chose it."""
OCR_CONFIDENCE: Statistic = "OCR line score"
"""The same of an OCR engine, which has no tokens: its own score of the lines in which the answer was read."""


@dataclass(frozen=True)
class Request:
    """One question about one image.

    ``image``: PIL, bytes or a path. ``budget``: visual tokens, an integer (NumPy integers become ``int``), None for all
    of them. ``mechanism``: how the budget is realised ("zero-mask" is a control that breaks generation). ``selector``:
    which tokens deletion keeps, a name such as "redundancy" or "fastv:layer=2", or a selector object; the default is
    redundancy. ``sample``: what the ``random`` selector is seeded with; by default image and question.
    """

    image: Any
    question: str
    budget: int | None = None
    mechanism: Mechanism = "resolution"
    selector: Any = None
    sample: str | None = None

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise BadInput(f"a mechanism is one of {', '.join(MECHANISMS)}, not {self.mechanism!r}")
        if self.budget is not None:
            object.__setattr__(self, "budget", whole_number(self.budget, "a budget", "visual tokens"))
        if self.selector is not None and self.mechanism == "resolution":
            raise BadInput("a selector says which tokens deletion keeps; give mechanism='deletion' with it")


@dataclass(frozen=True)
class Answer:
    """The text that a model generated, and what it cost.

    ``realised_tokens`` is what the budget counts: the visual tokens after the last drop; with a selector's
    ``count=layers`` the budget counts ``layer_tokens`` instead. ``truncated``: the text was cut at the answer length.
    ``timings``: milliseconds by stage (encoder, selector, prefill, decode, host); prefill and decode are this request's
    equal share of its batch, and an image that was encoded before costs 0. ``confidence``: the ``CONFIDENCE`` of the
    text, higher is surer; None where the model gives none. Its last digits depend on the batch, so it is not compared.
    ``logprobs``: of its tokens and of the end token, from local models.
    """

    text: str
    native_tokens: int
    budget: int | None
    realised_tokens: int
    truncated: bool
    timings: Mapping[str, float] = field(default_factory=dict)
    input_tokens: int = 0
    layer_tokens: float = 0.0
    encoder_tokens: int = 0
    confidence: float | None = field(default=None, compare=False)
    logprobs: tuple[float, ...] = field(default=(), compare=False, repr=False)


def confidence_of(logprobs: Sequence[float]) -> float | None:
    """``exp(mean of the tokens' log-probabilities)``, in [0, 1]; None without tokens, or where one is not a number.

    >>> confidence_of([0.0, math.log(0.25)])
    0.5
    """
    mean = sum(logprobs) / len(logprobs) if logprobs else math.nan
    return None if math.isnan(mean) else round(math.exp(min(0.0, mean)), 6)


def choice_logprobs(choice: Mapping[str, Any]) -> tuple[float, ...] | None:
    """The log-probability of each token of a chat completion's choice, or of a chunk of one; None without any.

    vLLM lists the end token too, OpenAI does not.
    """
    try:
        return tuple(float(token["logprob"]) for token in choice["logprobs"]["content"])
    except (LookupError, TypeError, ValueError):
        return None


@runtime_checkable
class VLM(Protocol):
    """Anything that answers."""

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """One answer for each request, in order."""
        ...
