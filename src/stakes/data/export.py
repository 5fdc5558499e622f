"""Export of samples into a folder: ``samples.jsonl`` and ``images/``.

    export(scan("docvqa", per_tier=300, start=257), Path("docvqa"))      # then: stakes calibrate docvqa/samples.jsonl

An image that several questions share is written once. ``samples.jsonl`` is written last, whole or not at all: a folder
without it is not complete.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from PIL import Image

from stakes.data import synthetic
from stakes.data.sample import KEYS, Sample
from stakes.errors import BadInput
from stakes.files import write_whole
from stakes.vision.image.decode import open_image

SAMPLES = "samples.jsonl"


def export(samples: Iterable[Sample], folder: Path, *, done: Callable[[], None] = lambda: None) -> int:
    """Write samples and images into a folder that has none yet, and count them; ``done`` is called after each.

    ``sample.image`` is the path of its image in the folder, and ``sample.load()`` the image.
    """
    if (folder / SAMPLES).exists():
        raise BadInput(f"{folder / SAMPLES} is there already; choose another folder, or remove it first")
    lines, written = [], set[str]()
    try:
        for sample in samples:
            if sample.image is not None and sample.image not in written:
                path = folder / sample.image
                path.parent.mkdir(parents=True, exist_ok=True)  # not before there is something to write
                _save(open_image(sample.load()), path)
                written.add(sample.image)
            lines.append(_line(sample))
            done()
        write_whole(folder / SAMPLES, "".join(lines))
    except OSError as error:
        raise BadInput(f"{folder} cannot be written ({error.strerror}); free some space or choose another") from None
    return len(lines)


def write_samples(samples: Iterable[Sample], path: Path) -> None:
    """Write a samples file whole or not at all; images stay where they are."""
    try:
        write_whole(path, "".join(map(_line, samples)))
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}); choose another place") from None


def _line(sample: Sample) -> str:
    record = {key: value for key in KEYS if (value := getattr(sample, key)) not in (None, "", ())}
    if sample.history:
        record["history"] = [{"role": turn.role, "content": turn.text} for turn in sample.history]
    return json.dumps(record, ensure_ascii=False) + "\n"


def page_samples(family: str, split: str, per_tier: int, *, per_page: int = 4, start: int = 0) -> Iterator[Sample]:
    """Synthetic pages as samples: ``swatches`` for the paper's cross-task diagnostic, or any other family."""
    count: dict[str, int] = {}  # questions so far of each page
    for page, question in synthetic.samples(family, split, per_tier, per_page=per_page, start=start):
        number = count[page.document] = count.get(page.document, -1) + 1
        yield Sample(
            id=f"{page.document}/{number}",
            question=question.text,
            answers=question.answers,
            image=f"images/{page.document.replace('/', '_')}.png",
            task=family,
            tier=question.tier,
            document=page.document,
            box=question.box,
            load=page.image.copy,
        )


def _save(image: Image.Image, path: Path) -> None:
    if path.suffix == ".jpg":
        image.save(path, quality=95, subsampling=0)  # full color resolution: small colored print stays legible
    else:
        image.save(path, compress_level=3)  # on DocVQA pages smaller than level 6, in two thirds of the time
