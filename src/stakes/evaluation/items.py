"""What is about to be asked? A sample with its tier settled, its document known, and its image within reach.

Images are not kept: each is read (or drawn, for synthetic pages) once to take its digest and size, and again when its
turn comes. An image that changed or went away in between is an error that names the sample.

    asked = ask(read_samples("questions.jsonl"), folder="", signal=KeywordRule())
    asked = ask_pages("forms", "calibration", per_tier=100)
"""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stakes.data.images import image_source
from stakes.data.sample import Sample
from stakes.errors import BadInput, UnreadableImage
from stakes.signals.base import Signal
from stakes.vision.image.decode import open_image, probe

if TYPE_CHECKING:
    from PIL.Image import Image


# Will this image open when its turn comes? Its size, once it is known to be whole, for little more than its header.
#
# A file cut short has a good header, and would stop a run after an hour of paid answers. A PNG carries checksums and
# its
# own end, a JPEG ends in a marker: where those are there, nothing is decoded. All else is decoded once, which settles
# it.
#
# >>> import io; from PIL import Image; file = io.BytesIO(); Image.new("L", (40, 30)).save(file, "PNG")
# >>> whole_size(file.getvalue(), "page.png")
# (40, 30)


JPEG_END = b"\xff\xd9"
TAIL = 64  # bytes in which a JPEG's end must stand; cameras put a few of their own after it


def whole_size(data: bytes, name: str) -> tuple[int, int]:
    """Upright (width, height) of an image that can be decoded; ``name`` is what a person finds it by."""
    try:
        kind, width, height = probe(data)
        if not (kind == "JPEG" and JPEG_END in data[-TAIL:]) and not (kind == "PNG" and _sound_png(data)):
            open_image(data)
    except UnreadableImage as error:
        raise UnreadableImage(f"{name}: {error} (stakes data check names every such image)") from None
    return width, height


def _sound_png(data: bytes) -> bool:
    """Whether every chunk up to the end is there with its checksum; 8 bytes of signature come first."""
    at = 8
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        body, check = memoryview(data)[at + 4 : at + 8 + size], data[at + 8 + size : at + 12 + size]
        if zlib.crc32(body).to_bytes(4, "big") != check:
            return False
        if data[at + 4 : at + 8] == b"IEND":
            return True
        at += 12 + size
    return False


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
    from stakes.data.synthetic import draw, samples

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


# What is independent of what? Documents, and documents that share a page are one.
#
# A file may name its documents more finely than its pages, such as one a question. Answers about one page depend on
# each
# other whatever their documents are called, and taken for independent they make every interval too narrow and a
# certificate false. So documents with an image in common, by its digest, count as one unit, under the name of the
# first.
#
#     >>> units(["a/1", "a/2", "b", "a/2"], ["page 1", "page 1", "page 2", "page 3"])
#     ['a/1', 'a/1', 'b', 'a/1']


SHOWN = 3


def units(documents: Sequence[str], digests: Sequence[str]) -> list[str]:
    """The unit of each sample: its document, or the first one that is joined to it by a chain of shared images."""
    above: dict[str, str] = {}

    def top(name: str) -> str:
        while above.setdefault(name, name) != name:
            above[name] = above[above[name]]
            name = above[name]
        return name

    rank = {name: i for i, name in enumerate(dict.fromkeys(documents))}
    first_on: dict[str, str] = {}
    for document, digest in zip(documents, digests, strict=True):
        one, other = sorted((top(document), top(first_on.setdefault(digest, document))), key=rank.__getitem__)
        above[other] = one
    return [top(document) for document in documents]


def by_unit(asked: Iterable[Asked]) -> list[Asked]:
    """The samples with their units as documents; ``named`` keeps what the file calls them."""
    asked = list(asked)
    found = units([one.document for one in asked], [one.digest for one in asked])
    return [
        one if unit == one.document else replace(one, document=unit, named=one.document)
        for one, unit in zip(asked, found, strict=True)
    ]


def told_joined(asked: Iterable[Asked]) -> str:
    """Which documents were joined; empty where none was."""
    joined: dict[str, dict[str, None]] = {}
    for one in asked:
        if one.named:
            joined.setdefault(one.document, {})[one.named] = None
    if not joined:
        return ""
    count = len(joined) + sum(map(len, joined.values()))
    shown = [f"{first} with {_some(list(others))}" for first, others in list(joined.items())[:SHOWN]]
    more = f" and {len(joined) - SHOWN} more" if len(joined) > SHOWN else ""
    size = "one unit" if len(joined) == 1 else f"{len(joined)} units"
    return f"{count} documents share pages with others and count as {size}: {'; '.join(shown)}{more}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
