"""Train the reader from scratch on synthetic pages: one GPU, about 25 minutes.

    PYTHONPATH=src:. python -m training.train --run runs/reader --seconds 1450

Started again with the same ``--run`` it goes on where it stood, whatever ended it. ``--until S`` stops after S seconds
of the plan; SIGTERM stops after the current step; both save first.
A new plan starts from the weights of an old one:

    PYTHONPATH=src:. python -m training.train --run runs/more --init src/stakes/models/weights/reader --level 4

The second architecture is one more size; its language model starts from the first reader's:

    PYTHONPATH=src:. python -m training.train --run runs/llava --size llava --init src/stakes/models/weights/reader

The weights live in a stock ``Qwen2_5_VLForConditionalGeneration`` or ``LlavaOnevisionForConditionalGeneration``;
``forward.py`` only runs them faster.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from training.batches import Batch, prepare
from training.examples import FIELD_CLASSES, length
from training.families import add_typefaces
from training.forward import Prefix
from training.heads import Heads, answer_loss, head_loss
from training.optim import Optimizer
from training.pool import PLAIN, Pool, Ring
from training.state import Progress, export, load_state, load_travelled, read_progress, save_state

from training import architectures, schedule


def arguments() -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--run", type=Path, required=True, help="folder of state, export and log")
    p.add_argument("--size", choices=architectures.SIZES, default="base")
    p.add_argument("--seconds", type=float, default=1450, help="length of the whole plan, over all calls")
    p.add_argument("--until", type=float, help="stop (and save) after this many seconds of the plan")
    p.add_argument("--init", type=Path, help="start from these weights, or from a run's export/ and optimizer")
    p.add_argument("--seed", type=int, default=0, help="first page seed, where no saved state tells it")
    p.add_argument("--skip", type=float, default=0.0, help="with --init: start the schedule at this fraction")
    p.add_argument("--level", type=int, help="start at this level of schedule.LEVELS, whatever was saved")
    p.add_argument("--window", type=int, help="with --init: the encoder's window in pixels from now on")
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--flat", type=float, default=0.45, help="share of the plan before the rate falls")
    p.add_argument("--tokens", type=int, default=100_000, help="visual tokens (plus a share of text) a step")
    p.add_argument("--pool-gb", type=float, default=80)
    p.add_argument("--reuse", type=float, default=4, help="wait for new pages when one was shown more often than this")
    p.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    p.add_argument("--save-every", type=float, default=120)
    p.add_argument("--log-every", type=int, default=50)
    p.add_argument("--steps", type=int, default=10**9, help="stop after this many steps of this call")
    p.add_argument("--deleted", type=float, default=0.0, help="share of full-size batches with tokens deleted")
    p.add_argument("--fonts", type=Path, help="folder of further typefaces for receipts; see typefaces.md")
    p.add_argument("--device", default="cuda")
    p.add_argument("--warm-rows", type=int, default=512, help="cards to wait for before the first step")
    return p.parse_args()


def random_keep(batch: Batch, rng: random.Random) -> torch.Tensor:
    """(b, k) tokens to keep: blank ones go first on some pages, any on others. Only used with ``--deleted``."""
    b, cells = batch.fields.shape
    k = max(16, int(cells * rng.uniform(0.05, 0.9)))
    score = (batch.ocr > 0).any(-1).float()
    score = score + torch.rand_like(score) * (0.3 + 3.0 * torch.rand(b, 1, device=score.device))
    return score.topk(k, 1).indices.sort(1).values


class Trainer:
    """One step at a time over a model, its heads and its optimiser."""

    def __init__(self, model: torch.nn.Module, heads: Heads, optimizer: Optimizer, compiled: bool) -> None:
        self.model, self.heads, self.optimizer = model, heads, optimizer
        self.run = architectures.of(model).forward(model, compiled)
        self.middle = model.config.text_config.num_hidden_layers - 2
        self.dtype = model.lm_head.weight.dtype

    def step(
        self, batch: Batch, geo: Prefix, lr: float, weight: float, keep: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Forward, backward, update; returns (4,) answer, ocr and field losses and the exact-match error."""
        tokens = self.run.encode(batch.x, geo)
        states, middle = self.run.decode(tokens, batch.qa, geo, keep, self.middle)
        logits = F.linear(states, self.model.lm_head.weight)
        loss, right = answer_loss(logits, batch.qa, batch.start, batch.end)
        fields = batch.fields if keep is None else batch.fields.gather(1, keep)
        ocr, where = head_loss(self.heads, tokens, middle, batch.ocr, fields)
        (loss + weight * ocr + 0.3 * weight * where).backward()
        self.optimizer.step(lr)
        return torch.stack([loss.detach(), ocr.detach(), where.detach(), 1 - right.float().mean()])


