"""The paper of a receipt: a canvas that keeps its print as a layer of ink, and the bend of the paper before a camera.

One smooth map moves pixels, glyphs and boxes alike.

    canvas = InkCanvas((560, 1176), dice)
    canvas.put(40, 60, "4.20", face("VeraMono", 18), questions, whole="4.20")
    warp = Warp.draw(dice, (560, 1176))
    canvas.bend(warp)                      # moves boxes and glyphs
    ink = warp.apply(canvas.ink)           # moves pixels: bilinear, in a mesh of quads
"""

from dataclasses import dataclass, replace
from math import cos, pi, radians, sin

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from stakes.data.synthetic.canvas import Canvas, Color
from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.page import Box, Glyph, Page, Question
from stakes.data.synthetic.typefaces import Face

Size = tuple[int, int]
Points = npt.NDArray[np.float64]
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Paper:
    """Type size in pixels, where the print starts, how wide it is, and the edges of the paper on the canvas."""

    point: float
    origin: tuple[float, float]
    width: float
    edge: Rectangle


@dataclass(frozen=True)
class Warp:
    """Skew, perspective and curl: a map from points of the bent page to points of the flat one."""

    size: Size
    angle: float  # radians
    keystone: tuple[float, float]  # relative growth from one edge to the other, across and down
    shear: float
    curl: tuple[float, float, float]  # height in pixels, waves across the page, phase
    sway: tuple[float, float, float]  # the same from top to bottom

    @classmethod
    def draw(cls, dice: Dice, size: Size) -> "Warp":
        """A third of the pages are bent strongly, the others slightly."""
        strong = dice.chance(0.35)
        angle = radians(dice.uniform(-4, 4) if strong else dice.gauss(0, 0.7))
        key = 0.06 if strong else 0.015
        curled = dice.chance(0.3)
        curl = (dice.uniform(-8, 8) if curled else 0.0, dice.uniform(0.3, 1.2), dice.uniform(0, pi))
        sway = (dice.uniform(-6, 6) if curled else 0.0, dice.uniform(0.3, 1.5), dice.uniform(0, pi))
        keystone = (dice.uniform(-key, key), dice.uniform(-key, key))
        return cls(size, angle, keystone, dice.uniform(-key, key) / 2, curl, sway)

    def back(self, x: Points, y: Points) -> tuple[Points, Points]:
        """Points of the bent page -> points of the flat one."""
        width, height = self.size
        u, v = x - width / 2, y - height / 2
        across, down = self.keystone
        zoom = 1 + across * v / height + down * u / width
        c, s = cos(self.angle), sin(self.angle)
        a = (c * u + s * v) * zoom + self.shear * v
        b = (c * v - s * u) * zoom
        a = a + self.sway[0] * np.sin(2 * pi * self.sway[1] * v / height + self.sway[2])
        b = b + self.curl[0] * np.sin(2 * pi * self.curl[1] * u / width + self.curl[2])
        return a + width / 2, b + height / 2

    def forward(self, x: Points, y: Points) -> tuple[Points, Points]:
        """Points of the flat page -> points of the bent one, by fixed-point iteration."""
        a, b = x.copy(), y.copy()
        for _ in range(6):
            p, q = self.back(a, b)
            a, b = a - (p - x), b - (q - y)
        return a, b

    def apply(self, image: Image.Image) -> Image.Image:
        """The bent image; what lies outside of the flat one is 0."""
        width, height = self.size
        xs, ys = np.linspace(0, width, 5).round(), np.linspace(0, height, 9).round()
        gx, gy = self.back(*np.meshgrid(xs, ys))
        mesh = []
        for j in range(len(ys) - 1):
            for i in range(len(xs) - 1):
                corners = ((j, i), (j + 1, i), (j + 1, i + 1), (j, i + 1))
                quad = tuple(float(g[at]) for at in corners for g in (gx, gy))
                mesh.append(((int(xs[i]), int(ys[j]), int(xs[i + 1]), int(ys[j + 1])), quad))
        return image.transform(self.size, Image.Transform.MESH, mesh, Image.Resampling.BILINEAR)

    def outline(self, box: Rectangle) -> list[tuple[float, float]]:
        """The edge of a flat rectangle on the bent page, as a polygon."""
        left, top, right, bottom = box
        along, ones = np.linspace(0, 1, 12), np.ones(12)
        x = np.concatenate([left + (right - left) * along, right * ones, right - (right - left) * along, left * ones])
        y = np.concatenate([top * ones, top + (bottom - top) * along, bottom * ones, bottom - (bottom - top) * along])
        a, b = self.forward(x, y)
        return list(zip(a.tolist(), b.tolist(), strict=True))


