"""Drawing of chart marks: columns, bars, lines and pies, each with its value printed at it.

Half of the columns and lines print their values in a table under the axis instead, one row per series. A ``Plot``
records which text run is which mark, category or series, so that questions can be added afterwards.
"""

from dataclasses import dataclass, field
from math import cos, pi, sin

from stakes.data.synthetic.canvas import Canvas, Color
from stakes.data.synthetic.page import Box
from stakes.data.synthetic.typefaces import Face, face


@dataclass(frozen=True)
class ChartData:
    """What a chart shows: one printed text and one number for each mark."""

    head: str  # what the categories are: "year", "country", ...
    names: list[str]  # of the categories
    series: list[str]
    texts: list[list[str]]  # [series][category]
    numbers: list[list[float]]


@dataclass
class Plot:
    """The data and style of a chart, the area that is still free, and the text runs printed so far."""

    canvas: Canvas
    data: ChartData
    left: float
    top: float
    right: float
    bottom: float
    colors: tuple[Color, ...]
    face: Face
    ink: Color
    marks: dict[tuple[int, int], int] = field(default_factory=dict)  # (series, category): run
    names: dict[int, int] = field(default_factory=dict)
    series: dict[int, int] = field(default_factory=dict)

    def run(self, x: float, y: float, text: str) -> int:
        """Print text that may get a question later; returns the index of the run."""
        return self.canvas.run(x, y, text, self.face, self.ink)

    def centered(self, middle: float, y: float, text: str) -> int:
        """The same, centered."""
        return self.run(middle - self.face.width(text) / 2, y, text)

    def widest(self, *rows: list[str]) -> float:
        """The width of the longest of these texts."""
        return max(self.face.width(text) for row in rows for text in row)

    def shrink(self) -> None:
        """Use the same typeface, one pixel smaller."""
        self.face = face(self.face.name, self.face.size - 1)

    def key(self, x: float, y: float, index: int) -> None:
        """The colored square of a legend."""
        self.canvas.pen.rectangle((x, y + 2, x + 14, y + 16), fill=self.colors[index])


def _legend(plot: Plot) -> None:
    """The names of the series at the top right."""
    x, y = plot.right, plot.top
    for s, name in reversed([*enumerate(plot.data.series)]):
        x -= plot.face.width(name) + 34
        plot.key(x, y, s)
        plot.series[s] = plot.run(x + 20, y, name)


def _slots(plot: Plot) -> tuple[bool, float]:
    """Whether the values go in a table under the axis, and the width of a category; leaves space for the row names."""
    table = plot.canvas.dice.chance(0.5)
    if table and len(plot.data.series) > 1:
        plot.left += plot.widest(plot.data.series) + 32
    return table, (plot.right - plot.left) / len(plot.data.names)


def _axis(plot: Plot, table: bool) -> None:
    """Leave space for the names or the table below the axis, and draw the base line and the grid."""
    size = plot.face.size
    plot.bottom -= size * (1.5 * (1 + len(plot.data.series)) + 0.6) if table else size * 1.6
    for k in range(5):
        y = plot.bottom - (plot.bottom - plot.top) * k / 5
        plot.canvas.pen.line((plot.left, y, plot.right, y), fill=(90, 90, 90) if k == 0 else (218, 218, 218))


def _table(plot: Plot, slot: float) -> None:
    """A table below the axis: the categories, then the values of each series with its legend key at the left."""
    data, leading = plot.data, plot.face.size * 1.5
    for c, name in enumerate(data.names):
        middle = plot.left + slot * (c + 0.5)
        plot.names[c] = plot.centered(middle, plot.bottom + 4, name)
        for s, row in enumerate(data.texts):
            plot.marks[s, c] = plot.centered(middle, plot.bottom + 4 + leading * (s + 1), row[c])
    for s, name in enumerate(data.series) if len(data.series) > 1 else ():
        y, x = plot.bottom + 4 + leading * (s + 1), plot.left - plot.face.width(name) - 10
        plot.key(x - 20, y, s)
        plot.series[s] = plot.run(x, y, name)
    for s in range(len(data.series) + 1):
        y = plot.bottom + leading * (s + 1) + 1
        plot.canvas.pen.line((plot.left, y, plot.right, y), fill=(200, 200, 200))


def _columns(plot: Plot) -> None:
    """Vertical bars, one or several for each category."""
    data, count = plot.data, len(plot.data.series)
    table, slot = _slots(plot)
    thick = slot * (0.72 if count == 1 else 0.86) / count
    fits = slot - 8 if table else thick
    while plot.face.size > 10 and (plot.widest(*data.texts) > fits or plot.widest(data.names) > slot - 4):
        plot.shrink()
    if not table and count > 1:
        _legend(plot)
    plot.top += plot.face.size * 1.8
    _axis(plot, table)
    highest = max(max(row) for row in data.numbers)
    for c, name in enumerate(data.names):
        middle = plot.left + slot * (c + 0.5)
        for s in range(count):
            x = middle - thick * count / 2 + thick * s
            y = plot.bottom - (plot.bottom - plot.top - plot.face.size * 1.4) * data.numbers[s][c] / highest
            plot.canvas.pen.rectangle((x, y, x + thick - 2, plot.bottom), fill=plot.colors[s])
            if not table:
                text = data.texts[s][c]
                left = x + (thick - plot.face.width(text)) / 2
                plot.marks[s, c] = plot.run(left, y - plot.face.size * 1.25, text)
        if not table:
            plot.names[c] = plot.centered(middle, plot.bottom + 4, name)
    if table:
        _table(plot, slot)


