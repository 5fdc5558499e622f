"""The parts around the fields of a form: letterheads, headings, stamps, check boxes, signatures, footers."""

from stakes.data.synthetic import values as v
from stakes.data.synthetic.canvas import Color
from stakes.data.synthetic.forms.blocks import pairs
from stakes.data.synthetic.forms.sheet import Sheet
from stakes.data.synthetic.typefaces import Face
from stakes.data.synthetic.wording import CHECKS, ROLES, SECTIONS, TITLES, about

COMPANY = "What is the company name?|Which company is at the top?|What company is this from?||Name the company."
SIGNER = "Who signed this?|Who signed the page?|Who is the signer?|What is the name of the signer?||Name the signer."
PAGE_KEYWORD = (
    "What is the page number?|What page number is given?|What is the number at the bottom?||Give the page number."
)
PAGE_PLAIN = "What page is this?|Which page is this?"


def letterhead(sheet: Sheet) -> None:
    """The sender's name in large type, with a logo beside it and an address line below."""
    dice, pen = sheet.dice, sheet.canvas.pen
    size = sheet.size(dice.uniform(1.3, 2.0))
    head = sheet.bold(size)
    name = v.fair(v.company, 16, 2)(dice)
    logo = size * 1.5 if dice.chance(0.6) else 0.0
    width = head.width(name) + logo
    x = dice.choice((sheet.left, sheet.left, (sheet.left + sheet.right - width) / 2, sheet.right - width))
    if logo:
        box = (x, sheet.y, x + size * 1.1, sheet.y + size * 1.1)
        kind = dice.randrange(3)
        if kind == 0:
            pen.ellipse(box, fill=sheet.accent)
        elif kind == 1:
            pen.rectangle(box, outline=sheet.accent, width=3)
            pen.line(box, fill=sheet.accent, width=3)
        else:
            pen.polygon((box[0], box[3], (box[0] + box[2]) / 2, box[1], box[2], box[3]), fill=sheet.accent)
    sheet.canvas.answer(x + logo, sheet.y, name, head, about("company", "low", "", COMPANY, dice), sheet.accent)
    sheet.y += size * 1.35
    small = sheet.text(sheet.size(0.8))
    line = f"{v.digits(dice, 3)} {v.road(dice, 11)}, {v.word(dice, 7)}   www.{v.name(dice, 7)}.com"
    line = _fit_words(line, small, sheet.width)
    start = x if x + small.width(line) <= sheet.right else sheet.right - small.width(line)
    sheet.canvas.text(start, sheet.y, line, small, sheet.faint)
    sheet.y += small.size * 1.6
    if dice.chance(0.6):
        sheet.rule(8, sheet.accent, dice.choice((1, 2, 3)))