class InkCanvas(Canvas):
    """A canvas whose ``ink`` layer holds the print alone, so that wear can act on it before the paper is added."""

    def __init__(self, size: Size, dice: Dice) -> None:
        super().__init__(size, dice)
        self.ink = Image.new("L", size)
        self.pen = ImageDraw.Draw(self.ink)
        self._first: dict[str, int] = {}  # answer -> index of its first question
        self._warp: Warp | None = None

    def text(self, x: float, y: float, text: str, face: Face, ink: Color | int = 255, question: int = -1) -> float:
        """Print text into the ink layer, where 255 is full coverage; the color is added with the paper."""
        return super().text(x, y, text, face, ink, question)

    def put(self, x: float, y: float, text: str, face: Face, questions: tuple[Question, ...], whole: str) -> float:
        """Print text and add the questions about it. Later parts of the answer ``whole`` extend the boxes of these."""
        right, bottom = min(self.width, round(x + face.width(text))), min(self.height, round(y + face.size * 1.2))
        box = (max(0, round(x)), max(0, round(y)), right, bottom)
        if questions and whole in self._first and text != whole:
            number = self._first[whole]
            for at in range(number, len(self.questions)):
                if self.questions[at].answers == (whole,):
                    self.questions[at] = replace(self.questions[at], box=_union(self.questions[at].box, box))
            return self.text(x, y, text, face, question=number)
        new = {q.text: q for q in questions if not self._has(q)}
        if not new:
            return self.text(x, y, text, face)
        number = self._first[whole] = len(self.questions)
        for question in new.values():
            self.ask(question, whole, box)
        return self.text(x, y, text, face, question=number)

    def barcode(self, box: Rectangle) -> None:
        """Print bars of random widths."""
        x, top, right, bottom = (round(v) for v in box)
        while x < right:
            wide = self.dice.choice((1, 1, 2, 3))
            self.pen.rectangle((x, top, x + wide - 1, bottom), fill=255)
            x += wide + self.dice.choice((1, 2, 2, 3))

    def drop_faded(self, before: Image.Image, least: float) -> None:
        """Remove questions whose answers have less than the share ``least`` of the ink that they had ``before``."""
        old, now = np.asarray(before), np.asarray(self.ink)
        faded = []
        for i, q in enumerate(self.questions):
            if q.box:
                part = np.s_[q.box[1] : q.box[3], q.box[0] : q.box[2]]
                if now[part].sum(dtype=np.int64) < least * old[part].sum(dtype=np.int64):
                    faded.append(i)
        self._drop(faded)

    def bend(self, warp: Warp) -> None:
        """Move boxes now, and glyphs at the end, as the paper bends; remove questions that leave the canvas."""
        self._warp = warp
        self.questions = [q if q.box is None else replace(q, box=_moved(q.box, warp)) for q in self.questions]
        self._drop([i for i, q in enumerate(self.questions) if q.box and not self._inside(q.box)])

    def _inside(self, box: Box) -> bool:
        return box[0] >= 0 and box[1] >= 0 and box[2] <= self.width and box[3] <= self.height

    def _drop(self, numbers: list[int]) -> None:
        """Remove these questions and renumber the others in the text runs."""
        remaining = [i for i in range(len(self.questions)) if i not in numbers]
        new = {old: at for at, old in enumerate(remaining)}
        self.questions = [self.questions[i] for i in remaining]
        self._runs = [(*run[:4], new.get(run[4], -1)) for run in self._runs]

    def finish(self, family: str, document: str) -> Page:
        """The page, with its glyphs where the bend moves them."""
        page = super().finish(family, document)
        if self._warp is None or not page.glyphs:
            return page
        x, y = self._warp.forward(np.array([g.x for g in page.glyphs]), np.array([g.y for g in page.glyphs]))
        glyphs = tuple(
            Glyph(a, b, g.char, g.question)
            for a, b, g in zip(x.tolist(), y.tolist(), page.glyphs, strict=True)
            if 0 <= a < self.width and 0 <= b < self.height
        )
        return replace(page, glyphs=glyphs)


def _union(a: Box | None, b: Box) -> Box:
    return b if a is None else (min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3]))


def _moved(box: Box, warp: Warp) -> Box:
    """The bounding box of a bent box."""
    left, top, right, bottom = box
    x, y = warp.forward(np.array([left, right, right, left]) * 1.0, np.array([top, top, bottom, bottom]) * 1.0)
    return int(np.floor(x.min())), int(np.floor(y.min())), int(np.ceil(x.max())), int(np.ceil(y.max()))
