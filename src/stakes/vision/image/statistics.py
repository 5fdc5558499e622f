"""Statistics of an image that cost a millisecond or two: size, ink, and how much detail each halving removes.

    page_statistics(open_image("page.png"))       # one number for each of STATISTICS

``detail k``: log of the variance of the gray image after halving it k times, over that after k - 1 times. Fine print
averages out at the first halvings, large letters and areas stay. All sums are of whole numbers in Pillow's histograms,
so that the same pixels give the same numbers on every machine.
"""

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

HALVINGS = 5
INK = 64  # of 255: how far a pixel is from the most frequent value, the background
STATISTICS = ("size", "shape", "ink", "contrast", *(f"detail {k}" for k in range(1, HALVINGS + 1)))
_VALUES = np.arange(256)


def page_statistics(image: "Image.Image") -> tuple[float, ...]:
    """The log of its pixels, the log of width over height, the share of ink, the log variance, and the details."""
    gray, (width, height) = image.convert("L"), image.size
    counts = np.array(gray.histogram(), np.int64)
    ink = counts[np.abs(_VALUES - int(counts.argmax())) > INK].sum() / counts.sum()
    variances = [_variance(counts)]
    for _ in range(HALVINGS):
        gray = gray.reduce(2)
        variances.append(_variance(np.array(gray.histogram(), np.int64)))
    details = [math.log(after / before) for before, after in pairwise(variances)]
    return math.log(width * height), math.log(width / height), float(ink), math.log(variances[0]), *details


def _variance(counts: NDArray[np.int64]) -> float:
    """Of the gray values, plus 1, which keeps a blank page finite."""
    total, first, second = int(counts.sum()), int(counts @ _VALUES), int(counts @ _VALUES**2)
    return 1 + (total * second - first * first) / total**2
