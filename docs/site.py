"""MkDocs hook: formulas become MathML when the site is built.

A fence ``math`` holds LaTeX, as GitHub shows it; here it becomes MathML, which every browser draws without a script.
"""

import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Every formula as a block of MathML."""
    return FORMULA.sub(lambda found: f'<div class="formula">{formula(found[1])}</div>\n', markdown)


def formula(latex: str) -> str:
    """LaTeX as MathML on one line, so that Markdown leaves it alone."""
    return re.sub(r"\s*\n\s*", " ", convert(latex.strip(), display="block"))
