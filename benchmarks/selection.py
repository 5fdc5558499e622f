"""Is choosing tokens cheap beside encoding them? Each selector on 1,296 tokens, as a ratio to the encoder's own time.

    python benchmarks/selection.py                  # the GPU where there is one, else the CPU
    python benchmarks/selection.py --device cpu --out selection.json

The encoder is Qwen2.5-VL-7B's, randomly initialised (32 blocks, 1,280 wide, features of 3,584), on one image of 1,296
tokens (36 x 36). On a CPU 8 blocks are timed, one of them with full attention as 4 of the 32 have, and scaled up.
Times are medians of 5 in milliseconds (the encoder on a CPU: of 1).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import about

from stakes.vision.selectors import make
from stakes.vision.selectors.base import Scene

SIDE, WIDTH, BLOCKS, BUDGET = 36, 3584, 32, 576
NAMES = (
    *("redundancy", "redundancy:seed=nearest", "random", "saliency", "visionzip", "cdpruner"),
    *("divprune", "fastervlm", "vispruner", "holov", "prumerge", "mmtok"),  # dart drops inside the language model
)


def milliseconds(work: Callable[[], Any], device: str, repeats: int = 5) -> float:
    """Median over repeats, after one warm-up."""
    times = []
    for _ in range(repeats + 1):
        if device != "cpu":
            torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times[1:])


def encoder(device: str, dtype: torch.dtype, blocks: int) -> float:
    """Milliseconds of the vision encoder, scaled to all its blocks."""
    from transformers import Qwen2_5_VLConfig
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel as Encoder

    config = Qwen2_5_VLConfig(
        vision_config={
            "depth": blocks,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": WIDTH,
            "window_size": 112,
            "fullatt_block_indexes": list(range(7, blocks, 8)),
        }
    ).vision_config
    made: Any = Encoder._from_config(config)  # type: ignore[no-untyped-call]
    made = made.to(device, dtype).eval()
    pixels = torch.randn(4 * SIDE * SIDE, 1176, device=device, dtype=dtype)
    grid = torch.tensor([[1, 2 * SIDE, 2 * SIDE]], device=device)
    repeats = 1 if device == "cpu" else 5
    return milliseconds(lambda: made(pixels, grid_thw=grid), device, repeats) * BLOCKS / blocks


def page(device: str, dtype: torch.dtype) -> Scene:
    """Features like those of a document: most of them near one another, a quarter of them blank paper."""
    dice = torch.Generator().manual_seed(0)
    features = torch.randn(SIDE * SIDE, WIDTH, generator=dice) + 2 * torch.randn(1, WIDTH, generator=dice)
    features[::4] = features[0].clone()
    looks, keys = torch.rand(SIDE * SIDE, generator=dice), torch.randn(SIDE * SIDE, 80, generator=dice)
    question = torch.randn(20, WIDTH, generator=dice)
    return Scene(features.to(device, dtype), question.to(device, dtype), "a page", looks.to(device), keys.to(device))


@torch.inference_mode()
def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="where the results go, as JSON")
    options = parser.parse_args()
    device = options.device
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    whole = encoder(device, dtype, 8 if device == "cpu" else BLOCKS)
    print(f"{device} {dtype}, {SIDE * SIDE} tokens, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{'encoder':26}{whole:10.1f} ms")
    scene, found = page(device, dtype), {}
    for name in NAMES:
        selector: Any = make(name)

        def choose(selector: Any = selector) -> None:
            scene.rankings.clear()
            selector.select(scene, BUDGET)

        spent = found[name] = milliseconds(choose, device)
        print(f"{name:26}{spent:10.1f} ms{spent / whole:10.3f} of the encoder")
    if options.out:
        facts = about("torch", "transformers") | {"device": device, "threads": torch.get_num_threads()}
        sizes = {"tokens": SIDE * SIDE, "kept": BUDGET}
        results = {"about": facts, **sizes, "encoder_ms": whole, "selectors_ms": found}
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
