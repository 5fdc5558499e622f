"""Does a token saved become time saved? Answer latency by stage, beside stock ``generate`` and beside the floor.

    python benchmarks/latency.py --out latency.json                  # one GPU, about nine minutes
    python benchmarks/latency.py --tiny --device cpu                 # tries the whole script on a CPU
    python benchmarks/latency.py --only growth                       # one part

Qwen2.5-VL-7B's configuration with random bfloat16 weights, 16 new tokens, pages (synthetic, or those of ``--pages``)
scaled to 756 x 1008 (972 tokens). ``ours`` is ``answer`` from PIL images to text, one call at a time: its ratio to the
floor counts the host's work (opening, fitting, tokenizing); the ratio without it stands beside it. ``stock`` is
``generate`` on inputs that are on the device already. Milliseconds, medians. Results are written after every part.
``latency_steady.py`` has batch after batch, with the next one opened while one is answered.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.latency_bench import Bench
from benchmarks.latency_encoder import encoder_by_kind
from benchmarks.latency_floors import clocked, encoder

from stakes.vision.image.resize import fit
from stakes.vision.selectors import make
from stakes.vision.selectors.base import Scene

BUDGETS = (None, 576, 448, 304, 160, 96, 32)


def grid_of_cells(bench: Bench, batch: int) -> None:
    """Every budget, both mechanisms, with stock beside ours at resolution, which is all that it can do."""
    pages = bench.pages(batch, *bench.options.page)
    repeats = bench.options.repeats if batch == 1 else max(2, bench.options.repeats // 2)
    for budget in bench.options.budgets:
        label = f"batch {batch}, {budget or 'full'}"

        def resolution(budget: int | None = budget) -> dict[str, Any]:
            found = bench.cell([budget] * batch, "resolution", pages, repeats)
            sizes = [page if budget is None else fit(page, budget, bench.model.family).image for page in pages]
            found["stock"] = bench.stock(sizes, 3 if batch == 1 else 1)
            found["times_faster_than_stock"] = found["stock"]["all"] / found["ours"]["without_host"]
            return found

        bench.part(f"resolution, {label}", resolution)
        if budget is not None:
            deletion = partial(bench.cell, [budget] * batch, "deletion", pages, repeats)
            bench.part(f"deletion, {label}", deletion)


def two_tiers(bench: Bench) -> dict[str, Any]:
    """Half of the answers at 576 tokens and half at 32, against all at full resolution."""
    batch = bench.options.batch
    pages = bench.pages(batch, *bench.options.page)
    high, low = bench.options.tiers
    both = bench.cell([high, low] * (batch // 2), "resolution", pages, 3)
    full = bench.results[f"resolution, batch {batch}, full"]
    return {
        **both,
        "times_full_resolution": full["ours"]["without_host"] / both["ours"]["without_host"],
        "times_stock_full_resolution": full["stock"]["all"] / both["ours"]["without_host"],
    }


def deletion_pays(bench: Bench) -> dict[str, Any]:
    """304 of 1,296: how much of the saving that arithmetic predicts is seen end to end, in our path."""
    side, budget = bench.options.large
    found: dict[str, Any] = {}
    for batch in (1, bench.options.batch):
        pages = bench.pages(batch, side, side)
        full = bench.cell([None] * batch, "resolution", pages, 3)
        kept = bench.cell([budget] * batch, "deletion", pages, 3)
        saved = full["ours"]["without_host"] - kept["ours"]["without_host"]
        predicted = sum(full["floor"][stage] - kept["floor"][stage] for stage in ("prefill", "decode"))
        found[f"batch {batch}"] = {
            "full": full,
            "kept": kept,
            "saved_ms": saved,
            "predicted_ms": predicted,
            "share_of_prediction": saved / predicted,
            "selector_of_encoder": kept["ours"]["selector"] / kept["ours"]["encoder"],
        }
    return found


@torch.inference_mode()
def selectors(bench: Bench) -> dict[str, Any]:
    """The redundancy selector beside our own encoder, keeping a quarter."""
    found: dict[str, Any] = {}
    one_encoder: Any = bench.model._encoder
    chooser: Any = make("redundancy")
    width = bench.model.model.config.text_config.hidden_size
    for rows, columns in bench.options.grids:
        count = rows * columns
        shape = (1, 2 * rows, 2 * columns)
        pixels = torch.randn(4 * count, 588, device=bench.device, dtype=bench.dtype)
        features = torch.randn(count, width, device=bench.device, dtype=bench.dtype)
        features += 2 * torch.randn(1, width, device=bench.device, dtype=bench.dtype)
        features[::4] = features[0].clone()  # blank paper
        repeats = 3 if count < 4000 else 1
        encoding = clocked(lambda p=pixels, s=shape: one_encoder(p, [s]), bench.device, repeats)
        choosing = clocked(lambda f=features, c=count: chooser.select(Scene(f), c // 4), bench.device, repeats)
        least = encoder(bench.model.model, bench.rate, [shape])
        found[str(count)] = {
            "encoder_ms": 1000 * encoding,
            "encoder_floor_ms": 1000 * least,
            "selector_ms": 1000 * choosing,
            "selector_of_encoder": choosing / encoding,
        }
    return found


def growth(bench: Bench) -> dict[str, Any]:
    """Exponents: cost ~ size^exponent, by least squares on logarithms."""
    batch = bench.options.batch
    found: dict[str, Any] = {}
    for size in (1, batch):
        cells = [
            cell
            for name, cell in bench.results.items()
            if name.startswith(f"resolution, batch {size},") and "ours" in cell
        ]
        for stage in ("without_host", "encoder", "prefill", "decode"):
            points = [(cell["tokens"], cell["ours"][stage]) for cell in cells]
            found[f"tokens, batch {size}, {stage}"] = exponent(points)
    points = []
    images = 1
    while images <= batch:
        pages = bench.pages(images, *bench.options.page)
        cell = bench.cell([bench.options.budgets[-4]] * images, "resolution", pages, 2)
        points.append((images, cell["ours"]["without_host"]))
        images *= 2
    found["images in a batch"] = {**exponent(points), "points": points}
    return found


def exponent(points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The slope of log cost on log size, over all points and over the two largest."""
    logs = [(math.log(x), math.log(max(y, 1e-9))) for x, y in sorted(points)]
    if len(logs) < 2:
        return {"exponent": None, "points": list(points)}
    mean_x, mean_y = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in logs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in logs) / spread
    (x1, y1), (x2, y2) = logs[-2:]
    return {"exponent": slope, "at_the_end": (y2 - y1) / (x2 - x1), "points": list(points)}


