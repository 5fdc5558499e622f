"""Questions that the runs of these tests ask."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.evaluation.oracle import write_samples

from stakes.evaluation.items import Asked, ask


@pytest.fixture
def asked(tmp_path: Path) -> list[Asked]:
    return ask(write_samples(tmp_path, pages=6), tmp_path)
