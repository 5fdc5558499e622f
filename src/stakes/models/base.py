"""Who answers? The protocol that every model speaks: requests in, answers out, batch first.

    model = load("Qwen/Qwen2.5-VL-7B-Instruct")
    answer, = model.answer([Request("invoice.png", "What is the total?", budget=256, mechanism="deletion")])
    answer.text, answer.native_tokens, answer.realised_tokens

"N tokens" is never ambiguous: an answer says what the image would take (native), what was asked for (budget), what the
encoder emitted, what entered the language model (input), what was left after the last drop (realised) and the mean over
decoder layers (layer).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from stakes.errors import BadInput

Mechanism = Literal["resolution", "deletion", "zero-mask"]
MECHANISMS: tuple[Mechanism, ...] = ("resolution", "deletion", "zero-mask")
SUFFIX = " Answer briefly."
MAX_NEW_TOKENS = 16
DEFAULT_SELECTOR = "redundancy"


@dataclass(frozen=True)
class Request:
    """One question about one image.

    ``image``: PIL, bytes or a path. ``budget``: visual tokens, a whole number of any kind (numpy's become ``int``),
    None for all of them. ``mechanism``: how the budget is realised ("zero-mask" is a control that breaks generation).
    ``selector``: which tokens deletion keeps, a name such as "redundancy" or "fastv:layer=2", or a selector; the
    default is redundancy. ``sample``: what the ``random`` selector is seeded with; by default image and question.
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
            object.__setattr__(self, "budget", _tokens(self.budget))
        if self.selector is not None and self.mechanism == "resolution":
            raise BadInput("a selector says which tokens deletion keeps; give mechanism='deletion' with it")


def _tokens(budget: Any) -> int:
    try:
        tokens = 0 if isinstance(budget, bool) else operator.index(budget)
    except TypeError:
        tokens = 0
    if tokens < 1:
        raise BadInput(f"a budget is a whole number of at least one visual token, not {budget!r}")
    return tokens


@dataclass(frozen=True)
class Answer:
    """What the model said, and what it spent.

    ``realised_tokens`` is what the budget counts: the visual tokens left after the last drop; with a selector's
    ``count=layers`` it counts ``layer_tokens`` instead. ``truncated``: the text was cut at the model's answer length.
    ``timings``: milliseconds by stage (encoder, selector, prefill, decode, host); prefill and decode are this request's
    equal share of its batch, an image that was encoded before costs 0.
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


@runtime_checkable
class VLM(Protocol):
    """Anything that answers."""

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """One answer for each request, in order."""
        ...
