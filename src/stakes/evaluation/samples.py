"""Prepare labeled samples for a run: settle each tier, join documents that share a page, and check every image.

Images are not kept in memory. Each is read (or drawn, for synthetic pages) once for its digest and size, and again when
its sample is answered. An image that changed or went away in between is an error that names the sample.

    samples = prepare_samples(read_samples("questions.jsonl"), folder="", signal=KeywordRule())
    samples = draw_samples("forms", "calibration", per_tier=100)
    samples, excluded = answerable(model, samples, log)
    excluded.by_tier                              # {'high': 31, 'low': 40}
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from stakes.data.images import image_source
from stakes.data.sample import Sample
from stakes.data.trim import has_size, trim_samples
from stakes.errors import BadInput, UnreadableImage
from stakes.evaluation.fingerprint import save_json, sidecar
from stakes.evaluation.progress import progress_bar
from stakes.formats import counted
from stakes.models.base import Mechanism
from stakes.models.identity import family_of, native_tokens
from stakes.signals.base import Signal
from stakes.signals.prompt import Prompt
from stakes.vision.image.decode import open_image, probe

if TYPE_CHECKING:
    from PIL.Image import Image

Load = Callable[[], "bytes | Image"]

JPEG_END = b"\xff\xd9"
TAIL = 64  # bytes in which a JPEG's end marker must stand; cameras append a few bytes after it
SHOWN = 3  # names that a message lists before "and n more"


def prepare_samples(samples: Iterable[Sample], folder: str | Path, signal: Signal | None = None) -> list[Sample]:
    """Samples whose image paths are relative to ``folder``; tiers are read by ``signal``, without one as labeled."""
    prepared, seen = [], dict[str, tuple[str, tuple[int, int]]]()
    for sample in samples:
        tier = _tier(sample.id, sample.tier, sample.prompt, sample.task, signal)
        try:
            source = image_source(sample, Path(folder))
            if (known := seen.get(sample.image or "")) is None:
                data = _read(source)
                name = "the embedded image" if isinstance(source, bytes) else str(source)
                known = seen[sample.image or ""] = digest(data), intact_size(data, name)
        except (BadInput, UnreadableImage) as error:
            raise type(error)(f"sample {sample.id!r}: {error}") from None
        image, size = known
        load = partial(_read_unchanged, sample.id, image, source)
        document = sample.document or image
        labeled = replace(sample, tier=tier, label=sample.label or sample.tier)
        prepared.append(replace(labeled, document=document, digest=image, size=size, load=load))
    return join_documents(prepared)


def draw_samples(
    family: str, split: str, per_tier: int, signal: Signal | None = None, *, per_page: int = 4, start: int = 0
) -> list[Sample]:
    """Fresh synthetic pages with ``per_tier`` questions of each of the page's own tiers; pages are drawn again on load.

    A signal may read other tiers. ``per_page``: questions of a tier on one page. ``start``: the first seed.
    """
    from stakes.data.synthetic import draw, samples

    if per_tier < 1:
        raise BadInput(f"at least one question of each tier is needed, not {per_tier}")
    drawn, digests = [], dict[str, str]()
    for page, question in samples(family, split, per_tier, per_page=per_page, start=start):
        name = f"{page.document}/{page.questions.index(question)}"
        if page.document not in digests:
            digests[page.document] = digest(page.image.tobytes())
        seed = int(page.document.rsplit("/", 1)[1])

        def load(seed: int = seed) -> "Image":
            return draw(family, seed, split).image

        sample = Sample(
            id=name,
            question=question.text,
            answers=question.answers,
            tier=_tier(name, question.tier, question.text, None, signal),
            label=question.tier,
            document=page.document,
            size=page.image.size,
            digest=digests[page.document],
            load=load,
            box=question.box,
        )
        drawn.append(sample)
    return drawn


def _tier(name: str, label: str, prompt: str | Prompt, task: str | None, signal: Signal | None) -> str:
    if signal is not None:
        return signal(prompt, task).tier
    if not label:
        raise BadInput(f"sample {name!r} has no tier; label it, or read tiers by a signal such as keywords")
    return label


def digest(data: bytes) -> str:
    """The blake2b digest of an image, 32 hex digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _read_unchanged(sample: str, expected: str, source: Path | bytes) -> bytes:
    try:
        data = _read(source)
    except UnreadableImage as error:
        raise UnreadableImage(f"sample {sample!r}: {error}") from None
    if digest(data) != expected:
        raise UnreadableImage(f"sample {sample!r}: its image changed since the run began; put the old one back")
    return data


