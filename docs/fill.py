"""Copy tables and findings from results files into a page of the documentation.

    python docs/fill.py docs/appendix.md docs/results/*.json

A table goes between ``<!-- table NAME -->`` and ``<!-- end -->``, its findings between ``<!-- findings NAME -->`` and
``<!-- end -->``. A number in a sentence is a cell: ``<!-- cell within-task | embedded | cost | p -->1<!-- end -->``, by
the first cells of its row and its column; of columns with one name the first, or the second with ``name#2``. Or it is
in a finding, named by the words around it: ``<!-- number curves | by deletion: … p = {} by -->1<!-- end -->``.
In a row of a Markdown table the bar is written ``\\|``.

Tables of a results file of ``stakes reproduce paper`` are named after the file: ``paper-7b-within-task`` of
``paper-7b.json``. A test fills every page again and expects no change.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from stakes.commands.output import as_markdown, show

ARMS = ("uniform", "cost", "anti", "content")
CELL = re.compile(r"(<!-- (cell|number) ([^>]+?) -->).*?(<!-- end -->)", re.DOTALL)
MARK = re.compile(r"(<!-- (table|findings) ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str, tables: dict[str, Any]) -> str:
    """The page with every marked place filled."""

    def fill(found: re.Match[str]) -> str:
        table = tables[found[3]]
        if found[2] == "table":
            return f"{found[1]}{as_markdown(table['columns'], table['rows'])}{found[4]}"
        return found[1] + "".join(f"- {line}\n" for line in table["findings"]) + found[4]

    def fill_cell(found: re.Match[str]) -> str:
        words = found[3].replace("\\|", "|")
        value = cell(tables, words) if found[2] == "cell" else number(tables, words)
        return f"{found[1]}{show(value)}{found[4]}"

    return CELL.sub(fill_cell, MARK.sub(fill, page))


def cell(tables: dict[str, Any], words: str) -> Any:
    """The cell that ``table | first cells of the row | column`` names."""
    name, *keys, column = (word.strip() for word in words.split("|"))
    table, (wanted, _, which) = tables[name], column.partition("#")
    rows = [row for row in table["rows"] if [str(value) for value in row[: len(keys)]] == keys]
    at = [i for i, title in enumerate(table["columns"]) if title == wanted]
    if len(rows) != 1 or len(at) < int(which or 1):
        raise SystemExit(f"<!-- cell {words} --> names {len(rows)} rows and {len(at)} columns, not one of each")
    return rows[0][at[int(which or 1) - 1]]


def number(tables: dict[str, Any], words: str) -> str:
    """The number at ``{}``, with its interval if one follows, in the one finding that has the words around it."""
    name, _, text = words.partition(" | ")
    before, _, after = (re.escape(part).replace("…", ".*?") for part in text.partition("{}"))
    pattern = re.compile(rf"{before}([-+]?\d[\d.,e-]*(?<![.,])%?(?: \[[^]]*\])?){after}")
    found = [match[1] for finding in tables[name]["findings"] for match in [pattern.search(finding)] if match]
    if len(found) != 1:
        raise SystemExit(f"<!-- number {words} --> is in {len(found)} findings, not in one")
    return found[0]


def read_tables(files: list[Path]) -> dict[str, Any]:
    """All tables of some results files, by name, and ``side-by-side`` where its parts are among them."""
    tables: dict[str, Any] = {}
    for path in files:
        record = json.loads(path.read_text())
        for own, table in record["tables"].items():
            name = f"{path.stem}-{own}" if "schema" in record else own
            if name in tables:
                raise SystemExit(f"{path} has a table {name!r}, and so has a file before it: one would hide the other")
            tables[name] = table
    if "cross-dataset" in tables and any(name.endswith("-arms") for name in tables):
        tables["side-by-side"] = side_by_side(tables)
    return tables


def side_by_side(tables: dict[str, Any]) -> dict[str, Any]:
    """The arms of every data set in one table: published, the reader on its pages, legibility on real ones."""
    across = tables["cross-dataset"]
    rows = [[source, data, *cells] for source, data, *cells in across["rows"]]
    for name in (name for name in tables if name.endswith("-arms")):
        columns = tables[name]["columns"]
        arms = {row[1]: dict(zip(columns, row, strict=True)) for row in tables[name]["rows"] if row[0] == "legibility"}
        high, low = ([arms[arm][tier] for arm in ARMS] for tier in ("high", "low"))
        cost = arms["cost"]
        shown = [cost["high b:c"], cost["p"], cost["CWE gain, 95 %"], cost["pays from r"]]
        rows.append(["legibility", f"real {name.removesuffix('-arms')}", *high, *low[:2], *shown])
    order = ("published", "embedded", "legibility")
    return {"columns": across["columns"], "rows": sorted(rows, key=lambda row: order.index(row[0]))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Copy tables and findings of results files into a page's marks.")
    parser.add_argument("page", type=Path, help="the page, such as docs/appendix.md; it is written in place")
    parser.add_argument("results", type=Path, nargs="+", help="results files, such as docs/results/legibility.json")
    given = parser.parse_args()
    given.page.write_text(filled(given.page.read_text(), read_tables(given.results)))
