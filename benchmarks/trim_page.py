"""A drawn page that knows which of its pixels are ink, for ``trim_pages``, ``trim_scans`` and ``trim_digital``."""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from stakes.vision.image.trim import TOLERANCE

SIZES = [(640, 880), (880, 640), (300, 420), (1100, 1500), (780, 1008), (1700, 2200)]
Paint = tuple[int, int, int]


class Page:
    """A drawn page that knows where its ink is; specks and scanner borders are drawn without being ink."""

    def __init__(self, seed: int, paper: Paint | None = None) -> None:
        self.dice = np.random.default_rng(seed)
        self.size = self.width, self.height = SIZES[seed % len(SIZES)]
        self.paper: Paint = paper or ((int(self.dice.integers(225, 256)),) * 3)
        self.image = Image.new("RGB", self.size, self.paper)
        self.draw = ImageDraw.Draw(self.image)
        self.mask = Image.new("L", self.size)
        self.words: tuple[int, int, int, int] | None = None  # ink of the paper's color
        self.contrast = TOLERANCE + 8  # of ink

    def ink(self, paint: Callable[[ImageDraw.ImageDraw, Paint], object], color: Paint = (20, 20, 30)) -> None:
        """Draw into the page and into the mask of its ink."""
        paint(self.draw, color)
        layer = Image.new("RGB", self.size)
        paint(ImageDraw.Draw(layer), (255, 255, 255))
        self.mask.paste(255, mask=layer.convert("L").point(lambda value: 255 * (value > 0)))

    def text(self, color: Paint = (20, 20, 30)) -> None:
        """Lines of text somewhere in the page."""
        font, x = ImageFont.load_default(14), int(self.dice.uniform(0.1, 0.4) * self.width)
        for y in range(int(self.dice.uniform(0.1, 0.5) * self.height), int(0.85 * self.height), 22):
            words = "".join(self.dice.choice(list("abcdefghij klmnop 0123456789"), 18))
            self.ink(lambda draw, fill, y=y, words=words: draw.text((x, y), words, fill, font), color)  # type: ignore[misc]

    def grain(self, most: int) -> None:
        """Noise of paper, up to so many values."""
        values = np.asarray(self.image).astype(np.int16) + self.dice.integers(-most, most + 1, (*self.size[::-1], 1))
        self.image = Image.fromarray(values.clip(0, 255).astype(np.uint8))

    def lost(self, box: tuple[int, int, int, int]) -> int:
        """Pixels of ink outside of the box that differ from the paper by more than noise."""
        differs = (np.abs(np.asarray(self.image).astype(int) - np.array(self.paper)) > self.contrast).any(axis=2)
        ink = differs & (np.asarray(self.mask) > 0)
        inside = np.zeros_like(ink)
        inside[box[1] : box[3], box[0] : box[2]] = True
        within = Image.fromarray(inside).crop(self.words) if self.words else None
        return int((ink & ~inside).sum()) + (0 if within is None else within.histogram()[0])
