"""Selectors choose the tokens that deletion keeps; one file each, found here by name.

make("redundancy")
make("fastv:layer=2,rows=mean")          # options after a colon
make("pyramiddrop:layers=(8,16,24)")     # a comma in parentheses belongs to the value
make("fastv:count=layers")               # inside the model: a budget is a mean over layers
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.vision.selectors.base import Selector
    from stakes.vision.selectors.layers import LayerSelector


# name -> (module, class); imported on first use, so that listing the names does not import torch
SELECTORS = MappingProxyType(
    {
        "redundancy": ("stakes.vision.selectors.redundancy", "Redundancy"),
        "random": ("stakes.vision.selectors.random", "Random"),
        "saliency": ("stakes.vision.selectors.saliency", "Saliency"),
        "visionzip": ("stakes.vision.selectors.visionzip", "VisionZip"),
        "cdpruner": ("stakes.vision.selectors.cdpruner", "CDPruner"),
        "fastv": ("stakes.vision.selectors.fastv", "FastV"),
        "sparsevlm": ("stakes.vision.selectors.sparsevlm", "SparseVLM"),
        "pyramiddrop": ("stakes.vision.selectors.pyramiddrop", "PyramidDrop"),
    }
)


def make(spec: str | Selector | LayerSelector) -> Selector | LayerSelector:
    """The selector that ``spec`` names, with its options; a selector object is returned unchanged."""
    if not isinstance(spec, str):
        return spec
    name, _, options = spec.partition(":")
    if name not in SELECTORS:
        raise BadInput(f"no selector is called {name!r}; there are {', '.join(SELECTORS)}")
    module, attribute = SELECTORS[name]
    cls = getattr(import_module(module), attribute)
    known = {field.name for field in fields(cls)}
    values: dict[str, Any] = {}
    for option in filter(None, re.split(r",(?![^(]*\))", options)):
        key, equals, value = option.partition("=")
        if key == "count" and key not in known:
            raise BadInput(
                f"selector {name!r} drops before the language model, where all layers read the budget and there is "
                f"nothing to average; leave {option} out, or choose one that drops inside, such as fastv:{option}"
            )
        if not equals or key not in known:
            raise BadInput(f"selector {name!r} has no option {option!r}; it takes {', '.join(sorted(known)) or 'none'}")
        if key in values:
            raise BadInput(f"selector {name!r} is given {key} twice, in {options!r}; give it once")
        values[key] = _literal(value)
    selector: Selector | LayerSelector = cls(**values)
    return selector


def _literal(text: str) -> Any:
    """The Python literal that the text writes (true and false in any case), or the text itself."""
    try:
        return ast.literal_eval(text.title() if text.lower() in ("true", "false") else text)
    except (ValueError, SyntaxError):
        return text
