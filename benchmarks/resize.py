"""How fast is ``fit`` beside plain Pillow (decode everything, bicubic)? Same pages, same sizes, as ratios, with PSNR.

    .venv/bin/python benchmarks/resize.py                 # synthetic 2500x3300 scans
    .venv/bin/python benchmarks/resize.py page1.jpg …     # your own

Also times the search for the size alone. A ratio of 2 means half the time; the best of several rounds counts.
"""

import argparse
import io
import math
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from stakes.vision.resize import fit
from stakes.vision.sizes import best_grid

BUDGETS = (32, 96, 160, 304, 512, 576)


def scan(seed: int, mode: str) -> bytes:
    """A letter page at 300 dpi: text in several sizes on grainy paper, as a JPEG of quality 85."""
    dice = random.Random(seed)
    image = Image.new("RGB", (2500, 3300), (252, 251, 248))
    draw, y = ImageDraw.Draw(image), 150
    while y < 3100:
        size = dice.choice([28, 34, 40, 44, 60, 90])
        words = " ".join("".join(dice.choices("abcdefghijklmnopqrstuvwxyz0123456789$.,", k=6)) for _ in range(40))
        draw.text(
            (150, y), words[: int(2200 / size / 0.55)], (dice.randint(0, 90), 20, 30), ImageFont.load_default(size)
        )
        y += int(size * dice.uniform(1.2, 1.8))
    grain = np.random.default_rng(seed).normal(0, 3, (3300, 2500, 1))
    out = io.BytesIO()
    Image.fromarray((np.asarray(image) + grain).clip(0, 255).astype(np.uint8)).convert(mode).save(
        out, "JPEG", quality=85
    )
    return out.getvalue()


def plain(data: bytes, size: tuple[int, int]) -> Image.Image:
    """What everyone does."""
    return Image.open(io.BytesIO(data)).convert("RGB").resize(size, Image.Resampling.BICUBIC)


def psnr(one: Image.Image, other: Image.Image) -> float:
    """Peak signal-to-noise ratio in decibels."""
    difference = np.asarray(one, dtype=float) - np.asarray(other, dtype=float)
    return 10 * math.log10(255**2 / max(float((difference**2).mean()), 1e-9))


def best_of(run: Callable[[], object], rounds: int) -> float:
    """Shortest time in milliseconds."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times) * 1e3


def compare(name: str, pages: Sequence[bytes], rounds: int) -> None:
    """One line per budget: mean times over the pages, their ratio, and the worst PSNR."""
    print(f"{name}\n  budget      size   fit ms  plain ms  ratio  worst PSNR")
    for budget in BUDGETS:
        fitted = [fit(data, budget) for data in pages]
        ours = sum(best_of(partial(fit, data, budget), rounds) for data in pages) / len(pages)
        theirs = sum(
            best_of(partial(plain, data, one.image.size), rounds) for data, one in zip(pages, fitted, strict=True)
        ) / len(pages)
        worst = min(psnr(one.image, plain(data, one.image.size)) for data, one in zip(pages, fitted, strict=True))
        size = "x".join(map(str, fitted[0].image.size))
        print(f"  {budget:6d}  {size:>8}  {ours:7.1f}  {theirs:8.1f}  {theirs / ours:4.1f}x  {worst:7.1f} dB")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="JPEG files to use instead of synthetic scans")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.pages:
        compare("given pages", [path.read_bytes() for path in arguments.pages], arguments.rounds)
    else:
        compare("colour scans, 2500x3300", [scan(seed, "RGB") for seed in range(3)], arguments.rounds)
        compare("grey scans, 2500x3300", [scan(seed, "L") for seed in range(3)], arguments.rounds)
    print("search for the size alone")
    for width, height, budget in ((1654, 2339, 32), (1654, 2339, 576), (4000, 5000, 16000)):
        micro = best_of(partial(best_grid, width, height, budget), 200) * 1e3
        print(f"  {width}x{height} at {budget:5d} tokens: {micro:5.1f} us")


if __name__ == "__main__":
    main()
