"""What the encoder takes when blank tokens are dropped before it: by ``answer``, and alone at given shares of tokens.

``answer`` deletes to the same budget with ``redundancy`` and with ``blank+redundancy``, in turns, on images that were
opened ahead, as in a run; there the host looks for blank tokens. Alone, the encoder is timed on tokens spread evenly
over the pages, so that the result does not depend on how much of a page is blank.
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

from stakes.models import Request
from stakes.models.local.image_cache import EncodedCache

SHARES = (0.8, 0.6, 0.45, 0.3)
REAL = ("docvqa", "sroie", "chartqa")
SELECTORS = ("redundancy", "blank+redundancy")


def kinds(data: Path | None) -> dict[str, Path | str]:
    """Where pages come from: families of synthetic ones, and folders."""
    found: dict[str, Path | str] = {"synthetic forms": "forms", "synthetic receipts": "receipts"}
    if data is not None:
        found |= {name: data / name / "images" for name in REAL}
    return found


def blank(bench: Bench, pages: Sequence[Any], budget: int) -> dict[str, Any]:
    """Medians of three answers with each selector, in turns; nothing is remembered between them."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in SELECTORS}
    for _ in range(4):  # the first warms up
        for name in SELECTORS:
            runs[name].append(_answer(bench, pages, budget, name))
    found: dict[str, Any] = {
        name: {stage: median(run[stage] for run in of_name[1:]) for stage in of_name[0]}
        for name, of_name in runs.items()
    }
    both = [found[name] for name in SELECTORS]
    return {
        **found,
        "encoder_ratio": both[1]["encoder"] / both[0]["encoder"],
        "all_ratio": both[1]["all"] / both[0]["all"],
        "images": len(pages),
        "budget": budget,
    }


def _answer(bench: Bench, pages: Sequence[Any], budget: int, selector: str) -> dict[str, float]:
    """Milliseconds by stage of one call, and the tokens of a page and those that the encoder reads, means."""
    bench.model.cache = EncodedCache()
    requests = [Request(page, QUESTION, budget, "deletion", selector) for page in pages]
    bench.model.open_ahead(requests)
    answers = bench.model.answer(requests)
    spent = {stage: sum(answer.timings[stage] for answer in answers) for stage in answers[0].timings}
    tokens = {name: fmean(getattr(answer, name) for answer in answers) for name in ("native_tokens", "encoder_tokens")}
    return {**spent, "all": sum(spent.values()), **tokens}


@torch.inference_mode()
def alone(bench: Bench, pages: Sequence[Any]) -> dict[str, float]:
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
