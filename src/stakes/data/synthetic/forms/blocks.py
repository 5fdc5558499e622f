"""The blocks that show fields on a form: label and value pairs, prose that states values, totals under a table.

Every block prints at the sheet's ``y``, moves it down, and adds the questions of the values it printed. A block that
does not fit prints fewer values, never smaller than can be read.
"""

from math import ceil

from stakes.data.synthetic.forms.sheet import FilledField, Sheet
from stakes.data.synthetic.typefaces import SMALLEST, Face
from stakes.data.synthetic.wording import sentence

PAIR_STYLES = ("inline", "tab", "tab", "right", "leader", "above", "above", "grid", "grid", "line")
LEADS = ("The {} is", "Please note the {}:", "We have the {} as", "The {} was given as", "Our {} is")


def pairs(sheet: Sheet, items: list[FilledField], columns: int, style: str, size: int) -> None:
    """Labels with their values; with fewer columns, then smaller type, then fewer fields where they do not fit."""
    dice = sheet.dice
    above = style in ("above", "grid")
    value_face = (sheet.bold if dice.chance(0.25) else sheet.text)(size)
    label_face = sheet.text(max(SMALLEST, round(size * (dice.choice((0.75, 0.85, 1.0)) if above else 1.0))))
    colon = "" if above else sheet.colon
    while items:
        labels = max(label_face.width(i.label + colon) for i in items)
        widest = max(value_face.width(i.value) for i in items)
        if above:
            need = max(labels, widest) + 12
        elif style == "inline":
            need = max(value_face.width(i.value) + label_face.width(i.label + colon) for i in items) + size + 6
        else:
            need = labels + widest + 2 * size + 6
        if need <= sheet.width / columns:
            break
        if columns > 1:
            columns -= 1
        elif size > 10:
            size -= 1
            value_face, label_face = sheet.text(size), sheet.text(min(size, label_face.size))
        else:
            items = items[:-1]
    height = size * dice.uniform(1.3, 1.75) + (label_face.size * 1.25 if above else 0) + (4 if style == "grid" else 0)
    rows = min(ceil(len(items) / columns), int(sheet.free // height))
    cell = sheet.width / columns
    for index, item in enumerate(items[: rows * columns]):
        row, column = divmod(index, columns)
        x, y = sheet.left + column * cell, sheet.y + row * height
        _pair(sheet, item, style, colon, (x, y, cell, height), (label_face, value_face), labels)
    sheet.y += rows * height + size * dice.uniform(0.3, 0.8)


def _pair(
    sheet: Sheet,
    item: FilledField,
    style: str,
    colon: str,
    cell: tuple[float, float, float, float],
    faces: tuple[Face, Face],
    labels: float,
) -> None:
    """One label with its value; ``cell`` is (x, y, width, height), ``faces`` (label, value), ``labels`` their width."""
    x, y, width, height = cell
    label_face, value_face = faces
    pen = sheet.canvas.pen
    if style == "grid":
        pen.rectangle((x, y, x + width, y + height), outline=(110, 110, 110))
        x, y = x + 5, y + 2
    if style in ("above", "grid"):
        sheet.canvas.text(x, y, item.label, label_face, sheet.faint)
        sheet.answer(x, y + label_face.size * 1.25, item, value_face)
        return
    drop = value_face.ascent - label_face.ascent
    end = sheet.canvas.text(x, y + drop, item.label + colon, label_face, sheet.faint)
    if style == "inline":
        sheet.answer(end + value_face.size * 0.5, y, item, value_face)
        return
    right = x + width - 0.9 * value_face.size
    start = right - value_face.width(item.value) if style in ("right", "leader") else x + labels + value_face.size * 0.7
    base = y + value_face.ascent + 2
    if style == "leader" and start - end > 14:
        for dot in range(int(end) + 6, int(start) - 5, 6):
            pen.point((dot, base - 2), fill=sheet.ink)
    elif style == "line":
        pen.line((x + labels + 4, base, right, base), fill=(120, 120, 120))
    sheet.answer(start, y, item, value_face)


def prose(sheet: Sheet, sentences: int, embedded: int) -> None:
    """A paragraph of ``sentences`` filler sentences and ``embedded`` sentences that state a field."""
    dice = sheet.dice
    face = sheet.text(sheet.any_size() if embedded else sheet.size(dice.choice((0.75, 0.85, 1.0))))
    parts: list[str | FilledField] = []
    statements = [*sheet.next_fields(embedded), *[None] * sentences]
    dice.shuffle(statements)
    for item in statements:
        if item is None:
            parts += sentence(dice).split(" ")
        else:
            noun = item.field.noun(dice)
            parts += [*dice.choice(LEADS).format(noun).split(" "), item]
    leading = face.size * dice.uniform(1.2, 1.5)
    x, run, start, space = float(sheet.left), "", float(sheet.left), face.advances[" "]
    if sheet.free < leading:
        return
    for part in parts:
        text = part.value if isinstance(part, FilledField) else part
        wide = face.width(text)
        if x + wide > sheet.right and x > sheet.left:
            sheet.canvas.text(start, sheet.y, run, face, sheet.ink)
            sheet.y += leading
            x = start = float(sheet.left)
            run = ""
            if sheet.free < leading:
                return
        if isinstance(part, FilledField):
            sheet.canvas.text(start, sheet.y, run, face, sheet.ink)
            sheet.answer(x, sheet.y, part, face)
            x += wide
            start, run = x, ". "
            x += face.width(run)
        else:
            run += text + " "
            x += wide + space
    sheet.canvas.text(start, sheet.y, run, face, sheet.ink)
    sheet.y += leading + face.size * 0.6


def totals(sheet: Sheet) -> None:
    """Two to four values at the right, the last one larger, like the sums under a table."""
    dice = sheet.dice
    items = sheet.next_fields(dice.randint(2, 4))
    size = sheet.any_size()
    for index, item in enumerate(items):
        last = index == len(items) - 1
        face = sheet.bold(round(size * 1.35)) if last else sheet.text(size)
        label = sheet.text(size)
        start = sheet.right - face.width(item.value) - 4
        if sheet.free < face.size * 1.5 or start - label.width(item.label) - 30 < sheet.left:
            break
        if last:
            sheet.canvas.pen.line((sheet.left + sheet.width * 0.45, sheet.y, sheet.right, sheet.y), fill=sheet.ink)
            sheet.y += 3
        lead = max(sheet.left, min(sheet.left + sheet.width * 0.5, start - label.width(item.label) - 14))
        sheet.canvas.text(lead, sheet.y + face.ascent - label.ascent, item.label, label, sheet.faint)
        sheet.answer(start, sheet.y, item, face)
        sheet.y += face.size * 1.45
    sheet.y += size * dice.uniform(0.2, 0.7)
