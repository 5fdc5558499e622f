"""A filmstrip: the crop of a page that holds an answer, enlarged, as the model sees it at each budget.

    place = place_of(sample, image)                           # from the sample's box, else by OCR
    seen(fit(image, 304), place.window(image.size), 240)      # the model's own pixels there, enlarged
    draw_filmstrips([strip]).save("filmstrip.png")            # budgets side by side, with what was read

Every pixel shown is one that the model gets: the page is resized to the budget by ``fit``, as in the run, cropped there
and enlarged without smoothing. With deletion the page keeps its size, and the tokens that are dropped are dimmed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from PIL import Image, ImageDraw, ImageFont

from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.grading import is_piece
from stakes.evaluation.outcome_log import Outcome
from stakes.report.charts import LIGHT
from stakes.vision.image.resize import Fitted

if TYPE_CHECKING:
    from stakes.legibility.model import Legibility

Box = tuple[float, float, float, float]
Mark = Literal["right", "part", "wrong"]
ASPECT = 2.4  # width over height of a crop
LINES = 2.6  # heights of the answer's own box that a crop is high, at least
SIDES = 1.5  # heights of the answer's box beside it
WIDTH = 1200  # pixels of a drawn filmstrip
WORDS: dict[Mark, str] = {"right": "right", "part": "only a part", "wrong": "wrong"}
COLORS: dict[Mark, str] = {"right": LIGHT["c2"], "part": LIGHT["c4"], "wrong": LIGHT["c5"]}


@dataclass(frozen=True)
class Place:
    """Where an answer is printed, in pixels of the page; ``of``: how many places OCR found (the first is shown)."""

    box: Box
    of: int = 1

    @classmethod
    def around(cls, boxes: Sequence[Box], of: int = 1) -> "Place":
        """The place that holds all boxes of an answer, one for each of its lines."""
        lefts, tops, rights, bottoms = zip(*boxes, strict=True)
        return cls((min(lefts), min(tops), max(rights), max(bottoms)), of)

    def window(self, size: tuple[int, int]) -> Box:
        """The part of the page that is shown: the answer with a line above and below, inside the page."""
        left, top, right, bottom = self.box
        line = bottom - top
        high = min(size[1], max(LINES * line, (right - left + 2 * SIDES * line) / ASPECT))
        wide = min(size[0], ASPECT * high)
        x = min(max(0.0, (left + right - wide) / 2), size[0] - wide)
        y = min(max(0.0, (top + bottom - high) / 2), size[1] - high)
        return x, y, x + wide, y + high


@dataclass(frozen=True)
class Frame:
    """One budget of a filmstrip: the crop, what was read there, and whether that is right."""

    budget: int
    image: Image.Image
    read: str
    mark: Mark | None = None


@dataclass(frozen=True)
class Filmstrip:
    """An answer at rising budgets; ``chosen``: the policy's budget, ``uniform``: one budget for all questions."""

    question: str
    answer: str
    tier: str
    frames: tuple[Frame, ...]
    chosen: int
    uniform: int | None = None


def mark_of(outcome: Outcome, answers: Sequence[str]) -> Mark:
    """Right, wrong, or only a part of the answer: ``relaxed`` counts a part as right, and a reader would not."""
    if not outcome.correct:
        return "wrong"
    return "part" if outcome.metric == "relaxed" and is_piece(outcome.prediction, answers) else "right"


def place_of(sample: Sample, image: Image.Image) -> Place | None:
    """Where a sample's answer is printed: its box, else where OCR finds the answer; None where neither says."""
    if sample.box is not None:
        return Place(sample.box)
    if find_spec("rapidocr") is None:
        return None
    from stakes.evaluation.samples import digest

    model = _ocr()
    named = replace(sample, load=lambda: image, digest=digest(image.tobytes()))
    model.locate([named])
    found = model.locations[sample.id]
    if not found:
        return None
    return Place.around(found[0].boxes, len(found))


@cache
def _ocr() -> "Legibility":
    from stakes.legibility.model import Legibility

    return Legibility()


def seen(fitted: Fitted, window: Box, width: int) -> Image.Image:
    """The fitted image's pixels in a window of the page, enlarged to ``width`` without smoothing."""
    (x, y), (left, top, _, _) = fitted.scale, fitted.box
    shown = (
        max(0.0, (window[0] - left) * x),
        max(0.0, (window[1] - top) * y),
        min(float(fitted.image.width), (window[2] - left) * x),
        min(float(fitted.image.height), (window[3] - top) * y),
    )
    if shown[0] >= shown[2] or shown[1] >= shown[3]:
        raise BadInput("the answer's place lies outside of the image; correct its box")
    height = max(1, round(width * (window[3] - window[1]) / (window[2] - window[0])))
    return fitted.image.resize((width, height), Image.Resampling.NEAREST, box=shown)


