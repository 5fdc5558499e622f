"""How the marks of a chart are drawn: columns, bars, lines and pies, each with its value printed at it.

Half of the columns and lines print their values in a table under the axis instead, a row for each series.

A plot remembers which printed run is which mark, name or series, so that questions can be put afterwards.
"""

from collections.abc import Callable
from math import cos, pi, sin

from stakes.data.synthetic.canvas import Ask, Canvas, Colour
from stakes.data.synthetic.page import Box
from stakes.data.synthetic.typefaces import Face

# What stands around the marks of a chart: legend, grid lines, the table under the axis, and where each text is.


Frame = tuple[float, float, float, float]
Texts = list[list[str]]
Numbers = list[list[float]]


class Plot:
    """Where the marks, names and series of a chart are printed."""

    def __init__(self) -> None:
        self.marks: dict[tuple[int, int], int] = {}
        self.names: dict[int, int] = {}
        self.series: dict[int, int] = {}

    def ask_mark(self, canvas: Canvas, series: int, name: int, ask: Ask) -> None:
        """Ask for a printed value."""
        if (series, name) in self.marks:
            canvas.ask_run(self.marks[series, name], ask)

    def ask_name(self, canvas: Canvas, name: int, ask: Ask) -> None:
        """Ask for the name of a category."""
        if name in self.names:
            canvas.ask_run(self.names[name], ask)

    def ask_series(self, canvas: Canvas, series: int, ask: Ask) -> None:
        """Ask for the name of a series."""
        if series in self.series:
            canvas.ask_run(self.series[series], ask)


def legend(
    canvas: Canvas, plot: Plot, frame: Frame, series: list[str], colours: tuple[Colour, ...], face: Face, ink: Colour
) -> float:
    """Names of the series at the top right; returns the height taken."""
    x, y = frame[2], frame[1]
    for s in range(len(series) - 1, -1, -1):
        x -= face.width(series[s]) + 34
        canvas.pen.rectangle((x, y + 2, x + 14, y + 16), fill=colours[s])
        plot.series[s] = canvas.run(x + 20, y, series[s], face, ink)
    return face.size * 1.8


def grid(canvas: Canvas, frame: Frame, top: float) -> None:
    """Horizontal lines behind the marks, and the base line."""
    left, _, right, bottom = frame
    for k in range(5):
        y = bottom - (bottom - top) * k / 5
        canvas.pen.line((left, y, right, y), fill=(90, 90, 90) if k == 0 else (218, 218, 218))


def table_height(series: list[str], face: Face) -> float:
    """What ``under_axis`` takes: a line for the names, then one for each series."""
    return face.size * (1.5 * (1 + len(series)) + 0.6)


def under_axis(
    canvas: Canvas, plot: Plot, frame: Frame, names: list[str], series: list[str], texts: Texts,
    colours: tuple[Colour, ...], face: Face, ink: Colour,
) -> None:  # fmt: skip
    """A table below ``frame``: names of the categories, then the values of each series with its key at the left."""
    left, _, right, bottom = frame
    slot, leading = (right - left) / len(names), face.size * 1.5
    for c, name in enumerate(names):
        middle = left + slot * (c + 0.5)
        plot.names[c] = canvas.run(middle - face.width(name) / 2, bottom + 4, name, face, ink)
        for s, row in enumerate(texts):
            y = bottom + 4 + leading * (s + 1)
            plot.marks[s, c] = canvas.run(middle - face.width(row[c]) / 2, y, row[c], face, ink)
    if len(series) > 1:
        for s, name in enumerate(series):
            y = bottom + 4 + leading * (s + 1)
            x = left - face.width(name) - 10
            canvas.pen.rectangle((x - 20, y + 2, x - 6, y + 16), fill=colours[s])
            plot.series[s] = canvas.run(x, y, name, face, ink)
    for s in range(len(series) + 1):
        y = bottom + leading * (s + 1) + 1
        canvas.pen.line((left, y, right, y), fill=(200, 200, 200))


