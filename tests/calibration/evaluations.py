"""A policy of two tiers and pages of many shapes to evaluate it on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tests.evaluation.oracle import page, write_samples

from stakes.budgets.policy import Policy
from stakes.data.sample import Sample
from stakes.evaluation.samples import prepare_samples
from stakes.signals import KeywordRule


def policy(high: int = 512, low: int = 96, mechanism: str = "resolution", **more: Any) -> Policy:
    tiers = {"high": {"cost": 5, "budget": high}, "low": {"cost": 1, "budget": low}}
    record = {"schema": 1, "mean_budget": 304, "mechanism": mechanism, "tiers": tiers, **more}
    return Policy.from_record(record)


def mixed_pages(folder: Path, count: int = 40) -> list[Sample]:
    """Pages of many shapes and densities, two or three questions each, unequal tiers."""
    samples = write_samples(folder, count, per_page=1)
    dice = np.random.default_rng(0)
    for number in range(count):
        width, height = int(dice.integers(700, 1009)), int(dice.integers(850, 1200))
        image = page(number, width, height)
        noise = dice.integers(0, 255, (height // 8, width // 8), dtype=np.uint8)
        image.paste(Image.fromarray(noise).resize((width, 20 * (number % 30) + 1)), (0, 0))
        image.save(folder / f"page{number}.png", compress_level=1)
    extra = [replace(s, id=f"{s.id}+", question=f"Again: {s.question}") for s in samples if s.tier == "low"][::2]
    return prepare_samples([*samples, *extra], folder, KeywordRule())
