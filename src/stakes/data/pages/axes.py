"""What stands around the marks of a chart: legend, grid lines, the table under the axis, and where each text is."""

from stakes.data.pages.canvas import Ask, Canvas, Colour
from stakes.data.pages.faces import Face

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
