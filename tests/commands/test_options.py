"""``--ray``: contradictory options are refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.commands.test_calibrate import stakes

from stakes.errors import BadInput


def test_contradictory_options_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    pages = ("--pages", "shapes", "--per-tier", 1, "-o", tmp_path / "policy.json")
    with pytest.raises(BadInput, match="--ray-workers 3 says how many workers Ray has; give --ray with it"):
        stakes("calibrate", *pages, "--model", "./gone", "--ray-workers", 3)
    with pytest.raises(BadInput, match="is an address, whose server"):
        stakes("calibrate", *pages, "--endpoint", "http://127.0.0.1:9/v1", "--ray")
    with pytest.raises(BadInput, match="at least one worker is needed, not 0"):
        stakes("calibrate", *pages, "--model", "./gone", "--ray", "--ray-workers", 0)
