"""The notebook in docs/ runs, and every cell shows what is stored in it: tables, charts and an image."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("vl_convert")
pytest.importorskip("pandas")
DOCS = Path(__file__).parents[2] / "docs"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebook", DOCS / "notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notebook_runs_and_shows_what_it_stores() -> None:
    cells: list[dict[str, Any]] = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = _script().run(cells)
    stored = [cell["outputs"][0]["data"] for cell in cells if cell["cell_type"] == "code"]
    assert [sorted(one) for one in shown] == [sorted(one) for one in stored]
    kinds = [next(iter(one)) for one in shown]
    assert kinds.count("text/html") == 6
    assert kinds.count("image/svg+xml") == 3
    assert kinds[0] == "image/png"
