"""How fast is ``fit`` beside Pillow's plain way (decode everything, bicubic) and pyvips? As ratios, with PSNR.

    python benchmarks/resize.py --out docs/results/resize.json     # 12-megapixel photographs of pages, made here
    python benchmarks/resize.py page1.png …                        # photographs of your own pages
    python benchmarks/resize.py --as-they-are page1.jpg …          # your own JPEG files, untouched

Everyone gets the same bytes and makes the same size, in turn, on one thread, so that a busy machine slows all alike;
``--cpu`` counts processor time, for a machine that others use. Medians over rounds, PSNR to the plain way's result. The
limits table says where the time goes: how long Pillow takes to decode at a half, a quarter and an eighth of the sides
and to resample from there, and what that does to the result. Also times the search for the size alone.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from PIL import Image, features

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import about, printed
from benchmarks.photographs import photograph
from benchmarks.resize_tables import BAR, tables

from stakes.vision.image.grid_sizes import best_grid
from stakes.vision.image.resize import fit

BUDGETS = (32, 96, 304, 576)
SCALES = (1, 2, 4, 8)


def plain(data: bytes, size: tuple[int, int]) -> Image.Image:
    """What everyone does."""
    return Image.open(io.BytesIO(data)).convert("RGB").resize(size, Image.Resampling.BICUBIC)


def vips(data: bytes, size: tuple[int, int]) -> Image.Image:
    """libvips' own way to a small image: decode at the best scale, shrink, resample."""
    import pyvips

    pyvips.vips_lib.vips_concurrency_set(1)
    made = pyvips.Image.thumbnail_buffer(data, size[0], height=size[1], size="force")
    return Image.frombytes("RGB", (made.width, made.height), made.write_to_memory())


def scaled(data: bytes, scale: int) -> Image.Image:
    """The pixels of a JPEG at 1/scale of its sides."""
    image = Image.open(io.BytesIO(data))
    image.draft(None, (image.width // scale, image.height // scale))
    image.load()
    return image


def psnr(one: Image.Image, other: Image.Image) -> float:
    """Peak signal-to-noise ratio in decibels."""
    difference = np.asarray(one, dtype=float) - np.asarray(other, dtype=float)
    return 10 * math.log10(255**2 / max(float((difference**2).mean()), 1e-9))


def in_turn(works: Sequence[Callable[[], object]], rounds: int, now: Callable[[], float]) -> list[float]:
    """Median milliseconds of each, all of them once in every round."""
    times: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    for _ in range(rounds):
        for spent, work in zip(times, works, strict=True):
            began = now()
            work()
            spent.append(1e3 * (now() - began))
    return [median(spent) for spent in times]


def compare(pages: Sequence[bytes], budget: int, rounds: int, now: Callable[[], float], peer: bool) -> dict[str, Any]:
    """One budget: for each page the milliseconds of all, and PSNR to the plain way."""
    rows = []
    for data in pages:
        fitted = fit(data, budget)
        size = fitted.image.size
        works: list[Callable[[], object]] = [partial(fit, data, budget), partial(plain, data, size)]
        times = in_turn([*works, partial(vips, data, size)] if peer else works, rounds, now)
        whole = plain(data, size)
        row = {"bytes": len(data), "size": size, "tokens": fitted.tokens, "fit_ms": times[0], "plain_ms": times[1]}
        row |= {"ratio": times[1] / times[0], "psnr": psnr(fitted.image, whole)}
        if peer:
            row |= {"vips_ms": times[2], "vips_ratio": times[2] / times[0], "vips_psnr": psnr(vips(data, size), whole)}
        rows.append(row)
    return {"budget": budget, "pages": rows}


def limits(pages: Sequence[bytes], budget: int, rounds: int, now: Callable[[], float]) -> list[dict[str, Any]]:
    """For each scale of decoding: its time, that of resampling from there, the ratio to be had, and the PSNR."""
    rows = []
    for scale in SCALES:
        found = []
        for data in pages:
            size = fit(data, budget).image.size
            whole, pixels = plain(data, size), scaled(data, scale)
            resample = partial(pixels.resize, size, Image.Resampling.BICUBIC, reducing_gap=3.0)
            decode, shrink, all_of_it = in_turn(
                [partial(scaled, data, scale), resample, partial(plain, data, size)], rounds, now
            )
            left = pixels.width / size[0]
            found.append((decode, shrink, all_of_it / (decode + shrink), left, psnr(resample(), whole)))
        columns = list(zip(*found, strict=True))
        rows.append(
            {
                "scale": f"1/{scale}",
                "decode_ms": median(columns[0]),
                "resample_ms": median(columns[1]),
                "ratio": median(columns[2]),
                "least_ratio": min(columns[2]),
                "times_target": median(columns[3]),
                "least_psnr": min(columns[4]),
            }
        )
    return rows


def search(rounds: int = 200) -> dict[str, float]:
    """Microseconds of the search for the size alone."""
    sizes = ((3000, 4000, 32), (3000, 4000, 304), (4000, 5000, 16000))
    return {
        f"{w}x{h} at {budget}": 1e3 * in_turn([partial(best_grid, w, h, budget)], rounds, time.perf_counter)[0]
        for w, h, budget in sizes
    }


def peer_missing() -> str | None:
    """Why pyvips cannot take part; None where it can."""
    try:
        import pyvips  # noqa: F401
    except (ImportError, OSError) as error:
        return f"pyvips is not installed ({error}); run: pip install 'pyvips[binary]'"
    return None


def main() -> None:
    """Measure, print the tables, write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="images of pages to use instead of drawn ones")
    parser.add_argument("--as-they-are", action="store_true", help="the files are JPEGs already: take no photograph")
    parser.add_argument("--photographs", type=int, default=8, help="how many, of drawn pages")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cpu", action="store_true", help="count processor time, not wall time")
    parser.add_argument("--quick", action="store_true", help="two photographs, three rounds: tries the script")
    parser.add_argument("--out", type=Path, help="where the results go, as JSON")
    options = parser.parse_args()
    number, rounds = (2, 3) if options.quick else (options.photographs, options.rounds)
    now = time.process_time if options.cpu else time.perf_counter
    if options.as_they_are:
        photographs = [path.read_bytes() for path in options.pages]
    elif options.pages:
        photographs = [photograph(i, Image.open(path)) for i, path in enumerate(options.pages)]
    else:
        photographs = [photograph(seed) for seed in range(number)]
    why_not = peer_missing()
    libraries = ["pillow"] if why_not else ["pillow", "pyvips", "pyvips-binary"]
    results: dict[str, Any] = {
        "about": about(*libraries) | {"libjpeg_turbo": features.version_feature("libjpeg_turbo")},
        "pages": "given" if options.pages else "drawn",
        "photographs": len(photographs),
        "rounds": rounds,
        "time": "processor" if options.cpu else "wall",
        "peer": why_not,
        "budgets": [compare(photographs, budget, rounds, now, why_not is None) for budget in BUDGETS],
        "limits": limits(photographs, BAR, rounds, now),
        "search_us": search(),
    }
    results["tables"] = tables(results)
    print(f"{len(photographs)} photographs, {sum(map(len, photographs)) / len(photographs) / 1e6:.1f} MB on average")
    for table in results["tables"].values():
        print(printed(table))
    print("\n".join(results["tables"]["resize"]["findings"]))
    if why_not:
        print(why_not)
    print(
        "search for the size alone, us: " + ", ".join(f"{name} {us:.1f}" for name, us in results["search_us"].items())
    )
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
