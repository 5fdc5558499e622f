"""Drop tokens without ink before the vision encoder, with every position kept.

A token is one merged cell of the image, 2 x 2 patches. It is blank if its pixels are uniform and have the color of the
page's background, in levels of 255 and in every channel:

    high - low <= tolerance      and      |middle - background| <= tolerance

``background`` is the median middle of the uniform tokens. The encoder reads the tokens with ink. Where the budget is
larger than their number, it also reads blank ones, those next to ink first, so that deletion keeps exactly the budget:

    tokens read = max(tokens with ink, budget)              # all of them where the budget is the native count

Kept tokens keep their rotary embedding, their window and their place in the image, so this is the function of the whole
encoder with the keys of the dropped tokens masked in every attention. It is not the function of the whole encoder:
tokens with ink no longer see the blank paper around them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor


@dataclass(frozen=True)
class Kept:
    """What the encoder reads of an image. ``tokens``: [m] sorted, on the host; None: all. ``ink``: those with ink."""

    tokens: Tensor | None
    ink: int


@dataclass(frozen=True)
class InkFilter:
    """What the encoder may leave out of an image of which ``budget`` tokens are kept."""

    tolerance: int
    budget: int

    def keep(self, low: NDArray[Any], high: NDArray[Any], columns: int) -> Kept:
        """The tokens to read, from the least and greatest level of each token and channel, [N, 3] in such rows."""
        blank = blank_tokens(low, high, self.tolerance)
        count, ink = len(blank), int((~blank).sum())
        if max(ink, self.budget) >= count:
            return Kept(None, ink)
        order = nearest_to_ink(blank, columns)
        return Kept(torch.from_numpy(np.sort(order[: max(ink, self.budget)])), ink)


def blank_tokens(low: NDArray[Any], high: NDArray[Any], tolerance: int) -> NDArray[np.bool_]:
    """[N] which tokens are uniform paper, from [N, 3] extremes."""
    low, high = low.astype(np.float32), high.astype(np.float32)
    uniform: NDArray[np.bool_] = (high - low <= tolerance).all(1)
    if not uniform.any():
        return uniform
    middle = (low + high) / 2
    background = np.median(middle[uniform], axis=0)
    blank: NDArray[np.bool_] = uniform & (np.abs(middle - background) <= tolerance).all(1)
    return blank


def nearest_to_ink(blank: NDArray[np.bool_], columns: int) -> NDArray[np.int64]:
    """[N] the tokens by their distance to the nearest one with ink, those with ink first; ties to the lowest index."""
    if blank.all():
        return np.arange(len(blank))
    order: NDArray[np.int64] = np.argsort(distance_transform_edt(blank.reshape(-1, columns)).ravel(), kind="stable")
    return order


def byte_range(pixels: NDArray[np.uint8], side: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """[H, W, 3] bytes -> least and greatest level of each token of ``side`` pixels, [N, 3] each."""
    height, width, _ = pixels.shape
    bands = pixels.reshape(height // side, side, width * 3)  # whole lines first: they are contiguous
    cells = (len(bands), width // side, side, 3)
    low, high = (reduce(bands, axis=1).reshape(cells) for reduce in (np.min, np.max))
    return low.min(2).reshape(-1, 3), high.max(2).reshape(-1, 3)


def value_range(patches: Tensor, unit: int, mean: Any, std: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """``byte_range`` of patches as a processor leaves them: [N * unit, 3 * n], levels as (level / 255 - mean) / std."""
    values = patches.float().view(-1, unit, 3, patches.shape[1] // 3)
    scale, offset = (torch.tensor(numbers, dtype=torch.float32, device=values.device) for numbers in (std, mean))
    low, high = ((255 * (x * scale + offset)).round().cpu().numpy() for x in (values.amin((1, 3)), values.amax((1, 3))))
    return low, high
