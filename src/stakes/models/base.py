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
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

from stakes.errors import BadInput
from stakes.vision.geometry import whole_number

Mechanism = Literal["resolution", "deletion", "zero-mask"]
MECHANISMS: tuple[Mechanism, ...] = ("resolution", "deletion", "zero-mask")
SUFFIX = " Answer briefly."
MAX_NEW_TOKENS = 16
DEFAULT_SELECTOR = "redundancy"
Statistic = Literal["geometric mean token probability", "mean OCR line score"]
CONFIDENCE: Statistic = "geometric mean token probability"
"""The statistic of ``Answer.confidence``; docs/dev/decisions.md has the measurement that chose it."""
OCR_CONFIDENCE: Statistic = "mean OCR line score"
"""The same of an OCR engine, which has no tokens: its own score of lines all over the page, wherever the answer is."""


@dataclass(frozen=True)
class Request:
    """One question about one image, or about several.

    ``image``: PIL, bytes or a path; a tuple or list of them for several, in the order of the prompt. ``budget``: visual
    tokens, an integer (NumPy integers become ``int``), None for all of them; of several images ``budgets`` has one for
    each. ``mechanism``: how the budget is realised ("zero-mask" is a control that breaks generation). ``selector``:
    which tokens deletion keeps, a name such as "redundancy" or "fastv:layer=2", or a selector object; the default is
    redundancy. ``sample``: what the ``random`` selector is seeded with; by default image and question.
    """

    image: Any
    question: str
    budget: int | None = None
    mechanism: Mechanism = "resolution"
    selector: Any = None
    sample: str | None = None
    budgets: tuple[int | None, ...] | None = None

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise BadInput(f"a mechanism is one of {', '.join(MECHANISMS)}, not {self.mechanism!r}")
        if self.budget is not None:
            object.__setattr__(self, "budget", whole_number(self.budget, "a budget", "visual tokens"))
        if self.selector is not None and self.mechanism == "resolution":
            raise BadInput("a selector says which tokens deletion keeps; give mechanism='deletion' with it")
        self._check_images()

    def _check_images(self) -> None:
        if not isinstance(self.image, tuple | list):
            if self.budgets is not None:
                raise BadInput("budgets are for several images, one for each; give one image its budget")
            return
        object.__setattr__(self, "image", tuple(self.image))
        if not self.image:
            raise BadInput("a request needs an image; the list is empty")
        if self.budget is not None:
            raise BadInput(f"{len(self.image)} images have a budget each; give budgets=(...), not budget={self.budget}")
        if self.budgets is not None:
            given = [one if one is None else whole_number(one, "a budget", "visual tokens") for one in self.budgets]
            if len(given) != len(self.image):
                raise BadInput(f"{len(self.image)} images need as many budgets, not {len(given)}")
            object.__setattr__(self, "budgets", tuple(given))

    @property
    def parts(self) -> "tuple[Request, ...]":
        """One request for each image, with its own budget."""
        if not isinstance(self.image, tuple):
            return (self,)
        budgets = self.budgets or (None,) * len(self.image)
        both = zip(self.image, budgets, strict=True)
        return tuple(replace(self, image=image, budget=budget, budgets=None) for image, budget in both)

    @property
    def total_budget(self) -> int | None:
        """The budget of the one image, or of all together; None where one of them has none."""
        total = 0
        for part in self.parts:
            if part.budget is None:
                return None
            total += part.budget
        return total


@dataclass(frozen=True)
class Answer:
    """The text that a model generated, and what it cost; tokens of several images are their sum.

    ``realised_tokens`` is what the budget counts: the visual tokens after the last drop; with a selector's
    ``count=layers`` the budget counts ``layer_tokens`` instead. ``truncated``: the text was cut at the answer length.
    ``timings``: milliseconds by stage (encoder, selector, prefill, decode, host); prefill and decode are this request's
    equal share of its batch, host of the rest of the call, and an image that was encoded before costs 0.
    ``confidence``: the ``CONFIDENCE`` of the text, higher is surer; None where the model gives none. Its last digits
    depend on the batch, so it is not compared.
    ``logprobs``: of its tokens and of the end token, from local models.
    ``image_tokens``: the realised tokens of each image, where a model on this machine answered.
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
    image_tokens: tuple[int, ...] = ()


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
