"""What does the site need beyond Markdown? Formulas as MathML, made when the site is built, and pages still to come.

A fence ``math`` holds LaTeX, as GitHub shows it; here it becomes MathML, which every browser draws without a script.
"""

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MEASURED = "What it rests on"  # the part of the navigation that takes pages of results


def on_config(config: Any) -> Any:
    """Pages that are not named in mkdocs.yml (results, mostly) join the navigation under their own titles."""
    nav, folder = config["nav"], Path(config["docs_dir"])
    named = set(_paths(nav))
    (part,) = (entry[MEASURED] for entry in nav if isinstance(entry, dict) and MEASURED in entry)
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.md"))
    part.extend(path for path in found if path not in named)
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Every formula as a block of MathML."""
    return FORMULA.sub(lambda found: f'<div class="formula">{formula(found[1])}</div>\n', markdown)


def formula(latex: str) -> str:
    """LaTeX as MathML on one line, so that Markdown leaves it alone."""
    return re.sub(r"\s*\n\s*", " ", convert(latex.strip(), display="block"))


def _paths(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [path for entry in entries for path in _paths(entry)]