def widest(face: Face, *rows: list[str]) -> float:
    """The width of the longest of these texts."""
    return max(face.width(text) for row in rows for text in row)


def columns(
    canvas: Canvas, frame: Frame, names: list[str], series: list[str], texts: Texts, numbers: Numbers,
    colours: tuple[Colour, ...], face: Face, ink: Colour,
) -> Plot:  # fmt: skip
    """Vertical bars, one or several for each category."""
    plot = Plot()
    _, top, right, bottom = frame
    table, left, slot = _slots(canvas, frame, names, series, face)
    thick = slot * (0.72 if len(series) == 1 else 0.86) / len(series)
    room = slot - 8 if table else thick
    while face.size > 10 and (widest(face, *texts) > room or widest(face, names) > slot - 4):
        face = canvas.smaller(face)
    top += face.size * 1.8 if table or len(series) == 1 else legend(canvas, plot, frame, series, colours, face, ink)
    bottom -= table_height(series, face) if table else face.size * 1.6
    grid(canvas, (left, top, right, bottom), top)
    highest = max(max(row) for row in numbers)
    for c, name in enumerate(names):
        middle = left + slot * (c + 0.5)
        for s in range(len(series)):
            x = middle - thick * len(series) / 2 + thick * s
            y = bottom - (bottom - top - face.size * 1.4) * numbers[s][c] / highest
            canvas.pen.rectangle((x, y, x + thick - 2, bottom), fill=colours[s])
            if not table:
                text, lift = texts[s][c], face.size * 1.25
                plot.marks[s, c] = canvas.run(x + (thick - face.width(text)) / 2, y - lift, text, face, ink)
        if not table:
            plot.names[c] = canvas.run(middle - face.width(name) / 2, bottom + 4, name, face, ink)
    if table:
        under_axis(canvas, plot, (left, top, right, bottom), names, series, texts, colours, face, ink)
    return plot


def _slots(canvas: Canvas, frame: Frame, names: list[str], series: list[str], face: Face) -> tuple[bool, float, float]:
    """Whether values stand in a table under the axis, where the marks then begin, and how wide a category is."""
    left, _, right, _ = frame
    table = canvas.dice.chance(0.5)
    if table and len(series) > 1:
        left += widest(face, series) + 32
    return table, left, (right - left) / len(names)


def bars(
    canvas: Canvas, frame: Frame, names: list[str], _series: list[str], texts: Texts, numbers: Numbers,
    colours: tuple[Colour, ...], face: Face, ink: Colour,
) -> Plot:  # fmt: skip
    """Horizontal bars with the names at their left."""
    plot = Plot()
    left, top, right, bottom = frame
    start = left + widest(face, names) + 14
    reach = right - start - widest(face, texts[0]) - 14
    slot = (bottom - top) / len(names)
    highest = max(numbers[0])
    one = canvas.dice.chance(0.6)
    for c, name in enumerate(names):
        y = top + slot * c
        end = start + reach * numbers[0][c] / highest
        canvas.pen.rectangle((start, y + slot * 0.18, end, y + slot * 0.82), fill=colours[0 if one else c])
        line = y + (slot - face.size * 1.2) / 2
        plot.names[c] = canvas.run(start - 8 - face.width(name), line, name, face, ink)
        plot.marks[0, c] = canvas.run(end + 7, line, texts[0][c], face, ink)
    canvas.pen.line((start, top, start, bottom), fill=(90, 90, 90))
    return plot


