"""The paper's published figures, for comparison columns, tests and plots; never a result of this project.

Credit: Jingbo Wen, Liang He, Mingyu Cao, Haoyu Wang, Minxuan Hu, Kangning Cui and Xilu Wang, "Not All Visual Tokens
Are Equally Safe to Remove: Consequence-Sensitive Visual Token Compression".
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def figures() -> dict[str, Any]:
    """Every published figure, as nested dicts; see figures.json for the keys."""
    text = files(__package__).joinpath("figures.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
