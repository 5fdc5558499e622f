"""Density is 1 - mean pairwise cosine, by its closed form."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from stakes.calibration.arms import density, patch_features
from stakes.errors import BadInput


def by_pairs(features: Any) -> float:
    total, count = 0.0, 0
    for i, a in enumerate(features):
        for j, b in enumerate(features):
            if i != j:
                size = np.linalg.norm(a) * np.linalg.norm(b)
                total += float(a @ b / size) if size else 0.0
                count += 1
    return 1 - total / count


@pytest.mark.parametrize("seed", range(5))
def test_the_closed_form_equals_the_mean_over_pairs(seed: int) -> None:
    dice = np.random.default_rng(seed)
    features = dice.normal(size=(17, 6)) + dice.normal(size=6)
    if seed == 4:
        features[3] = 0
    assert density(features) == pytest.approx(by_pairs(features), abs=1e-12)
    assert density(torch.from_numpy(features)) == pytest.approx(density(features.astype(np.float32)), abs=1e-6)


def test_blank_paper_is_0_and_orthogonal_features_are_1() -> None:
    assert density(np.ones((50, 8))) == pytest.approx(0, abs=1e-12)
    for seed in range(40):  # rounding must not fall below what the content arm takes
        assert density(np.tile(np.random.default_rng(seed).normal(size=(1, 64)), (90, 1))) >= 0
    assert density(np.eye(8)) == pytest.approx(1)
    assert density(np.ones((1, 8))) == 0


def test_features_must_be_tokens_by_dimensions() -> None:
    with pytest.raises(BadInput, match="shape"):
        density(np.ones(5))


def test_patches_are_cut_in_reading_order() -> None:
    pixels = np.full((60, 90), 255, dtype=np.uint8)
    pixels[28:56, 56:84] = 0
    features = patch_features(Image.fromarray(pixels))
    assert features.shape == (6, 784)
    assert np.allclose(features[:5], -1)
    assert np.allclose(features[5], 1)
    assert patch_features(Image.new("RGB", (5, 200))).shape == (7, 784)
    assert density(patch_features(Image.new("RGB", (90, 60), "white"))) == pytest.approx(0, abs=1e-9)
