"""What tests of measured pages share."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def fill() -> ModuleType:
    """The script ``docs/fill.py`` as a module."""
    spec = importlib.util.spec_from_file_location("fill", Path(__file__).parents[2] / "docs" / "fill.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
