"""Letters, memos and fax covers: who wrote to whom, when and about what, with facts in the text."""

from training.documents import words
from training.documents.sheet import Piece, Sheet
from training.documents.values import HIGH, KINDS
from training.documents.wording import FACTS, Desk

from stakes.data.synthetic.page import Question
from stakes.data.synthetic.values import letters as capitals

GREETINGS = ("Dear {}:", "Dear {},", "Gentlemen:", "Dear Sir:", "Dear {}:")
CLOSINGS = ("Sincerely,", "Yours truly,", "Very truly yours,", "Sincerely yours,", "Cordially,", "Best regards,")
MEMOS = (
    "MEMORANDUM",
    "MEMO",
    "INTEROFFICE MEMORANDUM",
    "Inter-Office Correspondence",
    "Internal Memorandum",
    "OFFICE NOTE",
)
FAXES = (
    "FAX COVER SHEET",
    "FAX",
    "Facsimile Transmittal",
    "TELECOPY COVER SHEET",
    "FACSIMILE MESSAGE",
    "Fax Transmission",
)


def plain(text: str) -> Piece:
    """A piece without questions."""
    return text, ()


def body(sheet: Sheet, paragraphs: int, facts: int) -> None:
    """Paragraphs of sentences, some of which state a fact that is asked for."""
    dice = sheet.dice
    chosen = dice.sample(FACTS, facts)
    indent = dice.choice((0.0, 0.0, 40.0, 60.0))
    for index in range(paragraphs):
        pieces: list[Piece] = [plain(words.sentence(dice)) for _ in range(dice.randint(1, 4))]
        for sentence, kind, questions in chosen[index::paragraphs]:
            value = KINDS[kind](dice)
            before, _, after = sentence.partition("{}")
            text = dice.choice(questions.split("|"))
            asked = Question(text, (), "high" if kind in HIGH else "low", None, "fact")
            at = dice.randrange(len(pieces) + 1)
            pieces[at:at] = [plain(before.strip()), (value, (asked,)), plain(after.strip())]
        sheet.paragraph(pieces, indent)
        sheet.skip(dice.choice((0.0, 1.0, 1.0)) if not indent else 0.3)


def letterhead(sheet: Sheet, desk: Desk, asked: bool = True) -> bool:
    """The company, its address and its phone, centered or at one side; returns whether an address was printed."""
    dice, name = sheet.dice, words.company(sheet.dice)
    align = dice.choice(("c", "c", "l", "r"))
    shown = name.upper() if dice.chance(0.5) else name
    big = sheet.letters(dice.uniform(1.1, 1.8), dice.chance(0.5), sheet.look.head)
    sheet.line((shown, desk.ask("company") if asked else ()), letters=big, align=align)
    small = sheet.letters(0.8, name=sheet.look.head)
    addressed = dice.chance(0.7)
    if addressed:
        where = (words.street(dice), desk.ask("street") if asked and dice.chance(0.5) else ())
        town = f", {words.city(dice)}, {words.state(dice)} {KINDS['zip'](dice)}"
        sheet.line(where, plain(town), letters=small, align=align)
    if dice.chance(0.5):
        lead, number = dice.choice(("Telephone ", "Phone: ", "Tel. ")), words.phone(dice)
        sheet.line(plain(lead), (number, desk.ask("phone") if asked else ()), letters=small, align=align)
    if dice.chance(0.3):
        sheet.rule(dice.choice((1, 2)))
    sheet.skip(dice.uniform(0.5, 2))
    return addressed


def _block(sheet: Sheet, desk: Desk, receiver: str, asked: bool) -> None:
    """The address of the receiver; ``asked``: it is the only address, so that its town can be asked for."""
    dice = sheet.dice
    sheet.line((receiver, desk.ask("addressee")))
    if dice.chance(0.5):
        role = dice.pick(words.ROLES, "words")
        sheet.line((role, desk.ask("role", receiver)))
    if dice.chance(0.7):
        sheet.line(plain(words.company(dice)))
    sheet.line(plain(words.street(dice)))
    town, code = words.city(dice), KINDS["zip"](dice)
    sheet.line(
        (town, desk.ask("city") if asked else ()),
        plain(f", {words.state(dice)} "),
        (code, desk.ask("zip") if asked else ()),
    )
    sheet.skip()


def _signature(sheet: Sheet, desk: Desk, sender: str, at: float) -> None:
    """Closing, a scribbled signature, the name and the position."""
    dice = sheet.dice
    sheet.line(plain(dice.choice(CLOSINGS)), at=at)
    x, y = sheet.left + at * (sheet.right - sheet.left), sheet.y
    points = [(x + 9 * i, y + sheet.step * dice.uniform(0.2, 1.8)) for i in range(dice.randint(8, 18))]
    sheet.pen.line(points, fill=255, width=2, joint="curve")
    sheet.skip(2.3)
    sheet.line((sender, desk.ask("sender")), at=at)
    if dice.chance(0.6):
        sheet.line((dice.pick(words.ROLES, "words"), desk.ask("role", sender)), at=at)


