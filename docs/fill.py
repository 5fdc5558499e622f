"""Which numbers stand in a page? Those of its results files: tables and findings are copied between marks, never typed.

    python docs/fill.py docs/legibility.md docs/results/legibility.json docs/results/legibility-agreement.json

A table goes between ``<!-- table NAME -->`` and ``<!-- end -->``, its findings between ``<!-- findings NAME -->`` and
``<!-- end -->``. A test fills the page again and expects no change.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from stakes.commands.output import as_markdown

MARK = re.compile(r"(<!-- (table|findings) ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str, tables: dict[str, Any]) -> str:
    """The page with every mark filled."""

    def fill(found: re.Match[str]) -> str:
        table = tables[found[3]]
        if found[2] == "table":
            return f"{found[1]}{as_markdown(table['columns'], table['rows'])}{found[4]}"
        return found[1] + "".join(f"- {line}\n" for line in table["findings"]) + found[4]

    return MARK.sub(fill, page)


def read_tables(files: list[Path]) -> dict[str, Any]:
    """All tables of some results files, by name."""
    return {name: table for path in files for name, table in json.loads(path.read_text())["tables"].items()}


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(filled(page.read_text(), read_tables([Path(name) for name in sys.argv[2:]])))
