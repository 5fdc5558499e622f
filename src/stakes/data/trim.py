"""Cut the margins off the images of samples, as a gateway does with a policy that was calibrated so.

    samples = trim_samples(samples, lambda width, height: count_tokens(family, width, height) >= 576)

Sizes, digests and answer boxes are then of what is left. Margins are found by ``vision.image.trim``. They stay where
what is left is not enough for the largest budget or too thin for the smallest, and where the prompt asks for
coordinates.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from stakes.data.sample import Sample
from stakes.errors import InfeasibleBudget
from stakes.formats import counted
from stakes.signals.prompt import as_prompt
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fitted_size
from stakes.vision.image.trim import Bounds, margins

if TYPE_CHECKING:
    from PIL.Image import Image

Enough = Callable[[int, int], bool]
"""Whether an image of this width and height takes every budget."""


@dataclass(frozen=True)
class MarginsCut:
    """How much of a run's images is margin: on how many of them, and the mean share of an image's area."""

    trimmed: int
    images: int
    area: float

    @classmethod
    def between(cls, whole: Iterable[Sample], trimmed: Iterable[Sample]) -> "MarginsCut":
        """What lies between the same samples before and after."""
        pairs = {one.digest: (one.size, left.size) for one, left in zip(whole, trimmed, strict=True)}
        shares = [1 - left[0] * left[1] / size[0] / size[1] for size, left in pairs.values()]
        return cls(sum(share > 0 for share in shares), len(shares), fmean(shares))

    def __str__(self) -> str:
        return (
            f"Margins are cut off {self.trimmed} of {counted(self.images, 'image')} ({self.area:.1%} of all area), and "
            "will be where the policy is served; --no-trim keeps them"
        )


def has_size(width: int, height: int, budget: int, family: str) -> bool:
    """Whether an image can be resized to so few tokens; a thin one cannot in some families."""
    try:
        fitted_size(width, height, budget, family)
    except InfeasibleBudget:
        return False
    return True


def trim_samples(samples: Iterable[Sample], enough: Enough) -> list[Sample]:
    """The samples with the margins of their images cut off; images of one digest are read once."""
    boxes: dict[str, Bounds] = {}
    trimmed = []
    for sample in samples:
        if sample.digest not in boxes:
            boxes[sample.digest] = margins(open_image(sample.load()))
        trimmed.append(_trimmed(sample, boxes[sample.digest], enough))
    return trimmed


def trim_sample(sample: Sample, enough: Enough) -> Sample:
    """One sample, prepared or not."""
    image = open_image(sample.load())
    return _trimmed(replace(sample, size=image.size), margins(image), enough)


def _trimmed(sample: Sample, box: Bounds, enough: Enough) -> Sample:
    """The part of a sample in a box; what was cut off is part of the digest."""
    left, top, size = box[0], box[1], (box[2] - box[0], box[3] - box[1])
    if size == sample.size or not enough(*size) or as_prompt(sample.prompt).asks_for_coordinates:
        return sample
    name = hashlib.blake2b(f"{sample.digest} {box}".encode(), digest_size=16).hexdigest()
    place = None if (at := sample.box) is None else (at[0] - left, at[1] - top, at[2] - left, at[3] - top)
    return replace(sample, size=size, digest=name, load=partial(_load_part, sample.load, box), box=place)


def _load_part(load: "Callable[[], bytes | Image]", box: Bounds) -> "Image":
    return open_image(load()).crop(box)
