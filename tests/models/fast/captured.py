"""The fast path as a GPU runs it, on a CPU: captured steps, prompts padded to buckets, lengths on the device."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from tests.models.tiny import picture, tiny

from stakes.models import Request
from stakes.models.fast import torch_ops
from stakes.models.fast.decoder import FastDecoder
from stakes.models.fast.torch_ops import Segments
from stakes.models.local.ahead import ImagesAhead
from stakes.models.local.image_cache import EncodedCache
from stakes.models.local.vlm import LocalVLM

SIZES = [(150, 120), (90, 200), (120, 90)]
QUESTIONS = ["What is it?", "How much is the total on this page?", "Who?"]


def fresh(family: str, fast: bool) -> LocalVLM:
    return replace(tiny(family), cache=EncodedCache(), ahead=ImagesAhead(), fast=fast)


@cache
def bucketed(family: str) -> FastDecoder:
    """As on a GPU in bfloat16: prompts padded to a bucket."""
    decoder = FastDecoder(tiny(family).model)
    decoder.buckets = True
    return decoder


class FakeGraphs:
    """Stands in for ``CudaGraphs``: the first work under a name is what every later call under it runs."""

    device, limit = torch.device("cuda"), 32

    def __init__(self) -> None:
        self.works: dict[Any, Any] = {}

    def __call__(self, name: Any, work: Any) -> Any:
        return self.works.setdefault(name, work)()

    def capture(self, name: Any, work: Any, reset: Any) -> None:
        if name not in self.works:
            self.works[name] = work
            reset()
            work()

    def clear(self) -> None:
        self.works.clear()


def as_on_device(segments: Segments) -> Segments:
    """A flash kernel's contract: the lengths are what ``cu_seqlens`` holds now, on the device."""
    lengths = segments.cu_seqlens.diff().tolist()
    assert max(lengths) <= segments.max_seqlen
    return replace(segments, lengths=lengths)


def device_varlen(query: Any, key: Any, value: Any, segments: Segments, *more: Any) -> Any:
    return torch_ops.varlen_attention(query, key, value, as_on_device(segments), *more)


def device_rope(qkv: Any, cos: Any, sin: Any, segments: Segments, scale: float) -> Any:
    return torch_ops.rope_attention(qkv, cos, sin, as_on_device(segments), scale)


CAPTURABLE = SimpleNamespace(
    **{
        **vars(torch_ops),
        "varlen_attention": device_varlen,
        "rope_attention": device_rope,
        "supports_varlen": lambda *_: True,
    }
)


def requests(count: int, budget: int | None, mechanism: Any, selector: str | None = None) -> list[Request]:
    pages = [picture(*size, seed=i) for i, size in enumerate(SIZES[:count])]
    return [
        Request(page, question, budget, mechanism, selector)
        for page, question in zip(pages, QUESTIONS[:count], strict=True)
    ]