def first_weights(a: argparse.Namespace) -> Path | None:
    """The folder that the model is built from; a resumed run's own export, whose config tells the encoder's window."""
    for folder in (a.run, a.init):
        if folder and (folder / "export").is_dir():
            return folder / "export"
    return a.init


def build(a: argparse.Namespace, device: torch.device) -> tuple[Trainer, Progress]:
    """Model, heads and optimiser: resumed, travelled, or new."""
    progress = Progress(size=a.size)
    resumed = (a.run / "state.safetensors").exists()
    model = architectures.start(a.size, first_weights(a), a.window)
    heads = Heads(model.config.text_config.hidden_size)
    model, heads = model.to(device), heads.to(device)
    optimizer = Optimizer(model, heads)
    if device.type == "cuda":
        model.bfloat16(), heads.bfloat16()
    if resumed:
        progress = load_state(a.run, optimizer)
        progress.level = progress.level if a.level is None else a.level
    elif a.init:
        travelled = a.init / "optimizer.safetensors"
        if travelled.exists() and architectures.of(read_progress(travelled).size) is architectures.of(a.size):
            progress = load_travelled(a.init, heads, optimizer)
        progress.elapsed = a.skip * a.seconds
        progress.level = progress.level if a.level is None else a.level
    return Trainer(model, heads, optimizer, device.type == "cuda"), progress


def first_seed(a: argparse.Namespace) -> int:
    """The first page seed nobody has drawn, known before CUDA is touched."""
    for path in (a.run / "state.safetensors", a.init / "optimizer.safetensors" if a.init else None):
        if path and path.exists():
            return read_progress(path).next_seed
    return a.seed


