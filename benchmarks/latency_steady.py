"""What does an answer take in the steady state, with the host's work, and what do blank tokens cost the encoder?

    python benchmarks/latency_steady.py --data DIR --out steady.json    # one GPU, about five minutes
    python benchmarks/latency_steady.py --tiny --device cpu             # tries the whole script on a CPU
    python benchmarks/latency_steady_tables.py steady.json docs/results/latency-steady-h200.json

The model and the floors of ``latency.py``. ``steady``: batch after batch of different pages, from the bytes of PNG
files to text, with the next batch opened while one is answered; and a few batches without that. ``blank``: the encoder
with and without blank tokens. ``DIR`` holds docvqa/, sroie/ and chartqa/, each with images/; without it pages are
synthetic. What matters most comes first, because a lent GPU may go; results are written after every part.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.latency_bench import QUESTION, Bench
from benchmarks.latency_blank import alone, blank, kinds
from benchmarks.latency_model import drawn

from stakes.models import Request
from stakes.models.local.image_cache import EncodedCache

WARM_UPS = 8  # batches: the first compiles kernels, and cuDNN plans attention for a shape at its eighth
FEW = 4  # batches of the run without opening ahead, which comes after the other


def steady(bench: Bench, batch: int, budget: int | None, mechanism: Any) -> dict[str, Any]:
    """Milliseconds of a batch in the middle of many, from files to text; ``WARM_UPS`` batches are not counted."""
    calls = [[Request(data, QUESTION, budget, mechanism) for data in files] for files in batches(bench, batch)]
    opened = [replace(request, image=Image.open(io.BytesIO(request.image))) for request in calls[-1]]
    floors = {"floor": bench.rate, "sustained_floor": bench.sustained}
    found: dict[str, Any] = {name: 1000 * bench.floor(opened, rate)[0].all for name, rate in floors.items()}
    found["batches"] = bench.options.batches
    for name, some, warm_ups in (("ahead", calls, WARM_UPS), ("one_by_one", calls[: FEW + 1], 1)):
        took = _run(bench, some, warm_ups, ahead=name == "ahead")
        ratios = {"ratio": took["all"] / found["floor"], "sustained_ratio": took["all"] / found["sustained_floor"]}
        found[name] = {**took, **ratios}
    return found


def _run(bench: Bench, calls: Sequence[Sequence[Request]], warm_ups: int, *, ahead: bool) -> dict[str, float]:
    """Milliseconds of a batch: the mean, the median and the slowest, and the medians of its stages."""
    bench.model.cache, spent = EncodedCache(), []
    ends = []
    for at, call in enumerate(calls):
        if ahead and at == 0:
            bench.model.open_ahead(call)
        if ahead and at + 1 < len(calls):
            bench.model.open_ahead(calls[at + 1])
        answers = bench.model.answer(call)  # the device may be at work for the next call already
        ends.append(time.perf_counter())
        spent.append({stage: sum(answer.timings[stage] for answer in answers) for stage in answers[0].timings})
    took = [1000 * (end - start) for start, end in pairwise(ends[warm_ups - 1 :])]
    stages = {stage: median(one[stage] for one in spent[warm_ups:]) for stage in spent[0]}
    return {"all": fmean(took), "median": median(took), "slowest": max(took), **stages}


@cache
def batches(bench: Bench, batch: int) -> list[list[bytes]]:
    """Different pages as files, so many together."""
    pages = bench.pages((bench.options.batches + WARM_UPS) * batch, *bench.options.page)
    with ThreadPoolExecutor(8) as pool:
        files = list(pool.map(png, pages))
    return [files[at : at + batch] for at in range(0, len(files), batch)]


def png(page: Image.Image) -> bytes:
    """The page as a file."""
    out = io.BytesIO()
    page.save(out, "PNG", compress_level=1)
    return out.getvalue()


def main() -> None:
    """Measure part after part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", help="where results are written after every part; what is there is not measured again")
    parser.add_argument("--minutes", type=float, default=8.0, help="no part begins after this; default 8")
    parser.add_argument("--batch", type=int, default=32, help="the larger of the two batches")
    parser.add_argument("--batches", type=int, default=10, help="that are counted; default 10")
    parser.add_argument(
        "--data", type=Path, help="a folder with docvqa/, sroie/ and chartqa/; default: synthetic pages"
    )
    parser.add_argument("--tiny", action="store_true", help="a tiny model and pages, to try the script")
    options = parser.parse_args()
    options.budgets, options.page, options.only = (304, None, 448, 576), (27, 36), None
    options.pages = None if options.data is None else options.data / "docvqa" / "images"
    if options.tiny:
        options.budgets, options.page, options.batch = (48, None, 64), (9, 12), min(options.batch, 2)
    bench = Bench(options)
    for name, work in parts(bench):
        bench.part(name, work)
    print(json.dumps(bench.results, indent=1))


def parts(bench: Bench) -> list[tuple[str, Any]]:
    """Names and work, in order of importance."""
    batch, (middle, *others) = bench.options.batch, bench.options.budgets
    found: list[tuple[str, Any]] = []

    def add(budgets: Sequence[int | None], size: int) -> None:
        for budget in budgets:
            for mechanism in ("resolution", "deletion") if budget is not None else ("resolution",):
                name = f"steady, batch {size}, {mechanism}, {budget or 'full'}"
                found.append((name, partial(steady, bench, size, budget, mechanism)))

    add([middle], batch)
    add([middle, *others], 1)
    add(others, batch)
    columns, rows = bench.options.page
    for kind, source in kinds(bench.options.data).items():
        found.append((f"blank, {kind}", lambda at=source: blank(bench, drawn(batch, columns, rows, at), middle)))
    found.append(("blank, the encoder alone", lambda: alone(bench, drawn(batch, columns, rows))))
    return found


if __name__ == "__main__":
    main()
