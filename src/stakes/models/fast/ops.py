"""Whose operations stand between the matrix products? Triton's on a GPU that has it, else plain torch's."""

from __future__ import annotations

from typing import Any

import torch

from stakes.models.fast import torch_ops as plain_ops


def chosen(device: torch.device) -> Any:
    """A module like ``plain_ops``."""
    if device.type != "cuda":
        return plain_ops
    try:
        from stakes.models.fast import triton_ops
    except ImportError:  # torch without Triton, as on some platforms
        return plain_ops
    return triton_ops
