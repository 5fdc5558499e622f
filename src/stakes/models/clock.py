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
    """Sums milliseconds by stage; waits for the accelerator at both ends, so that each stage pays its own work."""

    device: torch.device
    spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time a block as part of ``stage``."""
        self._wait()
        started = time.perf_counter()
        try:
            yield
        finally:
            self._wait()
            self.spent[stage] += 1000 * (time.perf_counter() - started)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
