"""The known model families: the token formula of each, and how a budget can be realised with it.

The entries are data, in families.json. Local families carry the numbers of a published checkpoint. Hosted families
follow a provider's billing guide; their section has its own date, because these rules change without notice.

    family("internvl").refusal     # 'internvl: not controllable by resizing; use max_dynamic_patch …'

A family that is not in the data is described by its numbers, wherever a name may stand:

    family("patch=14,merge=2,min_pixels=3136,max_pixels=1003520")      # Qwen-VL's rule
    family("tile=448,tiles=6,per_tile=256")                            # InternVL's
    family("per_image=729")                                            # the same for every image
    family("like=lfm2-vl,most=4")                                      # a known family with other numbers
    family("path/to/checkpoint")                                       # the numbers in its files (``checkpoint``)

Other packages offer families by the entry points ``stakes.families``: a ``Family``, or such a description.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, cast

from stakes import plugins
from stakes.errors import UnknownFamily
from stakes.vision.geometry.checkpoint import described
from stakes.vision.geometry.factor import Factor
from stakes.vision.geometry.patches import BudgetPatches, EdgePatches, Fixed, Gemma4, NavitPatches, PaddedPatches
from stakes.vision.geometry.tiles import AnyRes, AspectTiles, CropTiles, DetailTiles, SplitTiles
from stakes.vision.geometry.views import CanvasTiles, FitTiles, MaskedTiles, PageTiles, Slices, ThumbnailTiles

GROUP = "stakes.families"


class Formula(Protocol):
    """Counts the visual tokens of an image."""

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of one image."""


@dataclass(frozen=True)
class Family:
    """A model family: its formula, and how a budget can be realised with it.

    ``engine_parameter`` names what the engine or the API takes to spend fewer tokens on an image. It is the only way
    where ``controllable_by_resizing`` is false. ``factor``, ``min_pixels`` and ``max_pixels`` are set for factor
    families alone: their own resizing is the identity on sizes that are multiples of the factor within those areas.
    ``version`` is the date on which the source was read. ``documented``: from a guide or other code, and not tested
    against the family's own processor.
    """

    name: str
    formula: Formula
    controllable_by_resizing: bool
    engine_parameter: str | None
    source: str
    version: str
    hosted: bool = False
    documented: bool = False

    @property
    def factor(self) -> int | None:
        """Side of the square of pixels that makes one token, for factor families."""
        return self.formula.factor if isinstance(self.formula, Factor) else None

    @property
    def min_pixels(self) -> int | None:
        """Smallest area that the processor does not resize, for factor families."""
        return self.formula.min_pixels if isinstance(self.formula, Factor) else None

    @property
    def max_pixels(self) -> int | None:
        """Largest area that the processor does not resize, for factor families."""
        return self.formula.max_pixels if isinstance(self.formula, Factor) else None

    @property
    def longest_side(self) -> int | None:
        """Longest side in pixels that the service accepts; None where it shrinks longer sides itself."""
        return self.formula.refuse if isinstance(self.formula, PaddedPatches) else None

    @property
    def refusal(self) -> str | None:
        """Why resizing reaches no budget, and what does instead; None where resizing works."""
        if self.controllable_by_resizing:
            return None
        way = f"use {self.engine_parameter}" if self.engine_parameter else "every image takes the same, at any setting"
        return f"{self.name}: not controllable by resizing; {way}"


@cache
def families() -> Mapping[str, Family]:
    """Every known family by name, local families first."""
    data: dict[str, Any] = json.loads(files(__package__).joinpath("families.json").read_text(encoding="utf-8"))
    known = {}
    for section in ("local", "hosted"):
        for name, entry in data[section]["families"].items():
            known[name] = Family(
                name,
                _formula(entry["formula"], entry["numbers"]),
                entry["resizing"],
                entry["engine_parameter"],
                entry["source"],
                version=entry.get("date", data[section]["date"]),
                hosted=section == "hosted",
                documented=section == "hosted" or entry.get("basis") == "documentation",
            )
    return MappingProxyType(known)


def _formula(kind: str, numbers: dict[str, Any]) -> Formula:
    if "canvases" in numbers:  # a formula is hashable
        numbers = {**numbers, "canvases": tuple(map(tuple, numbers["canvases"]))}
    formula: Formula = _FORMULAS[kind](**numbers)
    return formula


def family(name: str) -> Family:
    """The family of that name; ``UnknownFamily`` names the same name in another spelling, if there is one."""
    known = families()
    if isinstance(name, str) and name in known:
        return known[name]
    if isinstance(name, str) and "=" in name:
        return _described(name)
    if isinstance(name, str) and name and Path(name).is_dir():
        return replace(_described(described(name)), source=f"the files of {Path(name).name}")
    if isinstance(name, str) and name in plugins.installed(GROUP):
        return _plugin(name)
    near = next((one for one in known if _same_but_for_spelling(str(name), one)), None)
    hint = f"did you mean {near!r}?" if near else f"stakes families lists the known ones, or describe it as {_EXAMPLE}"
    raise UnknownFamily(f"unknown family {name!r}; {hint}")


def family_identity(name: str) -> dict[str, str]:
    """The package and the source of a family that another package offers; empty for every other."""
    if name in families() or "=" in name or name not in plugins.installed(GROUP):
        return {}
    return plugins.identity(name, GROUP)


