"""How does a set of samples become a folder? ``samples.jsonl``, ``images/``, and what the set says of itself.

    export(scan("docvqa", sight(), per_tier=300, start=257), Path("docvqa"))      # then: stakes calibrate docvqa/…

An image that several questions share is written once. ``samples.jsonl`` appears last, whole or not at all: a folder
without it was not finished.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stakes.data import synthetic as pages
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.files import write_whole

if TYPE_CHECKING:
    from PIL.Image import Image


SAMPLES = "samples.jsonl"


@dataclass(frozen=True)
class Item:
    """A sample whose pixels are not made yet; ``stem`` names its image, and the same stem is the same image."""

    sample: Sample
    stem: str
    suffix: str  # ".png", or ".jpg" for what was stored as JPEG
    paint: "Callable[[], Image]"


def export(items: Iterable[Item], folder: Path, *, done: Callable[[], None] = lambda: None) -> int:
    """Write samples and images into a folder that has none yet; returns how many samples. ``done``: after each."""
    if (folder / SAMPLES).exists():
        raise BadInput(f"{folder / SAMPLES} is there already; choose another folder, or remove it first")
    lines, written = [], set[str]()
    try:
        for item in items:
            name = f"images/{item.stem}{item.suffix}"
            if name not in written:
                (folder / "images").mkdir(parents=True, exist_ok=True)  # not before there is something to write
                _save(item.paint(), folder / name)
                written.add(name)
            lines.append(_line(replace(item.sample, image=name)))
            done()
        write_whole(folder / SAMPLES, "".join(lines))
    except OSError as error:
        raise BadInput(f"{folder} cannot be written ({error.strerror}); free some room or choose another") from None
    return len(lines)


def page_items(family: str, split: str, per_tier: int, *, start: int = 0) -> Iterator[Item]:
    """Synthetic pages as items: ``swatches`` for the paper's cross-task diagnostic, or any other family."""
    asked: dict[str, int] = {}
    for page, question in pages.samples(family, split, per_tier, start=start):
        number = asked[page.document] = asked.get(page.document, -1) + 1
        sample = Sample(
            id=f"{page.document}/{number}",
            image=None,
            question=question.text,
            answers=question.answers,
            task=family,
            tier=question.tier,
            document=page.document,
        )
        yield Item(sample, page.document.replace("/", "_"), ".png", partial(_same, page.image))


def _same(image: "Image") -> "Image":
    return image


def _line(sample: Sample) -> str:
    record: dict[str, Any] = {key: value for key, value in asdict(sample).items() if value is not None}
    return json.dumps(record, ensure_ascii=False) + "\n"


def _save(image: "Image", path: Path) -> None:
    if path.suffix == ".jpg":
        image.save(path, quality=95, subsampling=0)  # full colour resolution: small coloured print stays legible
    else:
        image.save(path, compress_level=3)  # on DocVQA pages smaller than level 6, in two thirds of the time
