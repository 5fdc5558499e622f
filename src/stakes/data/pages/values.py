"""What stands in a field: numbers from large spaces and made-up names that no one can guess.

High-stakes values (amounts, dates, identifiers, phones, rates, counts) come first; a low-stakes value (a name, a
place, a thing) is then built to the length of a random high-stakes one, so that the tiers differ in what a
mistake costs and not in how much there is to read.

    money(dice) -> "$4,128.05"      person(dice, 11) -> "Maria Halton"
"""

from collections.abc import Callable

from stakes.data.pages.dice import Dice, Pool, pool
from stakes.data.pages.names import name

High = Callable[[Dice], str]
Low = Callable[[Dice, int], str]

FIRST = pool(
    "Maria|James|Linda|Omar|Chen|Ana|Peter|Yusuf|Greta|Ivan|Nadia|Tomas|Helen|Raj|Sofia|Marco|Elena|Hugo|Iris|Paul|Rosa"
    "|Victor|Wendy|Oscar|Julia|Karl|Nina|Felix|Diana|Simon|Clara|Bruno|Amir|Lucy|Ravi|Emma|Ada|Leo|Kim|Max"
    "||Nora|Jonas|Stella|Edgar|Vera|Milo|Tara|Otto|Ines"
)
FIRMS = pool("Ltd|Inc|Group|Co|LLC|Corp|Works|Labs|Foods|Bros||Mills|Partners")
NOUNS = pool(
    "Report|Audit|Review|Plan|Survey|Order|Repair|Lease|Study|Brief|Design|Trial|Permit|Claim|Valve|Cable|Pump|Chair"
    "|Lamp|Filter|Panel|Motor|Sensor|Bolt|Hinge|Shelf|Cart|Drill|Bench|Meter||Notice|Budget|Ladder|Switch|Gate"
)
ROADS = pool("Street|Road|Lane|Avenue|Drive|Way|Court||Square|Place")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
LONG_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October")


def digits(dice: Dice, count: int) -> str:
    """A number of exactly ``count`` digits that does not start with zero."""
    return str(dice.randrange(10 ** (count - 1), 10**count))


def letters(dice: Dice, count: int) -> str:
    """Capital letters, without I and O, which no one can tell from digits in print."""
    return "".join(dice.choices("ABCDEFGHJKLMNPQRSTUVWXYZ", k=count))


def money(dice: Dice) -> str:
    """An amount: three to six digits before the point."""
    amount = 10 ** dice.uniform(2.3, 5.4)
    sign = "$" if dice.chance(0.7) else ""
    return f"{sign}{amount:,.2f}" if dice.chance(0.7) else f"{sign}{amount * 10:,.0f}"


def price(dice: Dice) -> str:
    """A small amount, without a sign."""
    return f"{10 ** dice.uniform(1.0, 3.99):,.2f}"


def date(dice: Dice) -> str:
    """A day between 1950 and 2035 in one of six notations."""
    year, month, day = dice.randint(1950, 2035), dice.randint(1, 12), dice.randint(1, 28)
    style = dice.randrange(6)
    if style == 0:
        return f"{year}-{month:02d}-{day:02d}"
    if style == 1:
        return f"{month:02d}/{day:02d}/{year}"
    if style == 2:
        return f"{day} {MONTHS[month - 1]} {year}"
    if style == 3:
        return f"{MONTHS[month - 1]} {day}, {year}"
    if style == 4:
        return f"{month}-{day}-{year % 100:02d}"
    return f"{LONG_MONTHS[month % 10]} {day}, {year}"


def ident(dice: Dice) -> str:
    """A record identifier: five to nine letters and digits."""
    style = dice.randrange(5)
    if style == 0:
        return f"{letters(dice, 2)}-{digits(dice, dice.randint(4, 6))}"
    if style == 1:
        return f"{letters(dice, 1)}{digits(dice, 6)}"
    if style == 2:
        return digits(dice, dice.randint(5, 8))
    if style == 3:
        return f"{digits(dice, 4)}-{digits(dice, dice.randint(2, 4))}"
    return f"{letters(dice, 2)}{digits(dice, 2)}-{digits(dice, 4)}"


