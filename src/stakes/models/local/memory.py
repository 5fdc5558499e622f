"""What fits when memory runs out?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from stakes.errors import BadInput, InfeasibleBudget
from stakes.vision.deletion.exact import Batch
from stakes.vision.image.resize import fit


def is_out_of_memory(error: BaseException) -> bool:
    """CUDA has its own error; the CPU allocator raises a RuntimeError with these words."""
    words = ("out of memory", "not enough memory", "can't allocate memory")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)
    )


@contextmanager
def out_of_memory(doing: str, fits: Callable[[], str]) -> Iterator[None]:
    """Turn running out of memory into one sentence. ``fits()`` says, by trying, what would have fitted."""
    try:
        yield
        return
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    raise BadInput(f"out of memory while {doing}; {fits()}")


def largest_that_runs(limit: int, attempt: Callable[[int], object]) -> int | None:
    """The largest n up to ``limit`` for which ``attempt(n)`` fits in memory, by bisection; None: not even 1."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        try:
            attempt(middle)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            high = middle - 1
        else:
            low = middle
    return low or None


def image_that_fits(model: Any, image: Any) -> str:
    """A budget by resolution at which the model's encoder can take a PIL image, as half a sentence."""

    def attempt(budget: int) -> None:
        with suppress(InfeasibleBudget):  # too small for this family, which is no matter of memory
            model.encode(fit(image, budget, model.family).image, exact=True, attention=False)

    budget = largest_that_runs(4096, attempt)
    try:
        tokens = fit(image, budget or 1, model.family).tokens
    except InfeasibleBudget:
        return "no smaller budget of this family fits either; free some memory"
    return f"deletion encodes the whole image first, but a budget of {tokens} fits with mechanism='resolution'"


def prompt_that_fits(model: Any, batch: Batch) -> str:
    """A budget at which the model can read a batch of as many prompts, as half a sentence."""
    size, length, width = batch.embeds.shape
    images = int(batch.visual.sum(1).max())

    def attempt(budget: int) -> None:
        embeds = batch.embeds.new_zeros(size, length - images + budget + model.max_new_tokens, width)
        model.model.model.language_model(inputs_embeds=embeds, use_cache=True)

    budget = largest_that_runs(images - 1, attempt)
    if budget is None:
        return f"not even a budget of 1 fits {size} at once; ask fewer at once"
    return f"a budget of {budget} visual tokens fits {size} at once; or ask fewer at once"