def name_of(ring: Ring, cells: int, deleted: bool) -> str:
    """The row of the log that a batch counts for: family and size."""
    full = (ring.layout.width // 28) * (ring.layout.height // 28)
    part = "deleted" if deleted else "full" if cells == full else "mid" if cells > 0.33 * full else "low"
    return f"{ring.kind}.{part}"


class Log:
    """Means of every kind of batch since the last line; one JSON object a line, in log.jsonl and on stdout."""

    def __init__(self, path: Path) -> None:
        self.file, self.rows = path.open("a"), {}
        self.time, self.images, self.pages = time.time(), 0, 0

    def add(self, name: str, stats: torch.Tensor, b: int) -> None:
        """Keep a step's numbers on the device: reading them would stall it."""
        self.rows.setdefault(name, []).append(stats)
        self.images += b

    def write(self, pages: int, **extra: float) -> dict[str, float]:
        """One line: rates and means. Returns each kind's error at full size."""
        now = time.time()
        rates = {"ips": self.images / (now - self.time), "rendered": (pages - self.pages) / (now - self.time)}
        means = {k: [round(x, 4) for x in torch.stack(v).mean(0).tolist()] for k, v in sorted(self.rows.items())}
        record = extra | {k: round(v) for k, v in rates.items()} | means
        line = json.dumps(record)
        print(line, flush=True)
        self.file.write(line + "\n")
        self.file.flush()
        self.rows, self.time, self.images, self.pages = {}, now, 0, pages
        return {k.removesuffix(".full"): v[3] for k, v in means.items() if k.endswith(".full")}


def main() -> None:
    """Train until the plan, ``--until`` or a signal ends it."""
    a = arguments()
    a.run.mkdir(parents=True, exist_ok=True)
    started = time.time()
    if a.fonts:
        add_typefaces(a.fonts)  # before the render workers fork
    crops, slots = architectures.of(a.size).crops, 192 if a.device == "cuda" else 24
    pool = Pool(a.workers, first_seed(a), slots_n=slots, crops=crops)  # forks: before CUDA is touched
    device = torch.device(a.device)
    torch.set_num_threads(1)  # tables are small, and render workers hold the other cores
    sys.setswitchinterval(5e-4)  # the mover thread gives the interpreter back quickly
    torch.backends.cuda.matmul.allow_tf32 = True
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    trainer, progress = build(a, device)
    pool.start(device, a.pool_gb)
    base, rng = progress.elapsed, random.Random(progress.next_seed)
    torch.manual_seed(progress.next_seed + 1)
    n = sum(p.numel() for p in trainer.model.parameters())
    print(f"{n / 1e6:.2f}M parameters, field classes {FIELD_CLASSES}, at {base:.0f}s step {progress.step}", flush=True)
    pool.set_shares(schedule.render_shares(progress.level))
    pool.wait([k for k, share in schedule.LEVELS[progress.level].mix.items() if share >= 0.1], a.warm_rows)
    print(f"pool ready after {time.time() - started:.0f}s", flush=True)
    fresh = not (a.run / "state.safetensors").exists()  # a resumed run needs no second warm-up
    log, begun, saved, done, drawn = Log(a.run / "log.jsonl"), time.time(), time.time(), 0, progress.pages
    shown = 0

    def save(final: bool) -> None:
        progress.pages, progress.next_seed = drawn + pool.pages, pool.seeds.value
        save_state(a.run, trainer.optimizer, progress)
        export(a.run, trainer.model, trainer.heads, trainer.optimizer, progress)
        print(f"saved at {progress.elapsed:.0f}s step {progress.step}{' (final)' if final else ''}", flush=True)

    while done < a.steps and not stop and progress.elapsed < min(a.seconds, a.until or a.seconds):
        pool.wait_for_new(shown / a.reuse)
        fraction = progress.elapsed / a.seconds
        ring = pool.pick(schedule.kind(progress.level, rng), rng)
        if ring is None:
            ring = max(pool.rings.values(), key=lambda r: r.count)
        gh, gw = schedule.grid(ring.kind, ring.layout.width, ring.layout.height, rng)
        full = gh * gw == (ring.layout.width // 28) * (ring.layout.height // 28)
        geo = trainer.run.geometry(gh, gw, full and rng.random() < 0.15, device)
        b = schedule.batch_size(ring.kind, geo.tokens, a.tokens)
        nq = schedule.questions(ring.kind)
        worn, long = ring.kind in PLAIN, length(ring.kind)
        batch = prepare(ring.sample(b), geo, nq, trainer.dtype, ring.kind != "forms", relit=worn, length=long)
        keep = random_keep(batch, rng) if a.deleted and full and rng.random() < a.deleted else None
        lr = schedule.learning_rate(fraction, done if fresh else 10**9, a.lr, a.flat)
        stats = trainer.step(batch, geo, lr, schedule.head_weight(progress.level, fraction), keep)
        log.add(name_of(ring, gh * gw, keep is not None), stats, b)
        done += 1
        shown += b
        progress.step += 1
        progress.images += b
        progress.elapsed = base + time.time() - begun
        if done % a.log_every == 0:
            at = {"t": round(progress.elapsed, 1), "step": progress.step, "lr": round(lr, 6), "level": progress.level}
            errors = log.write(pool.pages, **at)
            pool.plain.value = schedule.plain(progress.elapsed / a.seconds)
            level = schedule.next_level(progress.level, progress.elapsed / a.seconds, errors)
            if level != progress.level:
                progress.level = level
                pool.set_shares(schedule.render_shares(level))
        if time.time() - saved > a.save_every:
            save(False)
            saved = time.time()
    save(True)
    pool.close()
    print(f"DONE {progress}", flush=True)


if __name__ == "__main__":
    main()
