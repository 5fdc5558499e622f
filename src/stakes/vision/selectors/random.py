"""Keeps random tokens: the baseline that a published method must beat.

One permutation per sample, seeded by its name, so a run is repeatable and the choice is nested over budgets.
"""

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from stakes.errors import BadInput
from stakes.vision.selectors.base import Scene, Selector


@dataclass(frozen=True)
class Random(Selector):
    """A uniform choice, the same for one sample and ``seed`` on every machine."""

    name: ClassVar[str] = "random"
    per_image: ClassVar[bool] = False
    seed: int = 0

    def __post_init__(self) -> None:
        if type(self.seed) is not int:
            raise BadInput(f"random takes a whole number as its seed, such as seed=0, not {self.seed!r}")

    def rank(self, scene: Scene, count: int) -> Tensor:
        """[count] indices, a prefix of the sample's permutation."""
        digest = hashlib.blake2b(f"{self.seed}:{scene.sample}".encode(), digest_size=8).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
        order = generator.permutation(len(scene.features))[:count]
        return torch.from_numpy(order).to(scene.features.device)
