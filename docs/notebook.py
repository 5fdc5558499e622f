"""Run the cells of docs/notebook.ipynb and store what they show, without Jupyter: python docs/notebook.py

The last expression of a cell is shown as a notebook would show it: PNG of an image, SVG of a chart, HTML of a table,
else its text. tests/docs/test_notebook.py runs the same cells.
"""

import ast
import base64
import json
import os
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).with_name("notebook.ipynb")


def run(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mime bundle of each code cell, run in order in one namespace and in a folder of its own."""
    space: dict[str, Any] = {}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
            return [_show(_run(source, space)) for source in sources]
        finally:
            os.chdir(before)


def _run(source: str, space: dict[str, Any]) -> Any:
    """Run a cell; the value of its last expression, or None."""
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), space)
    return None if last is None else eval(compile(last, "cell", "eval"), space)


def _show(value: Any) -> dict[str, Any]:
    """What a notebook stores of a value."""
    if value is None:
        return {}
    if hasattr(value, "_repr_mimebundle_"):
        bundle = value._repr_mimebundle_()
        return {"image/svg+xml": bundle["image/svg+xml"], "text/plain": "a chart"}
    if hasattr(value, "_repr_png_"):
        return {"image/png": base64.b64encode(value._repr_png_()).decode(), "text/plain": "an image"}
    if hasattr(value, "_repr_html_"):
        return {"text/html": value._repr_html_(), "text/plain": type(value).__name__}
    return {"text/plain": str(value)}


if __name__ == "__main__":
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, (cell, bundle) in enumerate(zip(code, run(notebook["cells"]), strict=True), 1):
        result = {"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": bundle}
        cell["execution_count"], cell["outputs"] = count, [result] if bundle else []
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
