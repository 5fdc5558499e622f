"""How long does one batch take? Ours by stage, stock ``generate`` and the floor, and what was measured so far."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.latency_floors import Floors, Rates, clocked, floors, rates, sustained_rate, wait
from benchmarks.latency_model import NEW_TOKENS, build, drawn, scans

from stakes.models import Request
from stakes.models.local.image_cache import EncodedCache
from stakes.vision.image.resize import fit

QUESTION = "What is the total?"


class Bench:
    """The model, what was measured so far, and how much time is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.began = options, time.perf_counter()
        self.device: str = options.device
        dtype = torch.float32 if self.device == "cpu" else torch.bfloat16
        self.model = build(self.device, dtype, options.tiny)
        self.dtype = dtype
        self._pages: dict[tuple[int, int], list[Any]] = {}
        self.results: dict[str, Any] = {"about": self._about()}
        self.say(f"model built, {sum(p.numel() for p in self.model.model.parameters()) / 1e9:.2f}e9 parameters")
        if options.out and Path(options.out).exists():  # the rest of an earlier run on the same machine, at its rates
            self.results = json.loads(Path(options.out).read_text("utf-8"))
        else:
            measured = rates(self.device, dtype)
            self.keep("rates", {"TB_per_s": measured.bytes / 1e12, "TFLOP_per_s": measured.operations / 1e12})
        found = self.results["rates"]
        if "sustained_TFLOP_per_s" not in found:  # nor does a file of an earlier version have it
            self.keep("rates", {**found, "sustained_TFLOP_per_s": sustained_rate(self.device, dtype) / 1e12})
            found = self.results["rates"]
        self.rate = Rates(1e12 * found["TB_per_s"], 1e12 * found["TFLOP_per_s"])
        self.sustained = replace(self.rate, operations=1e12 * found["sustained_TFLOP_per_s"])

    def pages(self, count: int, columns: int, rows: int) -> list[Any]:
        """So many different pages of so many tokens, from ``--pages`` where that was named; drawn once."""
        known = self._pages.setdefault((columns, rows), [])
        if len(known) < count:
            known[:] = drawn(count, columns, rows, self.options.pages or "forms")
        return known[:count]

    def _whose_pages(self) -> str:
        folder = self.options.pages
        return f"{len(scans(folder))} scans" if folder else "synthetic (stakes.data.synthetic)"

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
            "pages": f"{self._whose_pages()}, scaled",
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
        done = name in self.results and not {"failed", "skipped"} & self.results[name].keys()
        if done or (self.options.only and name not in self.options.only):
            return
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

    def floor(self, requests: Sequence[Request], rate: Rates | None = None) -> tuple[Floors, list[int], int]:
        """The floor of a batch of PIL images, the visual tokens of each, and the tokens of text."""
        grids, lengths, tokens = [], [], []
        for request in requests:
            fitted = fit(request.image, request.budget or 10**6, self.model.family)
            size = fitted.image.size if request.mechanism == "resolution" else request.image.size
            grids.append((1, size[1] // 14, size[0] // 14))
            count = size[0] * size[1] // 784
            tokens.append(count if request.mechanism == "resolution" else int(request.budget or count))
            lengths.append(len(self.model.processor.ids(QUESTION, 1)) - 1 + tokens[-1])
        return floors(self.model.model, rate or self.rate, grids, lengths, NEW_TOKENS), tokens, lengths[0] - tokens[0]

    def cell(self, budgets: Sequence[int | None], mechanism: Any, pages: Sequence[Any], repeats: int) -> dict[str, Any]:
        """One batch: our times, the floor, and their ratio."""
        requests = [
            Request(page, QUESTION, budget, "resolution" if budget is None else mechanism)
            for page, budget in zip(pages, budgets, strict=True)
        ]
        least, tokens, text = self.floor(requests)
        ours = self.ours(requests, repeats)
        return {
            "tokens": tokens[0] if len(set(tokens)) == 1 else tokens,
            "text_tokens": text,
            "ours": ours,
            "floor": {**{stage: 1000 * s for stage, s in asdict(least).items()}, "all": 1000 * least.all},
            "ratio_to_floor": ours["without_host"] / (1000 * least.all),
            "ratio_with_host": ours["all"] / (1000 * least.all),
            "answers_per_s": 1000 * len(requests) / ours["all"],
        }


def _no_limits(images: Sequence[Any]) -> dict[str, int]:
    return {"shortest_edge": 28 * 28, "longest_edge": max(image.width * image.height for image in images)}
