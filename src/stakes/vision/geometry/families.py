"""The known model families: the token formula of each, and how a budget can be realised with it.

The entries are data, in families.json. Local families carry the numbers of a published checkpoint. Hosted families
follow a provider's billing guide; their section has its own date, because these rules change without notice.

    family("internvl").refusal     # 'internvl: not controllable by resizing; use max_dynamic_patch …'
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Protocol

from stakes.errors import BadInput, UnknownFamily
from stakes.vision.geometry.patches import BudgetPatches, EdgePatches, Gemma4, PaddedPatches
from stakes.vision.geometry.tiles import AnyRes, AspectTiles, CropTiles, DetailTiles, SplitTiles

MAX_ASPECT = 200  # of an image that a Qwen-VL processor accepts


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
    ``version`` is the date on which the source was read.
    """

    name: str
    formula: Formula
    controllable_by_resizing: bool
    engine_parameter: str | None
    source: str
    version: str
    hosted: bool = False

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
        return f"{self.name}: not controllable by resizing; use {self.engine_parameter}"


@cache
def families() -> Mapping[str, Family]:
    """Every known family by name, local families first."""
    data: dict[str, Any] = json.loads(files(__package__).joinpath("families.json").read_text(encoding="utf-8"))
    known = {}
    for section in ("local", "hosted"):
        for name, entry in data[section]["families"].items():
            known[name] = Family(
                name,
                _FORMULAS[entry["formula"]](**entry["numbers"]),
                entry["resizing"],
                entry["engine_parameter"],
                entry["source"],
                version=entry.get("date", data[section]["date"]),
                hosted=section == "hosted",
            )
    return MappingProxyType(known)


def family(name: str) -> Family:
    """The family of that name; ``UnknownFamily`` names the same name in another spelling, if there is one."""
    known = families()
    if isinstance(name, str) and name in known:
        return known[name]
    near = next((one for one in known if _same_but_for_spelling(str(name), one)), None)
    hint = f"did you mean {near!r}?" if near else "stakes families lists the known ones"
    raise UnknownFamily(f"unknown family {name!r}; {hint}")


def _same_but_for_spelling(typed: str, known: str) -> bool:
    """Whether only case, separators or one letter dropped, added or swapped differ; numbers must be equal.

    Similar names are other architectures: qwen3.5-vl is not qwen2.5-vl, and gemma3 is not gemma3n.
    """
    ours, theirs = (re.findall(r"[a-z]+|\d+(?:\.\d+)*", name.lower()) for name in (typed, known))
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


@dataclass(frozen=True)
class Factor:
    """Qwen-VL: one token for each ``factor`` x ``factor`` square of pixels after ``smart_resize``.

    tokens = hw / factor². The markers around the image do not count.
    """

    factor: int
    min_pixels: int
    max_pixels: int

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of tokens."""
        w, h = smart_resize(width, height, self.factor, self.min_pixels, self.max_pixels)
        return w // self.factor, h // self.factor

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of one image."""
        columns, rows = self.grid(width, height)
        return columns * rows


@dataclass(frozen=True)
class Fixed:
    """The same number of tokens for every image (Gemini 3 at one media resolution, Gemma 3 without pan-and-scan)."""

    per_image: int

    @property
    def most_tokens(self) -> int:
        """The most that any image takes."""
        return self.per_image

    def tokens(self, width: int, height: int) -> int:  # noqa: ARG002
        """Billed tokens of one image."""
        return self.per_image


def smart_resize(
    width: int, height: int, factor: int = 28, min_pixels: int = 56 * 56, max_pixels: int = 28 * 28 * 16384
) -> tuple[int, int]:
    """The (width, height) to which a Qwen-VL processor resizes an image; the identity on its own results.

        h = round(H / f) f,  w = round(W / f) f
        where hw > max_pixels:  b = sqrt(HW / max_pixels),  h = max(f, floor(H / b / f) f),  w likewise
        where hw < min_pixels:  b = sqrt(min_pixels / HW),  h = ceil(H b / f) f,             w likewise

        smart_resize(1654, 2339)              # (1652, 2352): 59 x 84 squares of 28 pixels, 4956 tokens

    Follows ``smart_resize`` of transformers' qwen2_vl/image_processing_qwen2_vl.py. The floor leaves part of a budget
    unspent. The two bounds are not always kept: a thin image may end above max_pixels, because no side goes below one
    factor, and an image whose area lies under both bounds is enlarged to min_pixels even where that exceeds max_pixels.
    """
    aspect = max(width, height) / min(width, height)
    if aspect > MAX_ASPECT:
        raise BadInput(
            f"an image of {width}x{height} has an aspect ratio of {aspect:.0f}, and Qwen-VL's processor refuses "
            f"more than {MAX_ASPECT}; crop it"
        )
    # The operations keep the order of the original: another order rounds differently on some sizes.
    columns, rows = round(width / factor), round(height / factor)
    if columns * rows * factor**2 > max_pixels:
        shrink = math.sqrt((height * width) / max_pixels)
        columns = max(1, math.floor(width / shrink / factor))
        rows = max(1, math.floor(height / shrink / factor))
    elif columns * rows * factor**2 < min_pixels:
        enlarge = math.sqrt(min_pixels / (height * width))
        columns = math.ceil(width * enlarge / factor)
        rows = math.ceil(height * enlarge / factor)
    return columns * factor, rows * factor


_FORMULAS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        *(Factor, Fixed, AnyRes, AspectTiles, SplitTiles, DetailTiles, CropTiles),
        *(EdgePatches, BudgetPatches, PaddedPatches, Gemma4),
    )
}