def offered_families() -> dict[str, Family]:
    """The families of other packages; a name that is shipped, or offered twice, is an error."""
    for name in plugins.installed(GROUP):
        plugins.check_clash(name, GROUP, shipped=name in families())
    return {name: family(name) for name in plugins.installed(GROUP)}


def _plugin(name: str) -> Family:
    """The family that another package offers under this name, as a ``Family`` or as a description."""
    offered = plugins.load(name, GROUP)
    made = _described(offered) if isinstance(offered, str) and "=" in offered else offered
    if not isinstance(made, Family):
        raise UnknownFamily(f"the family {name} must be a Family or a description such as {_EXAMPLE}, not {offered!r}")
    return replace(made, name=name, documented=True)


_EXAMPLE = '"patch=14,merge=2,min_pixels=3136,max_pixels=12845056"'
# The keys of a description, the formula that they stand for, and whether resizing sets its tokens and what else does.
_DESCRIPTIONS: dict[frozenset[str], tuple[str, bool, str | None]] = {
    frozenset({"patch", "merge", "min_pixels", "max_pixels"}): ("Factor", True, "max_pixels"),
    frozenset({"tile", "tiles", "per_tile"}): ("AspectTiles", False, "max_dynamic_patch (transformers: max_patches)"),
    frozenset({"per_image"}): ("Fixed", False, None),
}


@lru_cache(maxsize=256)
def _described(text: str) -> Family:
    """The family of a description such as ``patch=14,merge=2,…``; its name is the description in one spelling."""
    given: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not (key and equals and value) or key in given:
            raise UnknownFamily(f"family {text!r}: {part!r} must be a key and its value, once each, as in {_EXAMPLE}")
        given[key] = value
    if "like" in given:
        return _alike(text, given)
    keys = next((keys for keys in _DESCRIPTIONS if set(given) == keys), None)
    if keys is None:
        kinds = "; or ".join(", ".join(sorted(keys)) for keys in _DESCRIPTIONS)
        raise UnknownFamily(
            f"family {text!r} has the keys {', '.join(given)}; give {kinds}; or like=NAME and its numbers"
        )
    numbers = {key: _number(text, key, given[key]) for key in sorted(keys)}
    kind, resizing, parameter = _DESCRIPTIONS[keys]
    name = ",".join(f"{key}={value}" for key, value in numbers.items())
    if kind == "Factor":
        numbers["factor"] = numbers.pop("patch") * numbers.pop("merge")
        if numbers["max_pixels"] < max(numbers["min_pixels"], numbers["factor"] ** 2):
            raise UnknownFamily(
                f"family {text!r}: max_pixels is below min_pixels or below one token's square of pixels"
            )
    if kind == "AspectTiles":
        numbers["most"] = numbers.pop("tiles")
    return Family(
        name, _formula(kind, numbers), resizing, parameter, "described by its numbers", "own", documented=True
    )


def _alike(text: str, given: dict[str, str]) -> Family:
    """A known family with other numbers."""
    known = family(given.pop("like"))
    own = {field.name: getattr(known.formula, field.name) for field in fields(cast(Any, known.formula))}
    settable = {key: value for key, value in own.items() if isinstance(value, int | float)}
    if not given or set(given) - set(settable):
        raise UnknownFamily(f"family {text!r}: {known.name} has the numbers {', '.join(settable)}; give some of them")
    numbers = {key: _number(text, key, given[key], type(settable[key])) for key in sorted(given)}
    name = ",".join([f"like={known.name}", *(f"{key}={value}" for key, value in numbers.items())])
    formula = cast(Formula, replace(cast(Any, known.formula), **numbers))
    return replace(known, name=name, formula=formula, source=f"{known.source}; with other numbers", documented=True)


def _number(text: str, key: str, value: str, kind: type = int) -> Any:
    try:
        number = kind(value)
    except ValueError:
        number = 0
    if not 0 < number < 2**40:
        raise UnknownFamily(f"family {text!r}: {key} must be a positive number, {kind.__name__}, not {value!r}")
    return number


def _same_but_for_spelling(typed: str, known: str) -> bool:
    """Whether only case, separators, "vl" or one letter dropped, added or swapped differ; numbers must be equal.

    Similar names are other architectures: qwen3.5-vl is not qwen2.5-vl, and gemma3 is not gemma3n.
    """
    words = (re.findall(r"[a-z]+|\d+(?:\.\d+)*", name.lower()) for name in (typed, known))
    ours, theirs = ([word for word in parts if word != "vl"] for parts in words)
    if "".join(ours) == "".join(theirs):
        return True
    if len(ours) != len(theirs):
        return False
    different = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    return len(different) == 1 and _one_slip(*sorted(different[0], key=len))


def _one_slip(short: str, long: str) -> bool:
    if len(short) < 4 or not (short + long).isalpha():
        return False
    if len(short) == len(long):
        swapped = (long[:i] + long[i + 1] + long[i] + long[i + 2 :] for i in range(len(long) - 1))
        return short in swapped
    return any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


_FORMULAS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        *(Factor, Fixed, AnyRes, AspectTiles, SplitTiles, DetailTiles, CropTiles),
        *(EdgePatches, NavitPatches, BudgetPatches, PaddedPatches, Gemma4),
        *(CanvasTiles, PageTiles, FitTiles, MaskedTiles, ThumbnailTiles, Slices),
    )
}
