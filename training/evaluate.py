"""How well does it read? Error by family, budget, tier and mechanism on held-out pages, on one GPU in a minute.

    PYTHONPATH=src:. python -m training.evaluate --weights runs/reader/export --out errors.json

An answer is right when every character and the end are right under teacher forcing, which is greedy exact match with
the first answer. ``resolution`` resizes a page to at most the budget as ``stakes.fit`` does; ``deletion`` encodes at
full size and keeps the budget's tokens by greedy farthest-point order in cosine distance, at their original positions.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import random
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from training.batches import Batch, prepare
from training.examples import Layout, fill
from training.forward import Prefix
from training.heads import answer_loss
from training.pool import unpack

from training import architectures, families

BUDGETS = [32, 64, 96, 128, 160, 224, 304, 384, 448, 480, 512, 544, 576]
# what a 756 x 1008 page can take by resizing, LLaVA-OneVision's way, and budgets that only deletion reaches
RUNGS = [32, 64, 128, 192, 300, 352, 600, 944, 1188, 1536]
Tally = dict[str, list[int]]  # tier -> [wrong, asked]


def row_of(job: tuple[str, int, str]) -> tuple[int, int, np.ndarray]:
    """Draw one page and fill its row, wording unchanged."""
    family, seed, split = job
    page = families.draw(family, seed, split)
    row = np.zeros(Layout(*page.image.size).bytes, np.uint8)
    fill(row, page, random.Random(seed), augment=False)
    return (*page.image.size, row)


def load_pages(names: list[str], n: int, split: str, first: int = 0) -> dict[tuple[str, int, int], Tensor]:
    """n pages of each family, from seed ``first`` on, as rows by (family, width, height)."""
    groups = defaultdict(list)
    with mp.get_context("fork").Pool(os.cpu_count()) as workers:
        jobs = [(f, first + i, split) for f in names for i in range(n)]
        for (family, _, _), (w, h, row) in zip(jobs, workers.imap(row_of, jobs, chunksize=4), strict=True):
            if unpack(torch.from_numpy(row)[None], Layout(w, h))["n"].item():
                groups[family, w, h].append(row)
    return {k: torch.from_numpy(np.stack(v)) for k, v in groups.items()}


@torch.no_grad()
def farthest_first(tokens: Tensor) -> Tensor:
    """Greedy max-min cosine-distance order: (b, n, d) -> (b, n), whose first k are the choice of k."""
    unit = F.normalize(tokens.float(), dim=-1)
    distance = 1 - unit @ unit.mT
    b, n, _ = distance.shape
    row = torch.arange(b, device=tokens.device)
    current = distance.mean(-1).argmax(-1)
    nearest = torch.full((b, n), 9.0, device=tokens.device)
    order = []
    for _ in range(n):
        order.append(current)
        nearest = torch.minimum(nearest, distance[row, current])
        nearest[row, current] = -1
        current = nearest.argmax(-1)
    return torch.stack(order, 1)


class Evaluator:
    """A model on a device, counting wrong answers by tier."""

    def __init__(self, model: torch.nn.Module, device: torch.device, b: int = 32) -> None:
        self.fast, self.device, self.b = architectures.of(model).forward(model), device, b
        self.head, self.dtype = model.lm_head.weight, model.lm_head.weight.dtype

    def batch(self, rows: Tensor, layout: Layout, geo: Prefix) -> Batch:
        """Every question of these pages, as printed; no longer and no more than the pages need."""
        parts = unpack(rows.to(self.device), layout)
        most, longest = int(parts["n"].max()), int(parts["end"].max())
        return prepare(parts, geo, most, self.dtype, noise=False, length=longest)

    def count(self, tokens: Tensor, batch: Batch, geo: Prefix, tally: Tally, keep: Tensor | None = None) -> None:
        """Add one batch's answers to the tally."""
        states, _ = self.fast.decode(tokens, batch.qa, geo, keep)
        _, right = answer_loss(F.linear(states, self.head), batch.qa, batch.start, batch.end)
        for tier, name in enumerate(("low", "high")):
            asked = batch.asked & (batch.tier == tier)
            tally[name][0] += int((asked & ~right).sum())
            tally[name][1] += int(asked.sum())

    @torch.no_grad()
    def resolution(self, rows: Tensor, layout: Layout, budget: int) -> tuple[Tally, int] | None:
        """Wrong answers at the size that fits the budget, and its tokens; None where no size does."""
        geo, tally = self.fast.fitted(budget, layout.width, layout.height, self.device), {"low": [0, 0], "high": [0, 0]}
        if geo is None:
            return None
        for part in rows.split(self.b):
            batch = self.batch(part, layout, geo)
            self.count(self.fast.encode(batch.x, geo), batch, geo, tally)
        return tally, geo.tokens

    @torch.no_grad()
    def deletion(self, rows: Tensor, layout: Layout, budgets: list[int]) -> dict[int, Tally]:
        """Wrong answers after keeping each budget's tokens of the full-size encoding."""
        geo = self.fast.geometry(layout.height // 28, layout.width // 28, False, self.device)
        tallies: dict[int, Tally] = {k: {"low": [0, 0], "high": [0, 0]} for k in budgets}
        for part in rows.split(self.b):
            batch = self.batch(part, layout, geo)
            tokens = self.fast.encode(batch.x, geo)
            order = farthest_first(tokens)
            for k in budgets:
                self.count(tokens, batch, geo, tallies[k], order[:, : min(k, geo.tokens)].sort(1).values)
        return tallies


def merged(tallies: list[Tally]) -> dict[str, object]:
    """Errors by tier and over both, with counts."""
    total = {t: [sum(x[t][i] for x in tallies) for i in (0, 1)] for t in ("high", "low")}
    out = {t: round(w / n, 4) if n else None for t, (w, n) in total.items()}
    wrong, asked = (sum(total[t][i] for t in total) for i in (0, 1))
    return out | {"error": round(wrong / max(1, asked), 4), "counts": {t: total[t][1] for t in total}}


def main() -> None:
    """Print and save the tables."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weights", type=Path, required=True)
    p.add_argument("--out", type=Path)
    p.add_argument("--pages", type=int, default=96, help="pages of each family")
    p.add_argument("--split", default="test")
    p.add_argument(
        "--first", type=int, default=0, help="first seed; training pages from 10**9 on were never trained on"
    )
    p.add_argument("--families", nargs="*", default=list(families.FAMILIES))
    p.add_argument("--device", default="cuda")
    p.add_argument("--budgets", type=int, nargs="*", help="default: 13 for Qwen, the rungs of a page for LLaVA")
    p.add_argument("--deletion", nargs="*", default=["forms"], help="families to measure deletion on")
    a = p.parse_args()
    began, device = time.time(), torch.device(a.device)
    data = load_pages(a.families, a.pages, a.split, a.first)
    print(f"{a.split} pages drawn after {time.time() - began:.0f}s", flush=True)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = architectures.load(a.weights, dtype).to(device)
    a.budgets = a.budgets or (RUNGS if architectures.of(model) is architectures.LLAVA else BUDGETS)
    evaluator = Evaluator(model, device, 32 if device.type == "cuda" else 1)
    table: dict[str, dict[str, dict[str, object]]] = defaultdict(dict)
    for family in a.families:
        groups = [(Layout(w, h), rows) for (f, w, h), rows in data.items() if f == family]
        for budget in [*a.budgets, 10**6]:
            measured = [(evaluator.resolution(rows, layout, budget), len(rows)) for layout, rows in groups]
            parts = [(found, n) for found, n in measured if found]
            if len(parts) < len(groups):  # the smallest size of some page takes more
                continue
            mean = sum(tokens * n for (_, tokens), n in parts) / sum(n for _, n in parts)
            entry = merged([tally for (tally, _), _ in parts]) | {"tokens": round(mean, 1)}
            table[f"{family}.resolution"]["full" if budget == 10**6 else str(budget)] = entry
        if family in a.deletion:
            parts = [evaluator.deletion(rows, layout, a.budgets) for layout, rows in groups]
            for budget in a.budgets:
                table[f"{family}.deletion"][str(budget)] = merged([p[budget] for p in parts])
        if a.out:  # after every family: a call that is cut keeps what was measured
            a.out.write_text(json.dumps(table, indent=1))
        print(family, json.dumps({k: v["error"] for k, v in table[f"{family}.resolution"].items()}), flush=True)
    for mechanism in ("resolution", "deletion"):
        for budget, row in table.get(f"forms.{mechanism}", {}).items():
            print(f"forms {mechanism} {budget}: high {row['high']} low {row['low']}", flush=True)
    print(f"evaluated in {time.time() - began:.0f}s", flush=True)


if __name__ == "__main__":
    main()
