"""Where do batches come from? Worker processes render pages into shared memory; a thread moves them to the device.

Every kind of page (a family's canvas, or a crop size) is one ring of rows on the device, so a batch is a gather and no
host work. Pages are drawn once, used a few times and overwritten. Page seeds come from one counter shared by all
workers: it is part of the saved state, so a resumed run never sees a page twice.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing as mp
import os
import queue
import random
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from training.examples import Layout, crop, fill

from training import families

WEIGHTS = {"forms": 0.36, "charts": 0.085, "infographics": 0.025, "signs": 0.025, "shapes": 0.05, "swatches": 0.01}
WEIGHTS |= {"receipts": 0.20, "documents": 0.245}
# the mix of the first part of a run, while documents are new
FIRST = {"forms": 0.22, "charts": 0.07, "infographics": 0.025, "signs": 0.03, "shapes": 0.045, "swatches": 0.01}
FIRST |= {"receipts": 0.18, "documents": 0.42}
PLAIN = {
    "receipts": 0.12,
    "documents": 0.15,
}  # the share of plain pages, whatever the schedule says: real pages are worn
DENSITY = {"forms": (1.0, 1.35)}  # of every other page; small print is learnt last, so forms show more of it
# windows of the first three families; an architecture may have sizes of its own
CROPS = {"cards": (280, 168), "panels": (392, 280), "halves": (560, 420)}
Sizes = dict[str, tuple[int, int]]
CROPS_A_PAGE = 2  # more rows a second would keep the mover, and so the training thread, waiting for the interpreter
KINDS = [*CROPS, *WEIGHTS]


@dataclass
class Ring:
    """Rows of one kind and canvas on the device."""

    kind: str
    layout: Layout
    rows: Tensor
    count: int = 0
    total: int = 0

    def put(self, row: Tensor) -> None:
        """Overwrite the oldest row; ``settle`` makes new ones visible once the copy has ended."""
        self.rows[self.total % len(self.rows)].copy_(row, non_blocking=True)
        self.total += 1

    def settle(self) -> None:
        """The rows put so far have arrived."""
        self.count = min(self.total, len(self.rows))

    def sample(self, b: int) -> dict[str, Tensor]:
        """b random rows: ``image`` (b, H, W, 3) uint8 and the fields of ``examples.FIELDS``."""
        index = torch.randint(self.count, (b,), device=self.rows.device)
        words = self.rows.view(torch.int64)[index]  # eight bytes at a time: a gather of bytes is several times slower
        return unpack(words.view(torch.uint8), self.layout)


def unpack(rows: Tensor, layout: Layout) -> dict[str, Tensor]:
    """Rows of bytes -> named tensors."""
    b = rows.shape[0]
    out = {"image": rows[:, : layout.width * layout.height * 3].view(b, layout.height, layout.width, 3)}
    for name, start, stop, shape, dtype in layout.parts():
        part = rows[:, start:stop].contiguous()
        out[name] = (part.view(torch.int16) if dtype == np.int16 else part).view(b, *shape)
    return out


def draw_into(
    slots: np.ndarray, take, kind: str, seed: int, rng: random.Random, split: str, crops: Sizes, plain: float = 0.0
) -> list[tuple[int, str, int, int]]:
    """Render one page (or crops of one) into free slots; returns (slot, kind, width, height) of each.

    ``plain``: the share of pages without what only training pages show.
    """
    family = rng.choices(list(WEIGHTS)[:3], [0.5, 0.25, 0.25])[0] if kind in CROPS else kind
    density = rng.uniform(*DENSITY.get(family, (0.85, 1.2))) if rng.random() < 0.5 else 1.0
    page = families.draw(family, seed, split, density, plain=rng.random() < PLAIN.get(family, plain))
    views = [page]
    if kind in CROPS:
        views = [crop(page, *crops[kind], rng) for _ in range(CROPS_A_PAGE)]
    done = []
    for view in views:
        if view is None:
            continue
        slot = take()
        width, height = view.image.size
        if fill(slots[slot][: Layout(width, height).bytes], view, rng):
            done.append((slot, kind, width, height))
        else:
            done.append((slot, "", 0, 0))  # nothing asked: give the slot back
    return done


def work(number: int, slots: np.ndarray, free, ready, shares, plain, seeds, split: str, crops: Sizes) -> None:
    """One render process: for ever, pick a kind by the current shares, draw the next seed."""
    failures = 0
    os.nice(15)  # the training process must never wait for a core
    while True:
        with seeds.get_lock():
            seed = seeds.value
            seeds.value += 1
        rng = random.Random(seed)
        kind = rng.choices(KINDS, list(shares))[0]
        try:
            for item in draw_into(slots, free.get, kind, seed, rng, split, crops, plain.value):
                ready.put(item)
        except Exception:  # one bad page must not end a long run; it is shown, and counted by its absence
            failures += 1
            if failures < 3:
                print(f"render worker {number}: {kind} seed {seed} failed", flush=True)
                traceback.print_exc()


@dataclass
class Pool:
    """Rings by (kind, width, height), the workers that fill them, and the shares they render by.

    Create it before CUDA is touched: workers are forked. Call ``start(device, gigabytes)`` afterwards.
    """

    workers: int
    first_seed: int
    split: str = "train"
    slots_n: int = 192
    crops: Sizes = field(default_factory=lambda: CROPS)
    rings: dict[tuple[str, int, int], Ring] = field(default_factory=dict)

    def __post_init__(self) -> None:
        context = mp.get_context("fork")
        largest = max(w * h for sizes in families.SIZES.values() for w, h in sizes)
        self.row = Layout(largest // 28, 28).bytes
        self.memory = mmap.mmap(-1, self.row * self.slots_n)
        self.slots = np.frombuffer(self.memory, np.uint8).reshape(self.slots_n, self.row)
        self.free, self.ready = context.Queue(), context.Queue()
        self.shares = context.Array("d", [float(kind == "cards") for kind in KINDS])
        self.plain = context.Value("d", 0.0)  # the share of plain pages from now on
        self.seeds = context.Value(ctypes.c_int64, self.first_seed)
        for i in range(self.slots_n):
            self.free.put(i)
        arguments = (self.slots, self.free, self.ready, self.shares, self.plain, self.seeds, self.split, self.crops)
        self.processes = [context.Process(target=work, args=(i, *arguments), daemon=True) for i in range(self.workers)]
        for p in self.processes:
            p.start()
        self.pages = 0
        self.stopping = threading.Event()

    def start(self, device: torch.device, gigabytes: float) -> None:
        """Allocate the rings and start the mover.

        Bytes go by weight. The first canvas of a family is its usual one; receipts, with many, have no usual one.
        """
        self.device = device
        wanted = {(k, *wh): 0.06 * (i + 1) for i, (k, wh) in enumerate(self.crops.items())}
        for family, weight in WEIGHTS.items():
            sizes = families.SIZES[family]
            for i, size in enumerate(sizes):
                share = 2.5 / len(sizes) if len(sizes) > 4 else max(0.15, 1 / len(sizes)) if i else 1.0
                wanted[(family, *size)] = weight * share
        unit = gigabytes * 1e9 / sum(wanted.values())
        for (kind, w, h), share in wanted.items():
            layout = Layout(w, h)
            n = max(32, min(32768, int(share * unit / layout.bytes)))
            rows = torch.zeros(n, layout.bytes, dtype=torch.uint8, device=device)
            self.rings[kind, w, h] = Ring(kind, layout, rows)
        if device.type == "cuda":  # pinned, so that copies run beside the training step
            status = torch.cuda.cudart().cudaHostRegister(self.slots.ctypes.data, self.slots.nbytes, 0)
            print("pinned shared memory:", status, flush=True)
        self.mover = threading.Thread(target=self._move, daemon=True)
        self.mover.start()

    def _move(self) -> None:
        stream = torch.cuda.Stream() if self.device.type == "cuda" else None
        while not self.stopping.is_set():
            batch = []
            try:
                batch.append(self.ready.get(timeout=0.5))
                while len(batch) < 32:
                    batch.append(self.ready.get_nowait())
            except queue.Empty:
                pass
            with torch.cuda.stream(stream):  # a no-op without CUDA
                for slot, kind, w, h in batch:
                    if kind:
                        ring = self.rings[kind, w, h]
                        ring.put(torch.from_numpy(self.slots[slot][: ring.layout.bytes]))
                        self.pages += 1
            if stream:
                stream.synchronize()
            for ring in self.rings.values():
                ring.settle()
            for slot, *_ in batch:
                self.free.put(slot)

    def set_shares(self, shares: Sequence[float]) -> None:
        """How often workers render each of ``KINDS``."""
        self.shares[:] = list(shares)

    def pick(self, kind: str, rng: random.Random) -> Ring | None:
        """A ring of this kind, its canvases as often as they were drawn; None while there are too few pages."""
        rings = [r for (k, _, _), r in self.rings.items() if k == kind and r.count >= min(64, len(r.rows))]
        return rng.choices(rings, [r.total for r in rings])[0] if rings else None

    def wait(self, kinds: Sequence[str], rows: int, seconds: float = 120) -> None:
        """Block until each kind has ``rows`` rows."""
        limit = time.time() + seconds
        while any(sum(r.count for r in self.rings.values() if r.kind == k) < rows for k in kinds):
            if time.time() > limit:
                raise TimeoutError(
                    f"render workers gave too few pages: {[(r.kind, r.count) for r in self.rings.values()]}"
                )
            time.sleep(0.1)

    def wait_for_new(self, rows: float, seconds: float = 120) -> None:
        """Block until this many rows have been drawn in all: pages shown too often are learnt by heart."""
        limit = time.time() + seconds
        while self.pages < rows and time.time() < limit:
            time.sleep(0.005)

    def close(self) -> None:
        """End the mover and the workers."""
        self.stopping.set()
        self.mover.join()
        for p in self.processes:
            p.terminate()
            p.join()