def lines(
    canvas: Canvas, frame: Frame, names: list[str], series: list[str], texts: Texts, numbers: Numbers,
    colours: tuple[Colour, ...], face: Face, ink: Colour,
) -> Plot:  # fmt: skip
    """One line for each series, each in its own band so that the printed values do not collide."""
    plot = Plot()
    _, top, right, bottom = frame
    table, left, slot = _slots(canvas, frame, names, series, face)
    while face.size > 10 and widest(face, names, *texts) > slot - 8:
        face = canvas.smaller(face)
    top += face.size * 0.6 if table else legend(canvas, plot, frame, series, colours, face, ink)
    bottom -= table_height(series, face) if table else face.size * 1.6
    grid(canvas, (left, top, right, bottom), top)
    band = (bottom - top) / len(series)
    for s in range(len(series)):
        low, span = min(numbers[s]), max(numbers[s]) - min(numbers[s])
        base = top + band * (s + 1) - 6
        points = [
            (left + slot * (c + 0.5), base - (band - face.size * 1.6 - 12) * (n - low) / span)
            for c, n in enumerate(numbers[s])
        ]
        canvas.pen.line(points, fill=colours[s], width=3)
        for c, (x, y) in enumerate(points):
            canvas.pen.ellipse((x - 4, y - 4, x + 4, y + 4), fill=colours[s])
            if not table:
                text, lift = texts[s][c], face.size * 1.5
                plot.marks[s, c] = canvas.run(x - face.width(text) / 2, y - lift, text, face, ink)
    if table:
        under_axis(canvas, plot, (left, top, right, bottom), names, series, texts, colours, face, ink)
        return plot
    for c, name in enumerate(names):
        plot.names[c] = canvas.run(left + slot * (c + 0.5) - face.width(name) / 2, bottom + 4, name, face, ink)
    return plot


def pie(
    canvas: Canvas, frame: Frame, names: list[str], _series: list[str], texts: Texts, numbers: Numbers,
    colours: tuple[Colour, ...], face: Face, ink: Colour,
) -> Plot:  # fmt: skip
    """A pie or a ring; names and shares stand beside it in a legend, or at the slices."""
    plot = Plot()
    left, top, right, bottom = frame
    whole = sum(numbers[0])
    shares = [100 * n / whole for n in numbers[0]]
    texts[0][:] = _shares(shares)
    radius = min(bottom - top, right - left) * 0.38
    beside = canvas.dice.chance(0.5)
    x0 = left + radius + 20 if beside else (left + right) / 2
    y0 = (top + bottom) / 2
    box: Box = (int(x0 - radius), int(y0 - radius), int(x0 + radius), int(y0 + radius))
    angle = -90.0
    row = min(face.size * 2.2, (bottom - top) / len(names))
    for c, name in enumerate(names):
        sweep = 360 * numbers[0][c] / whole
        canvas.pen.pieslice(box, angle, angle + sweep, fill=colours[c], outline=(255, 255, 255), width=2)
        if beside:
            y = y0 + row * (c - len(names) / 2)
            x = x0 + radius + 50
            canvas.pen.rectangle((x, y + 2, x + 14, y + 16), fill=colours[c])
            plot.names[c] = canvas.run(x + 22, y, name, face, ink)
            plot.marks[0, c] = canvas.run(x + 40 + widest(face, names), y, texts[0][c], face, ink)
        else:
            turn = (angle + sweep / 2) * pi / 180
            reach = radius + 16
            x, y = x0 + reach * cos(turn), y0 + reach * sin(turn) - face.size * 1.2 * (1 - sin(turn))
            x -= max(face.width(name), face.width(texts[0][c])) if cos(turn) < 0 else 0
            canvas.pen.line(
                (x0 + radius * cos(turn), y0 + radius * sin(turn), x0 + reach * cos(turn), y0 + reach * sin(turn)),
                fill=ink,
            )
            plot.names[c] = canvas.run(x, y, name, face, ink)
            plot.marks[0, c] = canvas.run(x, y + face.size * 1.15, texts[0][c], face, ink)
        angle += sweep
    if canvas.dice.chance(0.4):
        hole = radius * 0.55
        canvas.pen.ellipse((x0 - hole, y0 - hole, x0 + hole, y0 + hole), fill=(255, 255, 255))
    return plot


def _shares(shares: list[float]) -> list[str]:
    """Shares as printed, made different where rounding made them equal."""
    texts: list[str] = []
    for share in shares:
        while f"{share:.1f}%" in texts:
            share += 0.1
        texts.append(f"{share:.1f}%")
    return texts


DRAW: dict[str, Callable[..., Plot]] = {"column": columns, "grouped": columns, "bar": bars, "line": lines, "pie": pie}
