"""How much is there to see in an image? The ``content`` arm spends by this.

    density = 1 - mean over pairs i != j of cos(f_i, f_j)
            = 1 - (||sum_i u_i||^2 - M) / (N (N - 1)),        u_i = f_i / ||f_i||,  M = number of non-zero features

The sum over pairs collapses into the square of one sum, so no N x N matrix is built. 0 is a blank page (all features
alike), 1 features that are orthogonal on average; a zero feature is orthogonal to everything.

``density`` takes a model's merged features. Models without features (an endpoint, OCR) use ``patch_features``: each
28 x 28 patch of the image as a vector of pixels, named ``patches-28`` where it is recorded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stakes.errors import BadInput

PATCH = 28
PATCH_FEATURES = "patches-28"


def density(features: Any) -> float:
    """[N, D] features (array or tensor) -> 1 - mean pairwise cosine; 0 for a single token, which has no pair."""
    values = features.detach().float().cpu().numpy() if hasattr(features, "detach") else features
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or len(array) == 0:
        raise BadInput(f"features are [tokens, dimensions] with at least one token, not of shape {array.shape}")
    size = len(array)
    if size == 1:
        return 0.0
    norms = np.linalg.norm(array, axis=1)
    nonzero = norms > 0
    units = array[nonzero] / norms[nonzero, None]
    total = units.sum(axis=0)
    return max(0.0, float(1 - (total @ total - nonzero.sum()) / (size * (size - 1))))  # rounding may fall below 0


def patch_features(image: Any) -> Any:
    """A PIL image -> [N, 784] float32: the luminance of each whole 28-pixel patch, white = -1 .. black = 1.

    Pixels beyond the last whole patch are left out, as smart_resize rounds; an image smaller than one patch is one
    patch, stretched.
    """
    columns, rows = max(1, image.width // PATCH), max(1, image.height // PATCH)
    if image.width < PATCH or image.height < PATCH:
        image = image.resize((columns * PATCH, rows * PATCH))
    pixels = 1 - np.asarray(image.convert("L"), dtype=np.float32) / 127.5
    pixels = pixels[: rows * PATCH, : columns * PATCH].reshape(rows, PATCH, columns, PATCH)
    return pixels.transpose(0, 2, 1, 3).reshape(rows * columns, PATCH * PATCH)
