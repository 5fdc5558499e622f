"""How does a new encoder come to speak a trained language model's language? It learns the first reader's visual tokens.

    PYTHONPATH=src:. python -m training.align --teacher src/stakes/models/weights/reader --out runs/aligned
    PYTHONPATH=src:. python -m training.train --run runs/llava --size llava --init runs/aligned --level 2

The LLaVA reader takes over a language model that knows the pages (``reader_llava.adopt``), but its tower is new. Until
that sees something, answers teach the language model only to unlearn. So the tower is first trained alone: each of its
tokens shows a square of 21 pixels, the first reader is shown the same pixels enlarged to 28, where its own tokens are
just these squares, and the tower regresses them (enlarged pages it reads as well as others: the reader of that time
had 17 of 79 answers on forms wrong, at native size 19),

    loss = |t - t'|^2 / |t'|^2 + 0.3 ocr

with no language model in the step, which is a third of the work of a whole one. Not resumable: a matter of minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path

import torch
from torch import Tensor
from training.forward import FastForward
from training.forward_llava import Canvas, LlavaForward
from training.heads import Heads, ocr_loss
from training.images import patches, scale
from training.optim import Optimizer
from training.pool import Pool

from training import architectures, reader_llava, schedule


class Aligner:
    """A tower, its ocr head and the reader that it learns from."""

    def __init__(self, teacher: Path, size: str, device: torch.device, init: Path | None = None) -> None:
        compiled, dtype = device.type == "cuda", torch.bfloat16 if device.type == "cuda" else torch.float32
        self.model, self.dtype = architectures.start(size, init or teacher).to(device), dtype
        self.teacher = FastForward(architectures.load(teacher, dtype).to(device).requires_grad_(False), compiled)
        self.heads = Heads(self.model.config.text_config.hidden_size).to(device)
        for still in (self.model.model.language_model, self.model.lm_head, self.heads.field):
            still.requires_grad_(False)
        self.optimizer = Optimizer(self.model, self.heads)
        self.model.to(dtype), self.heads.to(dtype)
        self.run = LlavaForward(self.model, compiled)

    @torch.no_grad()
    def wanted(self, x: Tensor, geo: Canvas) -> Tensor:
        """Patches of pages -> (b, cells, width): the first reader's tokens of the squares that the cells show."""
        grid = self.teacher.geometry(geo.gh, geo.gw, False, x.device)
        pixels = scale(geo.seen(x), geo.gh * 28, geo.gw * 28)
        return self.teacher.encode(patches(pixels, geo.gh, geo.gw, self.dtype), grid)

    def step(self, rows: dict[str, Tensor], geo: Canvas, lr: float, colour: bool) -> Tensor:
        """One update; returns (2,): the share of the tokens' power that is missed, and the ocr loss."""
        x = geo.show(rows["image"], self.dtype, noise=True, colour=colour)
        tokens, wanted = self.run.encode(x, geo), self.wanted(x, geo).float()
        missed = (geo.cells(tokens).float() - wanted).pow(2).mean() / wanted.pow(2).mean()
        headed = max(1, len(x) // 3)
        height, width = rows["image"].shape[1:3]
        ocr = ocr_loss(self.heads, tokens[:headed], geo.targets(rows["glyphs"][:headed], width, height)[0])
        (missed + 0.3 * ocr).backward()
        self.optimizer.step(lr)
        return torch.stack([missed.detach(), ocr.detach()])


def main() -> None:
    """Align until the time is up, then save a normal folder."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--teacher", type=Path, required=True, help="folder of the first reader")
    p.add_argument("--out", type=Path, required=True, help="folder to write; --init of training.train")
    p.add_argument("--init", type=Path, help="folder that an earlier call wrote, to go on from")
    p.add_argument("--size", choices=list(reader_llava.SIZES), default="llava")
    p.add_argument("--seconds", type=float, default=150)
    p.add_argument("--steps", type=int, default=10**9)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--tokens", type=int, default=150_000, help="visual tokens a step")
    p.add_argument("--level", type=int, default=len(schedule.LEVELS) - 1, help="the mix of schedule.LEVELS")
    p.add_argument("--first-seed", type=int, default=1_000_000_000, help="of the pages; training starts at 0")
    p.add_argument("--pool-gb", type=float, default=20)
    p.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    p.add_argument("--warm-rows", type=int, default=256)
    p.add_argument("--device", default="cuda")
    a = p.parse_args()
    crops, slots = architectures.of(a.size).crops, 192 if a.device == "cuda" else 24
    pool = Pool(a.workers, a.first_seed, slots_n=slots, crops=crops)  # forks: before CUDA is touched
    device, rng = torch.device(a.device), random.Random(a.first_seed)
    torch.set_num_threads(1)
    sys.setswitchinterval(5e-4)
    torch.backends.cuda.matmul.allow_tf32 = True
    aligner = Aligner(a.teacher, a.size, device, a.init)
    pool.start(device, a.pool_gb)
    pool.set_shares(schedule.shares(a.level))
    pool.wait([k for k, share in schedule.LEVELS[a.level].mix.items() if share >= 0.1], a.warm_rows)
    begun, recent, done = time.time(), [], 0
    while done < a.steps and time.time() - begun < a.seconds:
        ring = pool.pick(schedule.kind(a.level, rng), rng) or max(pool.rings.values(), key=lambda r: r.count)
        gh, gw = schedule.grid(ring.kind, ring.layout.width, ring.layout.height, rng)
        geo = aligner.run.geometry(gh, gw, False, device)
        b = max(2, min(144, a.tokens // geo.tokens))
        lr = a.lr * min(1.0, (done + 1) / 100) * max(0.05, 1 - (time.time() - begun) / a.seconds)
        recent.append(aligner.step(ring.sample(b), geo, lr, ring.kind != "forms"))
        done += 1
        if done % 50 == 0 or done == a.steps:
            missed, ocr = (round(v, 4) for v in torch.stack(recent).mean(0).tolist())
            at = {"t": round(time.time() - begun, 1), "step": done, "missed": missed, "ocr": ocr, "pages": pool.pages}
            print(json.dumps(at), flush=True)
            recent = []
    pool.close()
    reader_llava.save(aligner.model, str(a.out))
    print(f"saved {a.out} after {done} steps", flush=True)


if __name__ == "__main__":
    main()