def phone(dice: Dice) -> str:
    """Ten digits in one of three notations."""
    a, b, c = digits(dice, 3), digits(dice, 3), digits(dice, 4)
    return dice.choice((f"({a}) {b}-{c}", f"{a}-{b}-{c}", f"{a} {b} {c}"))


def postal(dice: Dice) -> str:
    """A five-digit postal code, sometimes with its four-digit tail."""
    return digits(dice, 5) if dice.chance(0.6) else f"{digits(dice, 5)}-{digits(dice, 4)}"


def percent(dice: Dice) -> str:
    """A rate between 1 and 99 percent, with one or two decimals."""
    return f"{dice.uniform(1, 99):.{dice.randint(1, 2)}f}%"


def count(dice: Dice) -> str:
    """Three to six digits, grouped."""
    return f"{int(10 ** dice.uniform(2.3, 5.7)):,}"


def weight(dice: Dice) -> str:
    """A measured quantity with its unit."""
    return f"{dice.uniform(10, 999):.1f} {dice.choice(('kg', 'lb', 'm', 'km'))}"


def clock(dice: Dice) -> str:
    """A time of day."""
    hour, minute = dice.randint(1, 12), dice.randrange(60)
    return f"{hour}:{minute:02d} {dice.choice(('AM', 'PM', 'a.m.', 'p.m.'))}"


# As often as forms print them: the lengths of low-stakes values follow this mixture.
FAIR: tuple[High, ...] = (
    money,
    money,
    money,
    ident,
    ident,
    ident,
    date,
    date,
    date,
    phone,
    postal,
    percent,
    count,
    weight,
)


def fair_length(dice: Dice) -> int:
    """The length of a random high-stakes value."""
    return len(dice.choice(FAIR)(dice))


def _piece(dice: Dice, choices: Pool[str]) -> str:
    """One of a few words; in training one in five is made up, so that unseen ones are read and not guessed."""
    if dice.training and dice.chance(0.2):
        return name(dice, dice.randint(3, 8)).capitalize()
    return dice.pick(choices, "words")


def word(dice: Dice, length: int) -> str:
    """A capitalised made-up word, or two where one would be too long to be a name."""
    if length >= 10 or (length >= 8 and dice.chance(0.3)):
        cut = dice.randint(3, length - 5)
        return f"{name(dice, cut).capitalize()} {name(dice, length - cut - 1).capitalize()}"
    return name(dice, length).capitalize()


def person(dice: Dice, length: int) -> str:
    """A first name, or an initial, and a made-up surname."""
    if length >= 8 and dice.chance(0.75):
        first = _piece(dice, FIRST)
        if len(first) <= length - 4:
            return f"{first} {name(dice, length - len(first) - 1).capitalize()}"
    if length >= 6:
        return f"{letters(dice, 1)}. {name(dice, length - 3).capitalize()}"
    return name(dice, length).capitalize()


def company(dice: Dice, length: int) -> str:
    """A made-up name, with a legal form where it fits."""
    firm = _piece(dice, FIRMS)
    return f"{word(dice, length - len(firm) - 1)} {firm}" if length >= len(firm) + 5 else word(dice, length)


def thing(dice: Dice, length: int) -> str:
    """A made-up name with a noun after it where it fits."""
    noun = _piece(dice, NOUNS)
    return f"{word(dice, length - len(noun) - 1)} {noun}" if length >= len(noun) + 5 else word(dice, length)


def road(dice: Dice, length: int) -> str:
    """A street name."""
    kind = _piece(dice, ROADS)
    return f"{word(dice, length - len(kind) - 1)} {kind}" if length >= len(kind) + 4 else word(dice, length)


def place(dice: Dice, length: int) -> str:
    """A made-up town."""
    return word(dice, length)


def locator(dice: Dice, length: int) -> str:
    """Where something is found in a document or a building: low stakes, though it has digits."""
    if length >= 8:
        head = dice.choice(("Room", "Section", "Annex", "Block", "Shelf", "Wing"))
        return f"{head} {digits(dice, 2)}{dice.choice('ABCDEF-.')}{digits(dice, max(1, length - len(head) - 4))}"
    return f"{dice.choice('ABCDEFGH')}-{digits(dice, max(2, min(4, length - 2)))}"


def hour(dice: Dice, _length: int) -> str:
    """A time in a schedule: low stakes; its length is its own."""
    return clock(dice)
