"""Distances on the grid of ``redundancy`` in torch: what the keys of ``max_min`` are compared with."""

import torch
from torch import Tensor


def grid_distances(gram: Tensor, inverse: Tensor) -> Tensor:
    """[N, N] products and [N] factors, as ``max_min.cosines`` gives them -> [N, N] int32 distances on the grid."""
    cosine = gram * inverse[:, None] * inverse
    return ((1 - cosine) * 1e6).round().clamp_min(0).to(torch.int32)
