"""The fast path as a GPU runs it, on a CPU: recorded steps, prompts widened to buckets, lengths on the device."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from tests.models.tiny import picture, tiny

from stakes.models import Request
from stakes.models.fast import torch_ops as plain_ops
from stakes.models.fast.decoder import FastDecoder
from stakes.models.local.image_cache import EncodedCache
from stakes.models.local.vlm import LocalVLM

SIZES = [(150, 120), (90, 200), (120, 90)]
QUESTIONS = ["What is it?", "How much is the total on this page?", "Who?"]


def fresh(family: str, fast: bool) -> LocalVLM:
    return replace(tiny(family), cache=EncodedCache(), fast=fast)


@cache
def bucketed(family: str) -> FastDecoder:
    """As on a GPU in bfloat16: prompts widened to a bucket."""
    decoder = FastDecoder(tiny(family).model)
    decoder.buckets = True
    return decoder


class Replayed:
    """A recording as a GPU keeps it: what was passed under a name first is what runs ever after."""

    device, limit = torch.device("cuda"), 32

    def __init__(self) -> None:
        self.works: dict[Any, Any] = {}

    def __call__(self, name: Any, work: Any) -> Any:
        return self.works.setdefault(name, work)()

    def ready(self, name: Any, work: Any, clear: Any) -> None:
        if name not in self.works:
            self.works[name] = work
            clear()
            work()

    def forget(self) -> None:
        self.works.clear()


def device_lengths(query: Any, key: Any, value: Any, ends: Any, _: Any, longest: int, *more: Any) -> Any:
    """A flash kernel's contract: lengths are what ``ends`` says now, on the device."""
    assert int(ends.diff().max()) <= longest
    return plain_ops.attend_packed(query, key, value, ends, ends.diff().tolist(), longest, *more)


def device_windows(states: Any, cos: Any, sin: Any, ends: Any, _: Any, longest: int, scale: float) -> Any:
    """The same of a kernel that turns queries and keys."""
    assert int(ends.diff().max()) <= longest
    return plain_ops.attend_turned(states, cos, sin, ends, ends.diff().tolist(), longest, scale)


RECORDABLE = SimpleNamespace(
    **{
        **vars(plain_ops),
        "attend_packed": device_lengths,
        "attend_turned": device_windows,
        "takes_lengths": lambda *_: True,
    }
)


def requests(count: int, budget: int | None, mechanism: Any, selector: str | None = None) -> list[Request]:
    pages = [picture(*size, seed=i) for i, size in enumerate(SIZES[:count])]
    return [
        Request(page, question, budget, mechanism, selector)
        for page, question in zip(pages, QUESTIONS[:count], strict=True)
    ]
