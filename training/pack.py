"""Pack a reader into half of its bytes: matrices as int8 with one scale per row, everything else unchanged.

    PYTHONPATH=src:. python -m training.pack pack runs/reader/export runs/packed
    PYTHONPATH=src:. python -m training.pack unpack training/checkpoints/receipts runs/start

A packed folder holds ``packed.safetensors`` (9.2 MB for 9.1M parameters) and those small files (config, tokenizer) that
differ from the shipped reader's; ``unpack`` takes the others from there. An unpacked weight differs from the original
by at most 1/254 of the largest weight of its row, plus the rounding to bf16.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from stakes.models.embedded import CHECKSUMS, WEIGHTS

PACKED, INDEX = "packed.safetensors", "model.safetensors.index.json"
SHIPPED = WEIGHTS / "reader"
SHARD_BYTES = 12_000_000


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, ...) floats -> int8 of the same shape, and the step of each row in fp32."""
    rows = weight.float().flatten(1)
    step = rows.abs().amax(1).clamp(min=1e-12) / 127
    return (rows / step[:, None]).round().clamp(-127, 127).to(torch.int8).view_as(weight), step


def restore(values: Tensor, step: Tensor) -> Tensor:
    """int8 of shape (rows, ...) and the step of each row -> the weight in bf16."""
    return (values.flatten(1).float() * step[:, None]).view_as(values).to(torch.bfloat16)


def read(folder: Path) -> dict[str, Tensor]:
    """All tensors of a saved reader."""
    return {k: v for file in sorted(folder.glob("model*.safetensors")) for k, v in load_file(file).items()}


def _small_files(folder: Path) -> dict[str, bytes]:
    """The files of a saved reader besides its weights."""
    files = (f for f in folder.iterdir() if f.suffix in (".json", ".jinja") and f.name not in (INDEX, CHECKSUMS))
    return {f.name: f.read_bytes() for f in files}


def pack(folder: Path, out: Path) -> int:
    """Write a packed folder; returns its bytes."""
    out.mkdir(parents=True, exist_ok=True)
    packed: dict[str, Tensor] = {}
    for name, tensor in read(folder).items():
        if tensor.ndim < 2:
            packed[name] = tensor.contiguous()
        else:
            packed[f"{name}:int8"], packed[f"{name}:step"] = quantize(tensor)
    save_file(packed, out / PACKED)
    shipped = _small_files(SHIPPED)
    for name, content in _small_files(folder).items():
        if content != shipped.get(name):
            (out / name).write_bytes(content)
    return sum(file.stat().st_size for file in out.iterdir())


def unpack(folder: Path, out: Path) -> None:
    """Write a normal folder of bf16 shards from a packed one."""
    packed, weights = load_file(folder / PACKED), {}
    for name, tensor in packed.items():
        base, _, part = name.partition(":")
        if part == "":
            weights[name] = tensor
        elif part == "int8":
            weights[base] = restore(tensor, packed[f"{base}:step"])
    out.mkdir(parents=True, exist_ok=True)
    for name, content in (_small_files(SHIPPED) | _small_files(folder)).items():
        (out / name).write_bytes(content)
    _save_shards(weights, out)


def _save_shards(weights: dict[str, Tensor], out: Path) -> None:
    """Save weights in files of at most SHARD_BYTES, with their index."""
    shards: list[dict[str, Tensor]] = [{}]
    for name, tensor in sorted(weights.items()):
        if shards[-1] and sum(t.nbytes for t in shards[-1].values()) + tensor.nbytes > SHARD_BYTES:
            shards.append({})
        shards[-1][name] = tensor.contiguous()
    weight_map = {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, out / file, {"format": "pt"})
        weight_map |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": sum(t.nbytes for t in weights.values())}, "weight_map": weight_map}
    (out / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def main() -> None:
    """Pack or unpack a folder."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("action", choices=("pack", "unpack"))
    p.add_argument("folder", type=Path)
    p.add_argument("out", type=Path)
    a = p.parse_args()
    if a.action == "pack":
        print(f"{pack(a.folder, a.out) / 1e6:.2f} MB in {a.out}")
    else:
        unpack(a.folder, a.out)


if __name__ == "__main__":
    main()
