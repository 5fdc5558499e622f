"""What does ``vision`` lend to ``data``, which stands above it? Sizes, resized pixels and token counts.

scan = hub.scan("docvqa", sight("qwen2.5-vl"), per_tier=300, start=257)
check("questions.jsonl", native_tokens("qwen2.5-vl"), pages=page_count)
"""

from collections.abc import Callable
from pathlib import Path

from PIL import Image

from stakes.data.images import Sight
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry import family as known
from stakes.vision.image.decode import Picture, open_image, probe
from stakes.vision.image.resize import resample


def sight(family: str = "qwen2.5-vl") -> Sight:
    """Everything that preparing a dataset needs to see of an image, in this family's tokens."""
    formula = known(family).formula  # an unknown family is named now, not at the first image
    return Sight(family=family, size=_size, resized=_resized, native=formula.tokens)


def native_tokens(family: str = "qwen2.5-vl", *, decode: bool = True) -> Callable[[Path | bytes], int]:
    """A function from an image to its native tokens; one that cannot be read is ``UnreadableImage``.

    With ``decode`` every pixel is read, which finds truncated files; without, the header alone.
    """
    known(family)

    def count(source: Path | bytes) -> int:
        if decode:
            return count_tokens(family, *open_image(source).size)
        _, width, height = probe(source)
        return count_tokens(family, width, height)

    return count


def page_count(source: Path | bytes) -> int:
    """How many pages an image file holds, of which the first is read: 1 for everything but a TIFF of several."""
    return Picture(source, header_only=True).pages()


def _size(data: bytes) -> tuple[int, int]:
    _, width, height = probe(data)
    return width, height


def _resized(data: bytes, width: int, height: int) -> Image.Image:
    return resample(Picture(data), width, height)
