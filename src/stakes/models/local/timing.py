"""Where did the milliseconds go?"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

STAGES = ("encoder", "selector", "prefill", "decode", "host")


@dataclass
class Clock:
    """Sums milliseconds by stage; waits for the accelerator at both ends, so that each stage pays its own work.

    What asks nothing of the accelerator has nothing to wait for: ``wait=False``.
    """

    device: torch.device
    spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def __call__(self, stage: str, *, wait: bool = True) -> Iterator[None]:
        """Time a block as part of ``stage``."""
        if wait:
            self._wait()
        started = time.perf_counter()
        try:
            yield
        finally:
            if wait:
                self._wait()
            self.spent[stage] += 1000 * (time.perf_counter() - started)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