def heading(sheet: Sheet, centered: bool = False) -> None:
    """The kind of document, and one field in large type."""
    dice = sheet.dice
    size = sheet.size(dice.uniform(1.3, 1.9))
    face = sheet.bold(size)
    text = dice.pick(TITLES[sheet.theme], "wording")
    free = sheet.width - face.width(text)
    x = sheet.left + free / 2 if centered else sheet.left
    sheet.canvas.text(x, sheet.y, text, face, sheet.accent)
    fields = sheet.next_fields(1, "high" if dice.chance(0.85) else "low")
    needed = sum(face.width(f.value) + sheet.text(size // 2).width(f.label) + size * 2 for f in fields)
    if fields and not centered and free > needed:
        small = sheet.text(sheet.size(0.9))
        start = sheet.right - face.width(fields[0].value)
        label_x = start - small.width(fields[0].label) - 8
        sheet.canvas.text(label_x, sheet.y + face.ascent - small.ascent, fields[0].label, small)
        sheet.answer(start, sheet.y, fields[0], face)
        sheet.y += size * 1.5
        return
    sheet.y += size * 1.45
    if fields:
        pairs(sheet, fields, 1, "inline", sheet.size(dice.uniform(1.1, 1.6)))


def section(sheet: Sheet) -> None:
    """A bar or a line with the name of a section."""
    dice = sheet.dice
    face = sheet.bold(sheet.size(dice.choice((0.9, 1.0, 1.1))))
    text = dice.pick(SECTIONS, "wording")
    height = face.size * 1.5
    if sheet.free < height * 3:
        return
    if dice.chance(0.5):
        fill: Color = dice.choice(((225, 225, 225), (205, 215, 230), sheet.accent))
        sheet.canvas.pen.rectangle((sheet.left, sheet.y, sheet.right, sheet.y + height), fill=fill)
        ink: Color = (255, 255, 255) if fill == sheet.accent else sheet.ink
        sheet.canvas.text(sheet.left + 6, sheet.y + face.size * 0.16, text, face, ink)
        sheet.y += height + 5
    else:
        sheet.canvas.text(sheet.left, sheet.y, text, face, sheet.accent)
        sheet.y += height
        sheet.rule(5, sheet.accent)


def stamp(sheet: Sheet) -> None:
    """A colored box with a word and a value."""
    dice = sheet.dice
    items = sheet.next_fields(1)
    color: Color = dice.choice(((170, 40, 40), (40, 60, 150), (40, 110, 60)))
    for item in items:
        face, small = sheet.bold(sheet.any_size()), sheet.text(sheet.size(0.85))
        width = max(face.width(item.value), small.width(item.label)) + 20
        height = face.size * 1.3 + small.size * 1.3 + 10
        if width > sheet.width or sheet.free < height + 8:
            return
        x = dice.uniform(sheet.left, sheet.right - width)
        sheet.canvas.pen.rectangle((x, sheet.y, x + width, sheet.y + height), outline=color, width=3)
        sheet.canvas.text(x + 10, sheet.y + 5, item.label, small, color)
        sheet.answer(x + 10, sheet.y + 6 + small.size * 1.3, item, face, color)
        sheet.y += height + 8


def checks(sheet: Sheet) -> None:
    """A row of check boxes; decoration."""
    dice = sheet.dice
    face = sheet.text(sheet.size(0.9))
    x: float = sheet.left
    if sheet.free < face.size * 2:
        return
    for _ in range(dice.randint(3, 5)):
        text = dice.pick(CHECKS, "words")
        if x + face.width(text) + face.size * 2 > sheet.right:
            break
        box = (x, sheet.y + 2, x + face.size, sheet.y + 2 + face.size)
        sheet.canvas.pen.rectangle(box, outline=sheet.ink)
        if dice.chance(0.4):
            sheet.canvas.pen.line(box, fill=sheet.ink, width=2)
        x = sheet.canvas.text(x + face.size * 1.4, sheet.y, text, face, sheet.faint) + face.size * 1.5
    sheet.y += face.size * 1.9


def signature(sheet: Sheet) -> None:
    """A scrawl, and below it the name and office of the signer."""
    dice = sheet.dice
    face, small = sheet.text(sheet.any_size()), sheet.text(sheet.size(0.85))
    if sheet.free < 30 + face.size * 1.4 + small.size * 1.4 or not sheet.questions_left:
        return
    x = dice.choice((sheet.left, sheet.left + sheet.width * 0.55))
    curve = [(x + 8 * k, sheet.y + 14 + dice.randint(-11, 11)) for k in range(dice.randint(10, 16))]
    sheet.canvas.pen.line(curve, fill=(30, 40, 110), width=2, joint="curve")
    sheet.y += 29
    sheet.canvas.pen.line((x, sheet.y, min(sheet.right, x + 170), sheet.y), fill=(110, 110, 110))
    name = v.fair(v.person, 14)(dice)
    sheet.canvas.answer(x, sheet.y + 3, name, face, about("signer", "low", "", SIGNER, dice), sheet.ink)
    sheet.y += face.size * 1.4
    sheet.canvas.text(x, sheet.y, dice.pick(ROLES, "words"), small, sheet.faint)
    sheet.y += small.size * 1.7


def footer(sheet: Sheet) -> None:
    """The page number and a line of small print at the foot."""
    dice, canvas = sheet.dice, sheet.canvas
    face = sheet.text(sheet.size(dice.choice((0.75, 0.85, 1.0, 1.2))))
    y = canvas.height - face.size * 1.2 - dice.randint(18, 26)
    left, right = 36, canvas.width - 36
    if dice.chance(0.5):
        canvas.pen.line((left, y - 5, right, y - 5), fill=(150, 150, 150))
    number = str(dice.randint(2, 989)) if dice.chance(0.6) else f"{dice.choice('ABCDEFGH')}-{dice.randint(2, 989)}"
    word = dice.choice(("Page", "Page", "Page", "p.", "Sheet"))
    x = dice.choice((left, canvas.width / 2, right - face.width(f"{word} {number}")))
    start = canvas.text(x, y, word, face, sheet.faint) + face.advances[" "]
    if not sheet.questions_left or dice.chance(0.4):
        canvas.text(start, y, number, face, sheet.faint)
    else:
        canvas.answer(start, y, number, face, about("page", "low", PAGE_KEYWORD, PAGE_PLAIN, dice))
    if x != left:
        text = _fit_words(f"Form {v.ident(dice)}  {v.word(dice, 7)} Printing", face, x - left - 20)
        canvas.text(left, y, text, face, sheet.faint)


def _fit_words(text: str, face: Face, width: float) -> str:
    """As many of the text's words as fit; only for text without questions."""
    while face.width(text) > width and " " in text:
        text = text.rpartition(" ")[0]
    return text if face.width(text) <= width else ""