def main() -> None:
    """Measure part after part, and print the results as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", help="where results are written after every part; what is there is not measured again")
    parser.add_argument("--minutes", type=float, default=9.0, help="no part begins after this; default 9")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32, help="the larger of the two batches")
    parser.add_argument("--pages", type=Path, help="a folder of page images; default: synthetic pages")
    parser.add_argument("--only", action="append", help="the part of this name, such as growth; may be repeated")
    parser.add_argument("--tiny", action="store_true", help="a tiny model and pages, to try the script")
    options = parser.parse_args()
    options.budgets, options.page, options.tiers = BUDGETS, (27, 36), (576, 32)
    options.large, options.grids = (36, 304), ((36, 36), (125, 128))
    if options.tiny:
        options.budgets, options.page, options.tiers = (None, 64, 48, 32, 16), (9, 12), (64, 16)
        options.large, options.grids, options.batch = (12, 30), ((12, 12),), min(options.batch, 2)
        options.repeats = min(options.repeats, 1)
    bench = Bench(options)
    grid_of_cells(bench, 1)
    grid_of_cells(bench, options.batch)
    bench.part("two tiers", lambda: two_tiers(bench))
    bench.part("deletion pays", lambda: deletion_pays(bench))
    bench.part("selectors", lambda: selectors(bench))
    bench.part("encoder by kind", lambda: encoder_by_kind(bench))
    bench.part("growth", lambda: growth(bench))
    print(json.dumps(bench.results, indent=1))


if __name__ == "__main__":
    main()
