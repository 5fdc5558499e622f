"""Which real pages is legibility measured on? DocVQA, ChartQA and SROIE, each scaled to a longer side of 1008 pixels.

A folder holds ``docvqa/``, ``chartqa/`` and ``sroie/``, each with ``questions.jsonl`` and the images that it names.
Pages that are not of that size are resampled when their turn comes (ChartQA's charts are enlarged, receipts shrunk), so
that all sets see the same budgets; those with fewer than 640 native tokens are left out by name, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stakes.data.jsonl import read_samples
from stakes.errors import BadInput
from stakes.evaluation.asked import Asked, Load, ask, digest
from stakes.vision.decode import Picture
from stakes.vision.geometry import count_tokens
from stakes.vision.resize import resample

if TYPE_CHECKING:
    from PIL.Image import Image

SETS = ("docvqa", "chartqa", "sroie")
SIDE = 1008
LEAST_TOKENS = 640
QUESTIONS = "questions.jsonl"


@dataclass(frozen=True)
class RealSet:
    """The questions of one data set; ``small`` names those whose page has too few tokens for every budget."""

    name: str
    asked: tuple[Asked, ...]
    small: tuple[str, ...]


def real_set(folder: Path, name: str, *, family: str = "qwen2.5-vl", side: int = SIDE) -> RealSet:
    """The questions of ``folder/name``, tiers as labelled, pages scaled."""
    path = folder / name / QUESTIONS
    if not path.is_file():
        raise BadInput(f"there is no {path}; give --data a folder with {', '.join(SETS)}, each with {QUESTIONS}")
    asked = [scaled(one, side) for one in ask(read_samples(path), path.parent)]
    small = tuple(one.id for one in asked if count_tokens(family, *one.size) < LEAST_TOKENS)
    return RealSet(name, tuple(one for one in asked if one.id not in small), small)


def scaled(one: Asked, side: int) -> Asked:
    """The sample on a page whose longer side has so many pixels."""
    width, height = one.size
    longer = max(width, height)
    size = max(1, round(width * side / longer)), max(1, round(height * side / longer))
    if size == one.size:
        return one
    name = digest(f"{one.digest} at {size[0]}x{size[1]}".encode())
    return replace(one, size=size, digest=name, load=partial(_load, one.load, size))


def by_task(sets: Sequence[RealSet], tiers: Callable[[str], str], each: int) -> list[Asked]:
    """The first ``each`` questions of every set, whose tier is now their task's."""
    return [replace(one, tier=tiers(found.name)) for found in sets for one in found.asked[:each]]


def _load(source: Load, size: tuple[int, int]) -> Image:
    return resample(Picture(source()), *size)
