"""The tables of families in the documentation are those of the data."""

import importlib.util
from pathlib import Path

from stakes.vision.geometry import families

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_lists_every_family_as_the_data_does() -> None:
    spec = importlib.util.spec_from_file_location("docs_families", DOCS / "families.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (DOCS / "families.md").read_text(encoding="utf-8")
    assert script.filled(page) == page
    assert all(f"| `{name}` |" in page for name in families())
