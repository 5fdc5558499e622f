"""What the encoder takes when blank tokens are dropped before it: by ``answer``, and alone at given shares of tokens.

``answer`` deletes to the same budget with ``redundancy`` and with ``blank+redundancy``, in turns, on each kind of page:
synthetic forms and receipts, and the real pages of ``--data``. Its encoder time includes finding the blank tokens.
Alone, the encoder is timed on tokens spread evenly over the pages, so that the result does not depend on how much of a
page is blank.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.latency_bench import QUESTION, Bench
from benchmarks.latency_encoder import patches
from benchmarks.latency_floors import clocked
from benchmarks.latency_model import drawn

from stakes.models import Request

SHARES = (0.8, 0.6, 0.45, 0.3)
REAL = ("docvqa", "sroie", "chartqa")
SELECTORS = ("redundancy", "blank+redundancy")


@torch.inference_mode()
def blank_patches(bench: Bench) -> dict[str, Any]:
    """By kind of page, for one image and for the larger batch; and the encoder alone, on forms."""
    found: dict[str, Any] = {}
    columns, rows = bench.options.page
    for kind, source in kinds(bench.options.data).items():
        pages = drawn(bench.options.batch, columns, rows, source)
        for count in (1, bench.options.batch):
            found[f"{kind}, batch {count}"] = _blank(bench, pages[:count])
    pages = drawn(bench.options.batch, columns, rows)
    alone = {f"batch {count}": _alone(bench, pages[:count]) for count in (1, bench.options.batch)}
    return {"in an answer": found, "alone": alone}


def kinds(data: Path | None) -> dict[str, Path | str]:
    """Where pages come from: families of synthetic ones, and folders."""
    found: dict[str, Path | str] = {"synthetic forms": "forms", "synthetic receipts": "receipts"}
    if data is not None:
        found |= {name: data / name / "images" for name in REAL}
    return found


def _blank(bench: Bench, pages: Sequence[Any]) -> dict[str, Any]:
    budget = bench.options.budgets[3]
    stages: dict[str, list[dict[str, float]]] = {name: [] for name in SELECTORS}
    for _ in range(3):
        for name in SELECTORS:
            requests = [Request(page, QUESTION, budget, "deletion", name) for page in pages]
            stages[name].append(bench.ours(requests, 1))
    found: dict[str, Any] = {
        name: {stage: median(run[stage] for run in runs) for stage in runs[0]} for name, runs in stages.items()
    }
    both = [found[name] for name in SELECTORS]
    found["encoder_ratio"] = both[1]["encoder"] / both[0]["encoder"]
    found["without_host_ratio"] = both[1]["without_host"] / both[0]["without_host"]
    native, read = _tokens_read(bench, pages, budget)
    return {**found, "budget": budget, "native": native, "tokens_read": read}


def _tokens_read(bench: Bench, pages: Sequence[Any], budget: int | None) -> tuple[float, float]:
    """Tokens of a page, and how many of them the encoder reads; means."""
    answers = bench.model.answer([Request(page, QUESTION, budget, "deletion", SELECTORS[1]) for page in pages])
    return fmean(one.native_tokens for one in answers), fmean(one.encoder_tokens for one in answers)


def _alone(bench: Bench, pages: Sequence[Any]) -> dict[str, float]:
    """Milliseconds of the encoder alone, on all tokens and on shares of them."""
    one = bench.model._encoder
    assert one is not None
    pixels, grid = patches(bench.model, pages)
    unit = one.visual.spatial_merge_size**2
    found = {"1.0": 1000 * clocked(lambda: one(pixels, grid), bench.device)}
    for share in SHARES:
        kept = [_spread(t * h * w // unit, share) for t, h, w in grid]
        found[str(share)] = 1000 * clocked(lambda kept=kept: one(pixels, grid, kept), bench.device)
    return found


def _spread(tokens: int, share: float) -> torch.Tensor:
    """A share of so many tokens, at equal distances."""
    count = max(1, round(tokens * share))
    return torch.arange(count) * tokens // count
