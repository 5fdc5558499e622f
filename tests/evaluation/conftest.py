"""Samples that the runs of these tests answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.evaluation.oracle import write_samples

from stakes.data.sample import Sample
from stakes.evaluation.samples import prepare_samples


@pytest.fixture
def samples(tmp_path: Path) -> list[Sample]:
    return prepare_samples(write_samples(tmp_path, pages=6), tmp_path)
