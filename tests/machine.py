"""How slow is this machine now? Limits of time are those of an ordinary one, times this."""

import time
from collections.abc import Callable

ORDINARY = 0.0075  # CPU seconds of the loop on a core of 2023 with nothing else running


def slowness() -> float:
    """How many times longer a fixed loop takes than on an ordinary machine; at least 1.

    A core that shares its pipes with another one's work counts more CPU seconds for the same work, up to five times.
    """
    took = []
    for _ in range(5):
        began = time.process_time()
        total = 0
        for number in range(100_000):
            total += number * number
        took.append(time.process_time() - began)
    return max(1.0, sorted(took)[2] / ORDINARY)


def takes_at_most(seconds: float, work: Callable[[], object], tries: int = 3) -> bool:
    """Whether one of a few tries takes at most so many CPU seconds of an ordinary machine."""
    for _ in range(tries):
        allowed, began = seconds * slowness(), time.process_time()
        work()
        if time.process_time() - began <= allowed:
            return True
    return False
