"""Does a token saved become time saved? Answer latency by stage, beside stock ``generate`` and beside the floor.

    python benchmarks/latency.py --out latency.json                  # one GPU, about nine minutes
    python benchmarks/latency.py --tiny --device cpu                 # tries the whole script on a CPU

Qwen2.5-VL-7B's configuration with random bfloat16 weights, 16 new tokens, synthetic pages scaled to 756 x 1008 (972
tokens). ``ours`` is ``answer`` from PIL images to text: ``host`` is decoding, fitting and tokenising and is reported
apart; ratios to the floor are of the rest. ``stock`` is ``generate`` on inputs that are on the device already.
Milliseconds, medians. Results are written after every part.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.latency_floors import Rates, clocked, encoder, floors, rates, wait
from benchmarks.latency_model import NEW_TOKENS, build, drawn

from stakes.models import Request
from stakes.models.images import EncodedCache
from stakes.vision.resize import fit
from stakes.vision.selectors import make
from stakes.vision.selectors.base import Scene

BUDGETS = (None, 576, 448, 304, 160, 96, 32)
QUESTION = "What is the total?"


class Bench:
    """The model, what was measured so far, and how much time is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.began = options, time.perf_counter()
        self.device: str = options.device
        dtype = torch.float32 if self.device == "cpu" else torch.bfloat16
        self.model = build(self.device, dtype, options.tiny)
        self.dtype = dtype
        self.results: dict[str, Any] = {"about": self._about()}
        self.say(f"model built, {sum(p.numel() for p in self.model.model.parameters()) / 1e9:.2f}e9 parameters")
        self.rate: Rates = rates(self.device, dtype)
        self.keep("rates", {"TB_per_s": self.rate.bytes / 1e12, "TFLOP_per_s": self.rate.operations / 1e12})

    def _about(self) -> dict[str, Any]:
        import transformers

        gpu = torch.cuda.get_device_name() if self.device != "cpu" else platform.processor()
        return {
            "device": gpu,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
            "date": time.strftime("%Y-%m-%d"),
            "weights": "random",
            "model": "tiny" if self.options.tiny else "Qwen2.5-VL-7B configuration",
            "new_tokens": NEW_TOKENS,
            "pages": "synthetic (stakes.data.pages), scaled",
            "times": "milliseconds, medians; ours from PIL images to text, stock from inputs on the device",
        }

    @property
    def left(self) -> float:
        """Seconds."""
        return float(60 * self.options.minutes) - (time.perf_counter() - self.began)

    def say(self, text: str) -> None:
        """A line of progress."""
        print(f"[{time.perf_counter() - self.began:6.1f} s] {text}", file=sys.stderr, flush=True)

    def keep(self, name: str, value: Any) -> None:
        """Note a part and write everything down."""
        self.results[name] = value
        text = json.dumps(self.results, indent=1)
        if self.options.out:
            Path(self.options.out).write_text(text + "\n", "utf-8")

    def part(self, name: str, work: Callable[[], Any]) -> None:
        """Run one part, unless time is up; what fails is noted and does not hide the others."""
        if self.left < 10:
            self.keep(name, {"skipped": "no time left"})
            return
        self.say(name)
        try:
            self.keep(name, work())
        except Exception as error:  # a part of a long run on a lent machine
            self.keep(name, {"failed": repr(error)[:500]})
        self.say(f"{name}: done")

    def ours(self, requests: Sequence[Request], repeats: int) -> dict[str, float]:
        """Median milliseconds of one ``answer`` by stage, nothing remembered; what is recorded is so before."""
        runs: list[dict[str, float]] = []
        for _ in range(repeats + 2):  # the first records, the second warms up
            self.model.cache = EncodedCache()
            wait(self.device)
            began = time.perf_counter()
            answers = self.model.answer(requests)
            wait(self.device)
            spent = {"all": 1000 * (time.perf_counter() - began)}
            for answer in answers:
                for stage, ms in answer.timings.items():
                    spent[stage] = spent.get(stage, 0.0) + ms
            runs.append(spent)
        found = {stage: median(run[stage] for run in runs[2:]) for stage in runs[0]}
        return {**found, "without_host": median(run["all"] - run["host"] for run in runs[2:])}

    def stock(self, images: Sequence[Any], repeats: int) -> dict[str, float]:
        """Median milliseconds of ``generate``; encoder alone, and up to the first token, apart."""
        model = self.model
        seen = model.processor.images(images=list(images), return_tensors="pt", size=_no_limits(images))
        counts = (seen["image_grid_thw"].prod(1) // 4).tolist()
        ids = [model.processor.ids(QUESTION, count) for count in counts]
        assert len({len(one) for one in ids}) == 1
        together = torch.stack(ids).to(self.device)
        pixels, grid = (seen[name].to(self.device) for name in ("pixel_values", "image_grid_thw"))
        inputs: dict[str, Any] = {
            "input_ids": together,
            "attention_mask": torch.ones_like(together),
            "mm_token_type_ids": (together == model.processor.image_token_id).int(),
            "pixel_values": pixels.to(self.dtype),
            "image_grid_thw": grid,
            "do_sample": False,
        }
        spent = {}
        with torch.inference_mode():
            for name, steps in (("all", NEW_TOKENS), ("first", 1)):
                both = {"max_new_tokens": steps, "min_new_tokens": steps}
                run = partial(model.model.generate, **inputs, **both)
                spent[name] = 1000 * clocked(run, self.device, repeats)
            spent["encoder"] = 1000 * clocked(
                lambda: model.model.model.get_image_features(inputs["pixel_values"], grid), self.device, repeats
            )
        spent["decode"] = spent["all"] - spent["first"]
        spent["prefill"] = spent["first"] - spent["encoder"]
        return spent

    def cell(self, budgets: Sequence[int | None], mechanism: Any, pages: Sequence[Any], repeats: int) -> dict[str, Any]:
        """One batch: our times, the floor, and their ratio."""
        requests = [
            Request(page, QUESTION, budget, "resolution" if budget is None else mechanism)
            for page, budget in zip(pages, budgets, strict=True)
        ]
        grids, lengths, tokens = [], [], []
        for request in requests:
            fitted = fit(request.image, request.budget or 10**6, self.model.family)
            size = fitted.image.size if request.mechanism == "resolution" else request.image.size
            grids.append((1, size[1] // 14, size[0] // 14))
            count = size[0] * size[1] // 784
            tokens.append(count if request.mechanism == "resolution" else int(request.budget or count))
            lengths.append(len(self.model.processor.ids(QUESTION, 1)) - 1 + tokens[-1])
        least = floors(self.model.model, self.rate, grids, lengths, NEW_TOKENS)
        ours = self.ours(requests, repeats)
        return {
            "tokens": tokens[0] if len(set(tokens)) == 1 else tokens,
            "text_tokens": lengths[0] - tokens[0],
            "ours": ours,
            "floor": {**{stage: 1000 * s for stage, s in asdict(least).items()}, "all": 1000 * least.all},
            "ratio_to_floor": ours["without_host"] / (1000 * least.all),
            "ratio_with_host": ours["all"] / (1000 * least.all),
            "answers_per_s": 1000 * len(requests) / ours["all"],
        }


def _no_limits(images: Sequence[Any]) -> dict[str, int]:
    return {"shortest_edge": 28 * 28, "longest_edge": max(image.width * image.height for image in images)}


def grid_of_cells(bench: Bench, batch: int) -> None:
    """Every budget, both mechanisms, with stock beside ours at resolution, which is all that it can do."""
    pages = drawn(batch, *bench.options.page)
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
    pages = drawn(batch, *bench.options.page)
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
        pages = drawn(batch, side, side)
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
        cell = bench.cell([bench.options.budgets[-4]] * images, "resolution", drawn(images, *bench.options.page), 2)
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
    parser.add_argument("--out", help="where results are written after every part")
    parser.add_argument("--minutes", type=float, default=9.0, help="no part begins after this; default 9")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32, help="the larger of the two batches")
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
    bench.part("growth", lambda: growth(bench))
    print(json.dumps(bench.results, indent=1))


if __name__ == "__main__":
    main()