def letter(sheet: Sheet, desk: Desk) -> None:
    """A letter of one page."""
    dice = sheet.dice
    headed = dice.chance(0.8) and letterhead(sheet, desk)
    at = dice.choice((0.0, 0.0, 0.5, 0.55))
    day = (words.date(dice), desk.ask("date"))
    sheet.line(day, at=at if dice.chance(0.6) else 0.0, align=dice.choice(("l", "l", "c", "r")))
    sheet.skip(dice.uniform(0.5, 1.5))
    if dice.chance(0.15):
        sheet.line(plain(dice.choice(("File: ", "Our ref. ", "Re file "))), (words.code(dice), desk.ask("reference")))
    receiver, sender = words.person(dice), words.person(dice)
    _block(sheet, desk, receiver, not headed)
    if dice.chance(0.45):
        lead = dice.choice(("Re: ", "RE: ", "Subject: ", "SUBJECT:  "))
        sheet.line(plain(lead), (words.topic(dice), desk.ask("subject")), at=dice.choice((0.0, 0.0, 0.2)))
        sheet.skip()
    sheet.line(plain(dice.choice(GREETINGS).format(receiver)))
    sheet.skip(0.7)
    body(sheet, dice.randint(2, 6), dice.randint(2, 5))
    if sheet.y + 7 * sheet.step < sheet.bottom:
        _signature(sheet, desk, sender, at)
    if sheet.y + 3 * sheet.step < sheet.bottom and dice.chance(0.5):
        sheet.skip()
        sheet.line(plain("cc: "), (words.person(dice), desk.ask("copy")))


def memo(sheet: Sheet, desk: Desk) -> None:
    """A memo: labels with their values, then text."""
    dice = sheet.dice
    if dice.chance(0.5):
        letterhead(sheet, desk)
    heading = dice.choice(MEMOS)
    letters = sheet.letters(dice.uniform(1.0, 1.5), dice.chance(0.6), sheet.look.head)
    sheet.line((heading, desk.ask("kind")), letters=letters, align=dice.choice(("c", "l")))
    sheet.skip()
    capital, colon = dice.chance(0.7), dice.choice((":", ":", ""))
    rows = [("To", words.person(dice), "to"), ("From", words.person(dice), "from"), ("Date", words.date(dice), "date")]
    rows.append((dice.choice(("Subject", "Re")), words.topic(dice), "subject"))
    if dice.chance(0.4):
        rows.insert(dice.randint(1, 3), ("cc" if dice.chance(0.5) else "Copies", words.person(dice), "copy"))
    if dice.chance(0.3):
        dice.shuffle(rows)
    tab, gap = dice.choice((0.12, 0.16, 0.2)), dice.choice((0.0, 0.4, 0.8))
    for label, value, field in rows:
        shown = label.upper() if capital else label
        y = sheet.y
        sheet.line(plain(shown + colon))
        sheet.y = y
        sheet.line((value, desk.ask(field)), at=tab)
        sheet.skip(gap)
    if dice.chance(0.4):
        sheet.rule()
    sheet.skip()
    body(sheet, dice.randint(2, 7), dice.randint(2, 6))
    if dice.chance(0.3) and not sheet.full:
        sheet.line(plain(f"{capitals(dice, 3)}/{capitals(dice, 2).lower()}"))


def fax(sheet: Sheet, desk: Desk) -> None:
    """The cover sheet of a fax."""
    dice = sheet.dice
    if dice.chance(0.6):
        letterhead(sheet, desk, asked=False)
    sheet.line((dice.choice(FAXES), desk.ask("kind")), letters=sheet.letters(1.7, True, sheet.look.head), align="c")
    sheet.skip()
    rows = [
        ("To", words.person(dice), desk.ask("to")),
        ("Company", words.company(dice), desk.ask("label", "Company")),
        ("Fax", words.phone(dice), desk.ask("fax")),
        ("From", words.person(dice), desk.ask("from")),
        ("Phone", words.phone(dice), desk.ask("phone")),
        ("Date", words.date(dice), desk.ask("date")),
        ("Pages", str(dice.randint(1, 40)), desk.ask("pages")),
    ]
    boxed, tab = dice.chance(0.5), dice.choice((0.16, 0.22))
    for label, value, questions in rows:
        y = sheet.y
        sheet.line(plain(f"{label}:"), letters=sheet.letters(1.0, name=sheet.look.printed))
        sheet.y = y
        written(sheet, sheet.left + tab * (sheet.right - sheet.left), y, (value, questions))
        sheet.y = y + sheet.step * 1.7
        if boxed:
            sheet.rule(y=sheet.y - 0.4 * sheet.step)
    sheet.skip()
    body(sheet, dice.randint(1, 2), dice.randint(0, 2))


def written(sheet: Sheet, x: float, y: float, piece: Piece) -> float:
    """Print a value in the body's type, or by hand where the document is filled in by hand; returns where it ends."""
    look, text = sheet.look, piece[0]
    if not look.hand:
        return sheet.put(x, y, text, sheet.letters(), piece[1], text)
    letters = sheet.letters(sheet.dice.uniform(1.3, 1.6), name=look.hand)
    while x + letters.width(text) > sheet.right + 20 and letters.size > 12:
        letters = sheet.letters(0.9 * letters.size / look.point, name=look.hand)
    return sheet.put(x, y - 0.3 * (letters.size - look.point), text, letters, piece[1], text)
