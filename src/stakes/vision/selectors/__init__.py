"""Selectors choose the tokens that deletion keeps; one file each, found here by name.

make("redundancy")
make("fastv:layer=2,rows=mean")          # options after a colon
make("pyramiddrop:layers=(8,16,24)")     # a comma in parentheses belongs to the value
make("fastv:count=layers")               # inside the model: a budget is a mean over layers
make("blank+redundancy")                 # tokens without ink are dropped before the vision encoder
make("blank:tolerance=8+redundancy")     # ... those whose pixels differ by at most 8 of 255
make("acme.edges:Edges:first=0.5")       # a class of your own; or the name of an entry point of ``stakes.selectors``
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection
from dataclasses import fields
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stakes import plugins
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.vision.selectors.base import Selector
    from stakes.vision.selectors.layers import LayerSelector

GROUP = "stakes.selectors"
# name -> (module, class); imported on first use, so that listing the names does not import torch
SELECTORS = MappingProxyType(
    {
        "redundancy": ("stakes.vision.selectors.redundancy", "Redundancy"),
        "divprune": ("stakes.vision.selectors.divprune", "DivPrune"),
        "random": ("stakes.vision.selectors.random", "Random"),
        "saliency": ("stakes.vision.selectors.saliency", "Saliency"),
        "fastervlm": ("stakes.vision.selectors.fastervlm", "FasterVLM"),
        "vispruner": ("stakes.vision.selectors.vispruner", "VisPruner"),
        "holov": ("stakes.vision.selectors.holov", "HoloV"),
        "prumerge": ("stakes.vision.selectors.prumerge", "PruMerge"),
        "visionzip": ("stakes.vision.selectors.visionzip", "VisionZip"),
        "cdpruner": ("stakes.vision.selectors.cdpruner", "CDPruner"),
        "mmtok": ("stakes.vision.selectors.mmtok", "MMTok"),
        "fastv": ("stakes.vision.selectors.fastv", "FastV"),
        "dart": ("stakes.vision.selectors.dart", "DART"),
        "sparsevlm": ("stakes.vision.selectors.sparsevlm", "SparseVLM"),
        "pyramiddrop": ("stakes.vision.selectors.pyramiddrop", "PyramidDrop"),
    }
)

BLANK = "blank"
TOLERANCE = 16  # levels of 255 by which the pixels of a blank token differ; docs/selectors.md has the measurement
_BLANK = re.compile(rf"{BLANK}(?::([^+]*))?\+(.+)", re.DOTALL)

# Selectors that look at nothing but the features of the image, which is all that an engine can give them.
IMAGE_ONLY = ("redundancy", "divprune", "random", "saliency")


def make(spec: str | Selector | LayerSelector) -> Selector | LayerSelector:
    """The selector that ``spec`` names, with its options; a selector object is returned unchanged."""
    if not isinstance(spec, str):
        return spec
    tolerance, spec = blank_stage(spec)
    name, options = split(spec)
    cls = _plugin(name) if name not in SELECTORS else getattr(import_module(SELECTORS[name][0]), SELECTORS[name][1])
    known = {field.name for field in fields(cls)} - {BLANK}
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
    return selector if tolerance is None else _after_blank(selector, tolerance)


def blank_stage(spec: str) -> tuple[int | None, str]:
    """The tolerance of a ``blank+`` before a selector, and the selector's own spec; None without one.

    >>> blank_stage("blank:tolerance=8+redundancy:seed=nearest")
    (8, 'redundancy:seed=nearest')
    """
    found = _BLANK.fullmatch(spec)
    if found is None:
        if re.split("[:+]", spec, maxsplit=1)[0] == BLANK:
            raise BadInput(f"{BLANK} drops before the encoder; name what chooses after it, as in {BLANK}+redundancy")
        return None, spec
    if _BLANK.fullmatch(found[2]):
        raise BadInput(f"{BLANK} is given twice in {spec!r}; name it once, as in {BLANK}+redundancy")
    key, equals, value = (found[1] or f"tolerance={TOLERANCE}").partition("=")
    if key != "tolerance" or not equals or not value.isdecimal() or int(value) > 255:
        raise BadInput(f"{BLANK} takes a tolerance from 0 to 255 levels, such as tolerance=8, not {found[1]!r}")
    return int(value), found[2]


def _after_blank(selector: Selector | LayerSelector, tolerance: int) -> Selector:
    """The same selector, to choose among what is not blank."""
    from stakes.vision.selectors.base import Selector

    if not isinstance(selector, Selector):
        raise BadInput(
            f"selector {selector.name!r} drops inside the language model, which {BLANK}+ does not combine with; choose "
            f"one that drops before it, such as {BLANK}+redundancy"
        )
    made = copy.copy(selector)  # not ``replace``: a class of another package may have an __init__ of its own
    object.__setattr__(made, BLANK, tolerance)
    return made


def split(spec: str) -> tuple[str, str]:
    """Name and options of a spec, without a ``blank+``; a name is shipped, an entry point, or ``module:Class``."""
    _, spec = blank_stage(spec)
    name, _, options = spec.partition(":")
    plugins.check_clash(name, GROUP, shipped=name in SELECTORS)
    if name in SELECTORS or name in plugins.installed(GROUP):
        return name, options
    attribute, _, options = options.partition(":")
    if plugins.is_code(f"{name}:{attribute}"):
        return f"{name}:{attribute}", options
    names = ", ".join([*SELECTORS, *plugins.installed(GROUP)])
    raise BadInput(f"no selector is called {spec!r}; there are {names}, and package.module:Class for one of your own")


def plugin_identity(spec: str) -> dict[str, str]:
    """The package and the source of a selector that does not ship with stakes; empty for one that does."""
    name, _ = split(spec)
    return {} if name in SELECTORS else plugins.identity(name, GROUP)


def from_file(spec: str | None, given: Collection[str]) -> str | None:
    """The selector that a file names; a file never imports ``module:Class`` unless the user gives it, too."""
    if spec is None or spec in given or not plugins.is_code(split(spec)[0]):
        return spec
    raise BadInput(
        f"the policy's selector is {spec}, code that a file must not import by itself; if you trust it, name "
        f"it yourself: --selector {spec}"
    )


def _plugin(name: str) -> Any:
    """The class of another package, checked."""
    cls = plugins.load(name, GROUP)
    from stakes.vision.selectors.base import Selector
    from stakes.vision.selectors.layers import LayerSelector

    if not (isinstance(cls, type) and issubclass(cls, Selector | LayerSelector)):
        raise BadInput(f"{name} is not a selector; derive its class from Selector or LayerSelector")
    own = getattr(cls, "name", None)
    if not isinstance(own, str) or own in SELECTORS:
        raise BadInput(f"the selector {name} has the name {own!r}; give its class a name that no shipped selector has")
    return cls


def _literal(text: str) -> Any:
    """The Python literal that the text writes (true and false in any case), or the text itself."""
    try:
        return ast.literal_eval(text.title() if text.lower() in ("true", "false") else text)
    except (ValueError, SyntaxError):
        return text
