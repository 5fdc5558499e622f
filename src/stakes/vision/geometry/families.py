"""Which model families are known, which formula each follows, and how a budget can be realised with it.

Local families carry the numbers of a published checkpoint, named in ``source``; hosted ones are read from
hosted.json, which is dated, because their rules change without notice.

    family("internvl").refusal     # 'internvl: not controllable by resizing; use max_dynamic_patch'
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Protocol

from stakes.errors import BadInput, UnknownFamily
from stakes.vision.geometry.anyres import AnyRes
from stakes.vision.geometry.patches import BudgetPatches, EdgePatches, Gemma3, Gemma4, PaddedPatches
from stakes.vision.geometry.tiles import AspectTiles, CropTiles, DetailTiles, SplitTiles

# Qwen-VL: both sides become multiples of one factor, and every factor x factor square is one token.
#
#     h = round(H / f) f,  w = round(W / f) f
#     where hw > max_pixels:  b = sqrt(HW / max_pixels),  h = max(f, floor(H / b / f) f),  w likewise
#     where hw < min_pixels:  b = sqrt(min_pixels / HW),  h = ceil(H b / f) f,             w likewise
#     tokens = hw / f²
#
# Follows ``smart_resize`` of transformers' qwen2_vl/image_processing_qwen2_vl.py. Its floor leaves part of a budget
# unspent and its two bounds are not both kept: a thin image may end above max_pixels (no side goes below one factor),
# and one whose area lies under both bounds is enlarged to min_pixels even where that is above max_pixels.
#
#     smart_resize(1654, 2339)              # (1652, 2352): 59 x 84 squares of 28 pixels, 4956 tokens


MAX_ASPECT = 200


def smart_resize(
    width: int, height: int, factor: int = 28, min_pixels: int = 56 * 56, max_pixels: int = 28 * 28 * 16384
) -> tuple[int, int]:
    """The (width, height) that a Qwen-VL processor resizes an image to; the identity on its own results."""
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


@dataclass(frozen=True)
class Factor:
    """One token for each square of ``factor`` pixels after ``smart_resize``; markers around the image do not count."""

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


class Formula(Protocol):
    """How one kind of family counts."""

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of one image."""


@dataclass(frozen=True)
class Fixed:
    """The same number of tokens for every image (Gemini 3 at one media resolution)."""

    per_image: int

    def tokens(self, width: int, height: int) -> int:  # noqa: ARG002
        """Billed tokens of one image."""
        return self.per_image


@dataclass(frozen=True)
class Family:
    """A model family: its formula, and how a budget can be realised with it.

    ``engine_parameter`` names what the engine or the API takes to spend fewer tokens on an image; it is the only way
    where ``controllable_by_resizing`` is false. ``factor``, ``min_pixels`` and ``max_pixels`` are set for factor
    families alone: on sizes that are multiples of the factor within those areas their own resizing is the identity.
    ``version`` is the date that the source was read.
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
        """Smallest area that the processor leaves as it is, for factor families."""
        return self.formula.min_pixels if isinstance(self.formula, Factor) else None

    @property
    def max_pixels(self) -> int | None:
        """Largest area that the processor leaves as it is, for factor families."""
        return self.formula.max_pixels if isinstance(self.formula, Factor) else None

    @property
    def longest_side(self) -> int | None:
        """Longest side in pixels that the service accepts; None where it shrinks what is longer by itself."""
        return self.formula.refuse if isinstance(self.formula, PaddedPatches) else None

    @property
    def refusal(self) -> str | None:
        """Why no resizing reaches a budget, and what does instead; None where resizing works."""
        if self.controllable_by_resizing:
            return None
        return f"{self.name}: not controllable by resizing; use {self.engine_parameter}"


_QWEN = "transformers 5.22.2 qwen2_vl/image_processing_qwen2_vl.py; "
_PIXTRAL = "transformers 5.22.2 pixtral/image_processing_pixtral.py; "
_IDEFICS = "transformers 5.22.2 idefics3/image_processing_idefics3.py; "
_READ = "2026-11-15"

_LOCAL = (
    Family("qwen2-vl", Factor(28, 3136, 12845056), True, "max_pixels", _QWEN + "Qwen2-VL-7B-Instruct", _READ),
    Family("qwen2.5-vl", Factor(28, 3136, 12845056), True, "max_pixels", _QWEN + "Qwen2.5-VL-7B-Instruct", _READ),
    Family("qwen3-vl", Factor(32, 65536, 16777216), True, "max_pixels", _QWEN + "Qwen3-VL-8B-Instruct", _READ),
    Family(
        "llava-onevision",
        AnyRes(),
        True,
        None,
        "transformers 5.22.2 llava_onevision/processing_llava_onevision.py; llava-onevision-qwen2-7b-ov-hf",
        _READ,
    ),
    # the second reader that ships inside: LLaVA-OneVision's rule with tiles of 252 pixels
    Family("reader-llava", AnyRes(252, 12, 6, 18), True, None, "training/reader_llava.py of this project", _READ),
    Family(
        "internvl",
        AspectTiles(),
        False,
        "max_dynamic_patch (transformers: max_patches)",
        "transformers 5.22.2 got_ocr2/image_processing_got_ocr2.py; InternVL3-8B-hf",
        _READ,
    ),
    Family("idefics3", SplitTiles(1456, 364, 169), False, "size.longest_edge", _IDEFICS + "Idefics3-8B-Llama3", _READ),
    Family(
        "smolvlm",
        SplitTiles(2048, 512, 64),
        False,
        "size.longest_edge (vLLM: max_image_size)",
        _IDEFICS + "SmolVLM-500M-Instruct",
        _READ,
    ),
    Family(
        "gemma3",
        Gemma3(),
        False,
        "do_pan_and_scan (it only adds tokens to 256)",
        "transformers 5.22.2 gemma3/image_processing_gemma3.py; gemma-3-4b-it",
        _READ,
    ),
    Family(
        "gemma4",
        Gemma4(),
        False,
        "max_soft_tokens (70, 140, 280, 560 or 1120)",
        "transformers 5.22.2 gemma4/image_processing_gemma4.py; class defaults",
        _READ,
    ),
    Family("pixtral", EdgePatches(1024, 16), True, "size.longest_edge", _PIXTRAL + "Pixtral-12B", _READ),
    Family(
        "mistral3", EdgePatches(1540, 28), True, "size.longest_edge", _PIXTRAL + "Mistral-Small-3.1-24B-2503", _READ
    ),
)

_HOSTED = {
    "detail-tiles": DetailTiles,
    "crop-tiles": CropTiles,
    "budget-patches": BudgetPatches,
    "padded-patches": PaddedPatches,
    "fixed": Fixed,
}


@cache
def families() -> Mapping[str, Family]:
    """Every known family by name, local ones first."""
    data: dict[str, Any] = json.loads(files(__package__).joinpath("hosted.json").read_text(encoding="utf-8"))
    known = {one.name: one for one in _LOCAL}
    for name, entry in data["families"].items():
        known[name] = Family(
            name,
            _HOSTED[entry["formula"]](**entry["numbers"]),
            entry["formula"] != "fixed",
            entry["engine_parameter"],
            entry["source"],
            data["date"],
            hosted=True,
        )
    return MappingProxyType(known)


def family(name: str) -> Family:
    """The family of that name; ``UnknownFamily`` names the nearest one and all others."""
    known = families()
    if isinstance(name, str) and name in known:
        return known[name]
    near = get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UnknownFamily(f"unknown family {name!r}; {hint}known families: {', '.join(known)}")
