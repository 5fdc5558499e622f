"""How fast could it be? Each stage's floor: bytes over the measured bandwidth, operations over the measured rate.

    decode    every step reads the decoder's and the head's weights once, and each row's cache once
    prefill   2 operations a weight and token, attention's 2 x 2 x T^2 / 2 a head and channel; or the weights' bytes
    encoder   the same with its windows; full blocks attend to the whole image

The larger of the two times is a stage's floor; the floor of an answer is their sum. The host's work has none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from stakes.models.fast.vision_encoder import window_indices

WARM = 2.0


@dataclass(frozen=True)
class Rates:
    """``bytes``: read and written a second, in a copy. ``operations``: a second, in a large matrix product."""

    bytes: float
    operations: float


def clocked(work: Any, device: str, repeats: int = 5) -> float:
    """Median seconds after one warm-up."""
    spent = []
    for _ in range(repeats + 1):
        wait(device)
        began = time.perf_counter()
        work()
        wait(device)
        spent.append(time.perf_counter() - began)
    return median(spent[1:])


def wait(device: str) -> None:
    """Until the device has done all that it was given."""
    if device != "cpu":
        torch.cuda.synchronize()


def rates(device: str, dtype: torch.dtype) -> Rates:
    """Both ceilings of this machine, on random numbers.

    A GPU that was idle runs its first products faster than those of a long run (776 and 737 TFLOP/s in the first second
    on two H200, 656 after ``WARM`` seconds on a third); the faster of both counts, since nothing may pass a floor.
    """
    product, began = product_rate(device, dtype), time.perf_counter()
    while device != "cpu" and time.perf_counter() - began < WARM:
        product = max(product, product_rate(device, dtype))
    source = torch.randn((1 << 30) if device != "cpu" else (1 << 19), device=device, dtype=dtype)
    target = torch.empty_like(source)
    copied = clocked(lambda: target.copy_(source), device, 15)
    return Rates(2 * source.numel() * source.element_size() / copied, product)


def product_rate(device: str, dtype: torch.dtype) -> float:
    """Operations a second of a large matrix product of random numbers, now; a median of 15."""
    side = 8192 if device != "cpu" else 256
    one, two = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return 2 * side**3 / clocked(lambda: one @ two, device, 15)


def sustained_rate(device: str, dtype: torch.dtype) -> float:
    """Operations a second of the same products, one after another for seconds, as in a run of large batches.

    A GPU at its power limit lowers its clock: an H200 runs them at 795 TFLOP/s for some milliseconds, and at 670 after
    a second, at 690 of 700 W and 1.5 of 1.98 GHz.
    """
    if device == "cpu":
        return product_rate(device, dtype)
    side = 8192
    one, two = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))

    def run() -> float:
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < WARM:
            for _ in range(50):
                one @ two
            count += 50
            wait(device)
        return 2 * side**3 * count / (time.perf_counter() - began)

    run()
    return run()


@dataclass(frozen=True)
class Floors:
    """Seconds, by stage."""

    encoder: float
    prefill: float
    decode: float

    @property
    def all(self) -> float:
        """Of a whole answer."""
        return self.encoder + self.prefill + self.decode


def floors(
    model: Any, rate: Rates, grids: Sequence[tuple[int, int, int]], lengths: Sequence[int], steps: int
) -> Floors:
    """Of one batch: ``grids`` (t, h, w) patches of its images, ``lengths`` of its prompts, ``steps`` new tokens."""
    return Floors(encoder(model, rate, grids), *decoder(model, rate, lengths, steps))


def decoder(model: Any, rate: Rates, lengths: Sequence[int], steps: int) -> tuple[float, float]:
    """Prefill and decode. The first token comes from the prefill; layers before the last see every column."""
    language_model = model.model.language_model
    config = language_model.config
    size = next(language_model.parameters()).element_size()
    depth = len(language_model.layers)
    layer = sum(p.numel() for p in language_model.layers[0].parameters())
    head = model.lm_head.weight.numel()
    weights = (depth * layer + head) * size
    width = language_model.layers[0].self_attn.head_dim
    column = 2 * depth * config.num_key_value_heads * width * size
    heads = config.num_attention_heads * width
    operations = 2 * depth * layer * sum(lengths) + 2 * head * len(lengths)
    operations += 2 * depth * heads * sum(length**2 for length in lengths)
    prefill = max(operations / rate.operations, weights / rate.bytes)
    read = sum((weights + column * (sum(lengths) + len(lengths) * step)) for step in range(1, steps))
    return prefill, read / rate.bytes


def encoder(model: Any, rate: Rates, grids: Sequence[tuple[int, int, int]]) -> float:
    """Of these images in one call."""
    visual = model.model.visual
    patches = sum(t * h * w for t, h, w in grids)
    parameters = sum(p.numel() for p in visual.parameters())
    merger = sum(p.numel() for p in visual.merger.parameters())
    operations = 2.0 * (parameters - merger) * patches + 2 * merger * patches / visual.spatial_merge_size**2
    unit = visual.spatial_merge_size**2
    seen = sum((len(window) * unit) ** 2 for grid in grids for window in window_indices(visual, [grid]))
    full = len(visual.fullatt_block_indexes)
    whole = sum(t * (h * w) ** 2 for t, h, w in grids)
    operations += 4 * visual.config.hidden_size * (full * whole + (len(visual.blocks) - full) * seen)
    read = parameters * next(visual.parameters()).element_size()
    return max(float(operations) / rate.operations, float(read) / rate.bytes)