def _read(source: Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise UnreadableImage(f"no image can be read at {source} ({error.strerror}); check the path") from None


def intact_size(data: bytes, name: str) -> tuple[int, int]:
    """Upright (width, height) of an image that is known to decode; ``name`` is how an error refers to it.

    A truncated file has a good header and would stop a run after an hour of paid answers. A PNG carries checksums and
    an end chunk, a JPEG ends in a marker: where those are present, nothing is decoded. Anything else is decoded once.

    >>> import io; from PIL import Image; file = io.BytesIO(); Image.new("L", (40, 30)).save(file, "PNG")
    >>> intact_size(file.getvalue(), "page.png")
    (40, 30)
    """
    try:
        kind, width, height = probe(data)
        if not (kind == "JPEG" and JPEG_END in data[-TAIL:]) and not (kind == "PNG" and _is_intact_png(data)):
            open_image(data)
    except UnreadableImage as error:
        raise UnreadableImage(f"{name}: {error} (stakes data check names every such image)") from None
    return width, height


def _is_intact_png(data: bytes) -> bool:
    """Whether every chunk up to the end is present with its checksum."""
    from PIL import Image

    try:
        Image.open(BytesIO(data)).verify()
    except (OSError, SyntaxError, ValueError):  # what Pillow raises for a broken PNG
        return False
    return True


def document_units(documents: Sequence[str], digests: Sequence[str], groups: Sequence[str] | None = None) -> list[str]:
    """The independent unit of each sample: its group or document, or the first one joined to it by shared images.

    A file may name its documents more finely than its pages, such as one per question. Answers about one page depend on
    each other whatever their documents are called. Taken for independent, they make every interval too narrow and a
    certificate false. So documents with an image in common, by its digest, are one unit, under the name of the first.
    Pages of one supplier or template depend on each other too: where a file names ``groups``, those are the units.

    >>> document_units(["a/1", "a/2", "b", "a/2"], ["page 1", "page 1", "page 2", "page 3"])
    ['a/1', 'a/1', 'b', 'a/1']
    >>> document_units(["1", "2", "3"], ["page 1", "page 2", "page 3"], ["acme", "acme", ""])
    ['acme', 'acme', '3']
    """
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = name = parent[parent[name]]
        return name

    names = [group or document for group, document in zip(groups or [""] * len(documents), documents, strict=True)]
    rank = {name: i for i, name in enumerate(dict.fromkeys(names))}
    first_with: dict[tuple[str, str], str] = {}
    for name, document, image in zip(names, documents, digests, strict=True):
        for shared in (("document", document), ("image", image)):
            first, second = sorted((root(name), root(first_with.setdefault(shared, name))), key=rank.__getitem__)
            parent[second] = first
    return [root(name) for name in names]


def join_documents(samples: Sequence[Sample]) -> list[Sample]:
    """The samples with their units as documents; ``named`` keeps the file's name where that differs."""
    columns = zip(*((sample.document, sample.digest, sample.group) for sample in samples), strict=True)
    joined = document_units(*columns) if samples else []
    return [
        sample if unit == sample.document else replace(sample, document=unit, named=sample.document)
        for sample, unit in zip(samples, joined, strict=True)
    ]


def format_joined(samples: Iterable[Sample]) -> str:
    """Which documents were joined, or that groups are the units, as a sentence; empty where neither is so."""
    samples = list(samples)
    joined: dict[str, dict[str, None]] = {}
    for sample in samples:
        if (name := sample.group or sample.named) and name != sample.document:
            joined.setdefault(sample.document, {})[name] = None
    units = {sample.document for sample in samples}
    if not joined and any(sample.group for sample in samples):
        groups = units & {sample.group for sample in samples}
        alone = f", and {counted(len(units) - len(groups), 'document')} without one" if len(units) > len(groups) else ""
        documents = len({sample.named or sample.document for sample in samples})
        return (
            f"the independent units are {counted(len(groups), 'group')}{alone}, as the file names them, of "
            f"{counted(documents, 'document')}"
        )
    if not joined:
        return ""
    count = len(joined) + sum(map(len, joined.values()))
    pairs = [f"{first} with {_first_few(list(others), ', ')}" for first, others in joined.items()]
    size = "one unit" if len(joined) == 1 else f"{len(joined)} units"
    return f"{count} documents share pages with others and count as {size}: {_first_few(pairs, '; ')}"


def _first_few(names: list[str], separator: str) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return separator.join(names[:SHOWN]) + more


@dataclass(frozen=True)
class Excluded:
    """Samples that a model cannot be asked, such as one whose answer legibility cannot locate on the page.

    They are neither answered nor counted as right or wrong. ``LOG.apart.json`` beside the log lists them.
    """

    why: Mapping[str, str]
    """The reason, by sample id."""
    by_tier: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.why)

    def record(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)

    def __str__(self) -> str:
        tiers = ", ".join(f"{count} {tier}" for tier, count in self.by_tier.items())
        reasons = "; ".join(Counter(self.why.values()))
        return f"{counted(len(self.why), 'sample')} excluded and not counted ({tiers}): {reasons}"


def answerable(
    model: object, samples: Sequence[Sample], log: str | Path | None = None
) -> tuple[list[Sample], Excluded]:
    """The samples that the model can be asked, in their order, and those that it cannot.

    A model with ``locate(samples, done) -> {sample id: why not}`` is shown the samples, answers included, before the
    run. Nearly every model has no such method and is asked all of them.
    """
    locate = getattr(model, "locate", None)
    if not callable(locate):
        return list(samples), Excluded({}, {})
    with progress_bar("reading pages", total=len({sample.digest for sample in samples})) as advance:
        why = dict(locate(samples, lambda _done, _of: advance(1)))
    rest = [sample for sample in samples if sample.id not in why]
    tiers = Counter(sample.tier for sample in samples if sample.id in why)
    excluded = Excluded(why, dict(sorted(tiers.items())))
    if not rest:
        reason = next(iter(why.values()), "there are none")
        raise BadInput(f"none of the {len(samples)} samples can be asked: {reason}")
    if log is not None:
        save_json(sidecar(Path(log), "apart"), {"asked": len(rest), **excluded.record()})
    return rest, excluded


def trimmed(samples: Iterable[Sample], model: object, mechanism: Mechanism, budgets: Collection[int]) -> list[Sample]:
    """The samples without their margins, where what is left takes all of the budgets."""

    def enough(width: int, height: int) -> bool:
        by_size = mechanism == "resolution"
        return native_tokens(model, width, height, mechanism) >= max(budgets) and (
            not by_size or has_size(width, height, min(budgets), family_of(model))
        )

    return trim_samples(samples, enough)


def basis_of(model: object) -> str:
    """What a model's outcomes are: ``answers``, or ``legibility`` where no VLM was asked."""
    return str(getattr(model, "basis", "answers"))
