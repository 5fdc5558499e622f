"""What is about to be asked? A sample with its tier settled, its document known, and its image within reach.

Images are not kept: each is read (or drawn, for synthetic pages) once to take its digest and size, and again when its
turn comes. An image that changed or went away in between is an error that names the sample.

    asked = ask(read_samples("questions.jsonl"), folder="", signal=KeywordRule())
    asked = ask_pages("forms", "calibration", per_tier=100)
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stakes.data.images import image_source
from stakes.data.sample import Sample
from stakes.errors import BadInput, UnreadableImage
from stakes.evaluation.intact import whole_size
from stakes.signals.base import Signal

if TYPE_CHECKING:
    from PIL.Image import Image

Load = Callable[[], "bytes | Image"]


@dataclass(frozen=True)
class Asked:
    """One sample, ready. ``size``: (width, height) upright. ``digest``: of the image file, or of a drawn page.

    ``document``: what is independent of the others, so that documents which share a page are one (``units``);
    ``named``: what the file calls it, where that is not the same.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    tier: str
    document: str
    digest: str
    size: tuple[int, int]
    load: Load = field(compare=False, repr=False)
    task: str | None = None
    named: str = ""


def ask(samples: Iterable[Sample], folder: str | Path, signal: Signal | None = None) -> list[Asked]:
    """Samples of a file in ``folder``, tiers read by ``signal``; without one, as labelled."""
    from stakes.evaluation.units import by_unit

    asked, seen = [], dict[str, tuple[str, tuple[int, int]]]()
    for sample in samples:
        tier = _tier(sample.id, sample.tier, sample.question, sample.task, signal)
        try:
            source = image_source(sample, Path(folder))
            if (known := seen.get(sample.image or "")) is None:
                data = _read(source)
                name = "the embedded image" if isinstance(source, bytes) else str(source)
                known = seen[sample.image or ""] = digest(data), whole_size(data, name)
        except (BadInput, UnreadableImage) as error:
            raise type(error)(f"sample {sample.id!r}: {error}") from None
        name, size = known
        load = partial(_unchanged, sample.id, name, source)
        document = sample.document or name
        asked.append(Asked(sample.id, sample.question, sample.answers, tier, document, name, size, load, sample.task))
    return by_unit(asked)


def ask_pages(
    family: str, split: str, per_tier: int, signal: Signal | None = None, *, start: int = 0, density: float = 1.0
) -> list[Asked]:
    """Fresh synthetic pages, ``per_tier`` questions of each of the page's own tiers, drawn again when their turn comes.

    A signal may read other tiers off the questions than the page's own.
    """
    from stakes.data.pages import draw, samples

    if per_tier < 1:
        raise BadInput(f"at least one question of each tier is needed, not {per_tier}")
    asked, seen = [], dict[str, str]()
    for page, question in samples(family, split, per_tier, start=start, density=density):
        name = f"{page.document}/{page.questions.index(question)}"
        tier = _tier(name, question.tier, question.text, None, signal)
        if page.document not in seen:
            seen[page.document] = digest(page.image.tobytes())
        seed = int(page.document.rsplit("/", 1)[1])

        def load(seed: int = seed) -> "Image":
            return draw(family, seed, split, density).image

        print_of = seen[page.document]
        asked.append(Asked(name, question.text, question.answers, tier, page.document, print_of, page.image.size, load))
    return asked


def digest(data: bytes) -> str:
    """A name for some bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _tier(name: str, labelled: str | None, question: str, task: str | None, signal: Signal | None) -> str:
    if signal is not None:
        return signal(question, task).tier
    if labelled is None:
        raise BadInput(f"sample {name!r} has no tier; label it, or read tiers by a signal such as keywords")
    return labelled


def _unchanged(sample: str, name: str, source: Path | bytes) -> bytes:
    try:
        data = _read(source)
    except UnreadableImage as error:
        raise UnreadableImage(f"sample {sample!r}: {error}") from None
    if digest(data) != name:
        raise UnreadableImage(f"sample {sample!r}: its image changed since the run began; put the old one back")
    return data


def _read(source: Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise UnreadableImage(f"no image can be read at {source} ({error.strerror}); check the path") from None
