"""How does a run survive? Its whole state in one file, and a small one that travels.

* ``state.safetensors``: fp32 masters and optimiser buffers with step, elapsed seconds and next page seed; written every
  two minutes to a new name and renamed, so a killed run always leaves a whole one.
* ``export/``: the bf16 model as a normal folder, and beside it ``optimizer.safetensors``: momenta and heads as bf16
  (about 25 MB), enough to go on elsewhere from the exported weights.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from training.heads import Heads
from training.optim import Optimizer

from training import architectures


@dataclass
class Progress:
    """Where a run stands."""

    step: int = 0
    elapsed: float = 0.0  # seconds of training, summed over calls
    images: int = 0
    pages: int = 0
    next_seed: int = 0  # the first page that no worker has drawn
    level: int = 0  # of schedule.LEVELS
    size: str = "base"


def _write(tensors: dict[str, torch.Tensor], path: Path, progress: Progress) -> None:
    new = path.with_suffix(".new")
    save_file(
        {k: t.detach().cpu().contiguous() for k, t in tensors.items()}, new, {"progress": json.dumps(asdict(progress))}
    )
    os.replace(new, path)


def read_progress(path: Path) -> Progress:
    """Progress from a state file's header."""
    with safe_open(path, "pt") as f:
        return Progress(**json.loads(f.metadata()["progress"]))


def save_state(run: Path, optimizer: Optimizer, progress: Progress) -> None:
    """The resumable state; the model itself is in the masters."""
    _write(optimizer.tensors(), run / "state.safetensors", progress)


def load_state(run: Path, optimizer: Optimizer) -> Progress:
    """Restore masters and buffers in place and publish them to the model."""
    saved = load_file(run / "state.safetensors")
    for name, tensor in optimizer.tensors().items():
        tensor.copy_(saved[name])
    progress = read_progress(run / "state.safetensors")
    optimizer.t = progress.step
    optimizer.publish()
    return progress


def export(run: Path, model: nn.Module, heads: Heads, optimizer: Optimizer, progress: Progress) -> None:
    """Write ``export/`` and the travelling optimiser state."""
    architectures.of(model).save(model, str(run / "export"))
    buffers = {k: v for k, v in optimizer.tensors().items() if k.split(".")[0] in ("momentum", "first", "second")}
    buffers |= {f"heads.{k}": v for k, v in heads.state_dict().items()}
    _write({k: v.to(torch.bfloat16) for k, v in buffers.items()}, run / "optimizer.safetensors", progress)


def load_travelled(folder: Path, heads: Heads, optimizer: Optimizer) -> Progress:
    """Restore heads and momenta saved by ``export``; the weights come from ``export/`` itself."""
    saved = load_file(folder / "optimizer.safetensors")
    for name, tensor in optimizer.tensors().items():
        if name in saved:
            tensor.copy_(saved[name])
    progress = read_progress(folder / "optimizer.safetensors")
    optimizer.t = progress.step
    # the heads' masters are the optimiser's own copies: find them by identity of the parameter
    for name, p in heads.named_parameters():
        at = next(i for i, q in enumerate(optimizer.adam) if q is p)
        optimizer.adam_masters[at].copy_(saved[f"heads.{name}"])
    optimizer.publish()
    return progress
