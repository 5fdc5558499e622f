"""How do pixels become an encoder's patches without asking the image processor every time?

A processor of the Qwen-VL families rescales and normalises every pixel on its own: 256 values a channel, so what it
does is a table. It is asked once what it makes of each value; after that a page is looked up and put in patch order:

    table[c, v] = processor's number for value v in channel c           (bit for bit: the numbers are its own)

The processor also repeats a still image ``temporal`` times, to look like a film. One frame is made here, which
``vision_fast`` embeds with the sum of the kernel's frames. A page of 875 tokens takes 5 ms instead of 25 on one core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor


@dataclass(frozen=True)
class Patches:
    """What one processor does to the pixels of an image that it does not resize; ``table``: [3 x 256] float32."""

    table: Tensor
    patch: int
    merge: int
    least: int
    most: int

    @property
    def side(self) -> int:
        """Pixels along one side of a token."""
        return self.patch * self.merge

    def of(self, image: Image.Image, *, exact: bool, device: torch.device | None = None) -> Tensor | None:
        """[P, 3 * patch * patch] of one frame; None where the processor would change the image's size first.

        ``exact``: the size is a fitted one, which the processor is told to leave alone whatever its limits. ``device``:
        where the work is done; bytes are a quarter of what floats take on the way there.
        """
        if image.width % self.side or image.height % self.side or image.mode != "RGB":
            return None
        if not exact and not self.least <= image.width * image.height <= self.most:
            return None
        values = arrange(image, self.patch, self.merge, device).int()
        values += 256 * torch.arange(3, dtype=torch.int32, device=device)[:, None]
        return self.table.to(values.device).index_select(0, values.view(-1)).view(len(values), -1)

    def grid(self, image: Image.Image) -> tuple[int, int, int]:
        """(t, h, w) in patches, as the processor counts them."""
        return 1, image.height // self.patch, image.width // self.patch


def arrange(image: Image.Image, patch: int, merge: int, device: torch.device | None = None) -> Tensor:
    """RGB -> [P, 3, patch * patch] uint8: tokens in reading order, and the merge x merge patches of each so as well."""
    pixels = torch.from_numpy(np.array(image)).to(device)
    rows, columns = image.height // (patch * merge), image.width // (patch * merge)
    parts = pixels.view(rows, merge, patch, columns, merge, patch, 3).permute(0, 3, 1, 4, 6, 2, 5)
    return parts.reshape(-1, 3, patch * patch)


def learn(processor: Any) -> Patches | None:
    """Ask a processor for its table; None where what it does is no such table in this layout.

    The second picture is the proof: every value in every channel, in several tokens, must come out bit for bit.
    """
    size = getattr(processor, "size", None)
    stated: list[Any] = [getattr(processor, name, None) for name in ("patch_size", "merge_size")]
    stated += [getattr(size, name, None) for name in ("shortest_edge", "longest_edge")]
    if None in stated:
        return None
    patch, merge, least, most = (int(number) for number in stated)
    side = patch * merge
    if side < 16:  # the 256 values would not fit into one token
        return None
    levels = np.minimum(np.arange(side * side), 255).astype(np.uint8).reshape(side, side, 1).repeat(3, 2)
    dice = np.random.default_rng(0).integers(0, 256, (2 * side, 3 * side, 3), dtype=np.uint8)
    probe, proof = Image.fromarray(levels), Image.fromarray(dice)
    seen, expected = (_stock(processor, image, patch) for image in (probe, proof))
    if seen is None or expected is None:
        return None
    table = torch.zeros(3, 256)
    where = arrange(probe, patch, merge).long()
    for channel in range(3):
        table[channel][where[:, channel]] = seen[:, channel]
    found = Patches(table.view(-1), patch, merge, least, most)
    ours = found.of(proof, exact=True)
    return found if ours is not None and torch.equal(ours, expected.reshape(len(ours), -1)) else None


def _stock(processor: Any, image: Image.Image, patch: int) -> Tensor | None:
    """[P, 3, patch * patch] of the processor's first frame; None where its frames differ or it has another layout."""
    pixels = image.width * image.height
    size = {"shortest_edge": pixels, "longest_edge": pixels}
    values = processor(images=[image], return_tensors="pt", size=size).get("pixel_values")
    frames = int(getattr(processor, "temporal_patch_size", 1))
    if values is None or values.dtype != torch.float32 or values.numel() != 3 * frames * pixels:
        return None
    parts = values.view(-1, 3, frames, patch * patch)
    return parts[:, :, 0] if bool((parts == parts[:, :, :1]).all()) else None
