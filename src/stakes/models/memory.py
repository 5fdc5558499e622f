"""What fits when memory runs out?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from stakes.errors import BadInput


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