def _bars(plot: Plot) -> None:
    """Horizontal bars with the names at their left."""
    data, (numbers,) = plot.data, plot.data.numbers
    start = plot.left + plot.widest(data.names) + 14
    reach = plot.right - start - plot.widest(data.texts[0]) - 14
    slot = (plot.bottom - plot.top) / len(data.names)
    one_color = plot.canvas.dice.chance(0.6)
    for c, name in enumerate(data.names):
        y = plot.top + slot * c
        end = start + reach * numbers[c] / max(numbers)
        color = plot.colors[0 if one_color else c]
        plot.canvas.pen.rectangle((start, y + slot * 0.18, end, y + slot * 0.82), fill=color)
        line = y + (slot - plot.face.size * 1.2) / 2
        plot.names[c] = plot.run(start - 8 - plot.face.width(name), line, name)
        plot.marks[0, c] = plot.run(end + 7, line, data.texts[0][c])
    plot.canvas.pen.line((start, plot.top, start, plot.bottom), fill=(90, 90, 90))


def _lines(plot: Plot) -> None:
    """One line for each series, each in its own band so that the printed values do not collide."""
    data = plot.data
    table, slot = _slots(plot)
    while plot.face.size > 10 and plot.widest(data.names, *data.texts) > slot - 8:
        plot.shrink()
    if not table:
        _legend(plot)
    plot.top += plot.face.size * (0.6 if table else 1.8)
    _axis(plot, table)
    band = (plot.bottom - plot.top) / len(data.series)
    for s, numbers in enumerate(data.numbers):
        low, span = min(numbers), max(numbers) - min(numbers)
        base = plot.top + band * (s + 1) - 6
        height = band - plot.face.size * 1.6 - 12
        points = [(plot.left + slot * (c + 0.5), base - height * (n - low) / span) for c, n in enumerate(numbers)]
        plot.canvas.pen.line(points, fill=plot.colors[s], width=3)
        for c, (x, y) in enumerate(points):
            plot.canvas.pen.ellipse((x - 4, y - 4, x + 4, y + 4), fill=plot.colors[s])
            if not table:
                plot.marks[s, c] = plot.centered(x, y - plot.face.size * 1.5, data.texts[s][c])
    if table:
        _table(plot, slot)
    for c, name in enumerate(data.names) if not table else ():
        plot.names[c] = plot.centered(plot.left + slot * (c + 0.5), plot.bottom + 4, name)


def _pie(plot: Plot) -> None:
    """A pie or a ring; names and shares are printed beside it in a legend, or at the slices."""
    data, pen, (numbers,) = plot.data, plot.canvas.pen, plot.data.numbers
    data.texts[0][:] = _distinct_shares(numbers)
    radius = min(plot.bottom - plot.top, plot.right - plot.left) * 0.38
    beside = plot.canvas.dice.chance(0.5)
    x0 = plot.left + radius + 20 if beside else (plot.left + plot.right) / 2
    y0 = (plot.top + plot.bottom) / 2
    box: Box = (int(x0 - radius), int(y0 - radius), int(x0 + radius), int(y0 + radius))
    start = -90.0
    row = min(plot.face.size * 2.2, (plot.bottom - plot.top) / len(data.names))
    for c, (name, text) in enumerate(zip(data.names, data.texts[0], strict=True)):
        sweep = 360 * numbers[c] / sum(numbers)
        pen.pieslice(box, start, start + sweep, fill=plot.colors[c], outline=(255, 255, 255), width=2)
        if beside:
            x, y = x0 + radius + 50, y0 + row * (c - len(data.names) / 2)
            plot.key(x, y, c)
            plot.names[c] = plot.run(x + 22, y, name)
            plot.marks[0, c] = plot.run(x + 40 + plot.widest(data.names), y, text)
        else:
            angle, reach = (start + sweep / 2) * pi / 180, radius + 16
            x, y = x0 + reach * cos(angle), y0 + reach * sin(angle)
            pen.line((x0 + radius * cos(angle), y0 + radius * sin(angle), x, y), fill=plot.ink)
            x -= plot.widest([name, text]) if cos(angle) < 0 else 0
            y -= plot.face.size * 1.2 * (1 - sin(angle))
            plot.names[c] = plot.run(x, y, name)
            plot.marks[0, c] = plot.run(x, y + plot.face.size * 1.15, text)
        start += sweep
    if plot.canvas.dice.chance(0.4):
        hole = radius * 0.55
        pen.ellipse((x0 - hole, y0 - hole, x0 + hole, y0 + hole), fill=(255, 255, 255))


def _distinct_shares(numbers: list[float]) -> list[str]:
    """Shares in percent as printed; those that rounding made equal differ by 0.1."""
    texts: list[str] = []
    for number in numbers:
        share = 100 * number / sum(numbers)
        while f"{share:.1f}%" in texts:
            share += 0.1
        texts.append(f"{share:.1f}%")
    return texts


DRAW = {"column": _columns, "grouped": _columns, "bar": _bars, "line": _lines, "pie": _pie}
