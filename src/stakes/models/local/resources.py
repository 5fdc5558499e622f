"""Time and memory of a request: milliseconds by stage, and which budget would fit when memory runs out."""

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from stakes.errors import BadInput, InfeasibleBudget
from stakes.models.base import Answer
from stakes.vision.deletion.exact import Batch
from stakes.vision.geometry import family as named_family
from stakes.vision.image.resize import fit

STAGES = ("encoder", "selector", "prefill", "decode")  # of the device; "host" is the rest of a call


@dataclass
class Clock:
    """Sums milliseconds by stage, and never makes the GPU wait for the host.

    A block for a GPU ends when its work is queued. Two events in the queue time that work, and reading ``spent`` waits
    for them. On a CPU a block is timed by the host's clock.
    """

    device: torch.device
    _spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _queued: list[tuple[str, Any, Any]] = field(default_factory=list, repr=False)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time a block as part of ``stage``."""
        started = self._now()
        try:
            yield
        finally:
            if isinstance(started, float):
                self._spent[stage] += 1000 * (time.perf_counter() - started)
            else:
                self._queued.append((stage, started, self._now()))

    @property
    def spent(self) -> defaultdict[str, float]:
        """Milliseconds by stage, of all blocks so far."""
        for stage, start, end in self._queued:
            end.synchronize()
            self._spent[stage] += start.elapsed_time(end)
        self._queued.clear()
        return self._spent

    def _now(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event


def with_host(answers: Sequence[Answer], ms: float) -> list[Answer]:
    """The answers of a call of ``ms`` milliseconds; what is in none of their stages is the host's, in equal shares.

    The host's share is 0 where the stages take longer than the call, because its images were encoded before it began.
    """
    rest = ms - sum(sum(answer.timings.values()) for answer in answers)
    host = max(0.0, rest) / max(1, len(answers))
    return [replace(answer, timings={**answer.timings, "host": host}) for answer in answers]


@contextmanager
def explain_out_of_memory(doing: str, what_fits: Callable[[], str]) -> Iterator[None]:
    """Turn running out of memory into one sentence; ``what_fits()`` finds out by trying, as half a sentence."""
    try:
        yield
        return
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    raise BadInput(f"out of memory while {doing}; {what_fits()}")


def is_out_of_memory(error: BaseException) -> bool:
    """CUDA has its own error; the CPU allocator raises a RuntimeError with these words."""
    words = ("out of memory", "not enough memory", "can't allocate memory")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)
    )


def largest_that_fits(limit: int, attempt: Callable[[int], object]) -> int:
    """The largest n up to ``limit`` for which ``attempt(n)`` fits in memory, by bisection; 0 where not even 1 does."""

    def fails(n: int) -> bool:
        try:
            attempt(n)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return True
        return False

    return bisect_left(range(1, limit + 1), True, key=fails)


def image_that_fits(model: Any, image: Any) -> str:
    """A budget by resolution at which the model's encoder can take a PIL image, as half a sentence."""
    if (refusal := named_family(model.family).refusal) is not None:
        return f"free some memory ({refusal})"

    def attempt(budget: int) -> None:
        with suppress(InfeasibleBudget):  # too small for this family, whatever the memory
            model.encode(fit(image, budget, model.family).image, exact=True, attention=False)

    try:
        tokens = fit(image, largest_that_fits(4096, attempt) or 1, model.family).tokens
    except InfeasibleBudget:
        return "no smaller budget of this family fits either; free some memory"
    return f"deletion encodes the whole image first, but a budget of {tokens} fits with mechanism='resolution'"


def prompt_that_fits(model: Any, batch: Batch) -> str:
    """A budget at which the model can read a batch of as many prompts, as half a sentence."""
    size, length, width = batch.embeds.shape
    images = int(batch.visual.sum(1).max())

    def attempt(budget: int) -> None:
        embeds = batch.embeds.new_zeros(size, length - images + budget + model.max_new_tokens, width)
        model.model.get_decoder()(inputs_embeds=embeds, use_cache=True)

    budget = largest_that_fits(images - 1, attempt)
    if budget == 0:
        return f"not even a budget of 1 fits {size} at once; ask fewer at once"
    return f"a budget of {budget} visual tokens fits {size} at once; or ask fewer at once"
