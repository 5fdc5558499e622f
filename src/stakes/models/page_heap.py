"""How do the pages of a call become one heap of patches?

Neighbours of one size go to the device in one copy, as bytes, and are looked up in one table (``patches``). Page-locked
memory lets the host go on meanwhile: it comes from torch's own allocator, which lends it to nobody else before the copy
is over. What the table does not know is left to the processor, image by image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stakes.models.images import side_by_side
from stakes.models.patches import Patches


def runs(
    patches: Patches | None, images: Sequence[Any], exact: Sequence[bool], pixels: Sequence[Any] = ()
) -> Iterator[tuple[list[Any], list[Any]]]:
    """Neighbours that the table takes together, with their pixels [H, W, 3]; one alone and no pixels: none takes it."""
    known = pixels or [None] * len(images)
    asked = list(zip(images, exact, known, strict=True))

    def size(at: int) -> Any:
        image, fitted, _ = asked[at]
        return image.size if patches is not None and patches.takes(image, exact=fitted) else at

    for name, places in groupby(range(len(asked)), size):
        some = [asked[at] for at in places]
        if isinstance(name, int):
            yield [some[0][0]], []
        else:
            yield [image for image, _, _ in some], [np.asarray(i) if known is None else known for i, _, known in some]


def stacked(pages: Sequence[Any], device: torch.device) -> Tensor:
    """Pages [H, W, 3] of one size -> [n, H, W, 3] bytes on the device, by one copy, which on CUDA nobody waits for."""
    locked = device.type == "cuda"
    stack = torch.empty(len(pages), *pages[0].shape, dtype=torch.uint8, pin_memory=locked)
    side_by_side(np.copyto, list(stack.numpy()), pages)
    return stack.to(device, non_blocking=locked)  # memory that is not locked may be gone before it has been read