def dimmed(page: Fitted, grid: tuple[int, int], kept: Sequence[int]) -> Fitted:
    """The page with every token of its (rows, columns) that is not kept dimmed."""
    rows, columns = grid
    mask = Image.new("L", (columns, rows))
    for i in kept:
        mask.putpixel((i % columns, i // columns), 255)
    dark = Image.blend(page.image, Image.new("RGB", page.image.size, (20, 24, 32)), 0.8)
    return replace(
        page, pixels=Image.composite(page.image, dark, mask.resize(page.image.size, Image.Resampling.NEAREST))
    )


def draw_filmstrips(strips: Sequence[Filmstrip]) -> Image.Image:
    """One image of all strips, on white; a frame says its budget, what was read and whether that is right."""
    rows = [_draw(strip) for strip in strips]
    sheet = Image.new("RGB", (WIDTH, sum(row.height for row in rows)), "white")
    top = 0
    for row in rows:
        sheet.paste(row, (0, top))
        top += row.height
    return sheet


def _draw(strip: Filmstrip) -> Image.Image:
    """One strip: the question, then its frames side by side."""
    edge, gap, head = 20, 14, 62
    count = len(strip.frames)
    wide = (WIDTH - 2 * edge - (count - 1) * gap) // count
    high = max(round(wide * frame.image.height / frame.image.width) for frame in strip.frames)
    row = Image.new("RGB", (WIDTH, head + high + 100), "white")
    pen = ImageDraw.Draw(row)
    pen.text((edge, 20), _short(strip.question, _font(22, bold=True), 760), LIGHT["ink"], _font(22, bold=True))
    note = f"tier {strip.tier}; printed: {strip.answer}"
    pen.text((WIDTH - edge, 24), _short(note, _font(18), 400), LIGHT["muted"], _font(18), anchor="ra")
    for i, frame in enumerate(strip.frames):
        left = edge + i * (wide + gap)
        crop = frame.image.resize((wide, high), Image.Resampling.NEAREST)
        row.paste(crop, (left, head))
        chosen = frame.budget == strip.chosen
        border = LIGHT["accent"] if chosen else LIGHT["line"]
        grow = 5 if chosen else 1
        frame_box = (left - grow, head - grow, left + wide + grow - 1, head + high + grow - 1)
        pen.rectangle(frame_box, outline=border, width=grow)
        below = head + high + 10
        pen.text((left, below), f"{frame.budget} tokens", LIGHT["ink"], _font(17, bold=chosen))
        if frame.mark is not None:
            _draw_mark(pen, frame.mark, left, below + 28)
        color = LIGHT["ink"] if frame.mark is None else COLORS[frame.mark]
        text = frame.read or "(nothing)"
        pen.text((left + 20, below + 25), _short(text, _font(17, bold=True), wide - 20), color, _font(17, bold=True))
        if chosen or frame.budget == strip.uniform:
            label = "chosen by the policy" if chosen else "one budget for all"
            tint = LIGHT["accent"] if chosen else LIGHT["muted"]
            pen.text((left, below + 52), _short(label, _font(15), wide + gap - 4), tint, _font(15))
    return row


def _draw_mark(pen: ImageDraw.ImageDraw, mark: Mark, x: int, y: int) -> None:
    """A tick, a cross or a wave, drawn: few typefaces have them."""
    lines = {
        "right": [(0, 8, 5, 13), (5, 13, 14, 1)],
        "wrong": [(1, 1, 13, 13), (13, 1, 1, 13)],
        "part": [(0, 8, 4, 4), (4, 4, 9, 9), (9, 9, 13, 5)],
    }[mark]
    for a, b, c, d in lines:
        pen.line((x + a, y + b, x + c, y + d), fill=COLORS[mark], width=3)


@cache
def _font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    from stakes.data.synthetic.typefaces import FONTS

    return ImageFont.truetype(str(FONTS / f"LiberationSans-{'Bold' if bold else 'Regular'}.ttf"), size)


def _short(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """The text on one line, cut to fit the width."""
    text = " ".join(text.split())
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"
