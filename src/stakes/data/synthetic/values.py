"""The values on pages: numbers from large ranges and made-up names, so that no answer can be guessed.

High-tier values (amounts, dates, identifiers, phones, rates, counts) draw their own length. A low-tier value (a name, a
place, a thing) is built to the length of a random high-tier one, so that the tiers differ in the cost of a mistake and
not in how much there is to read.

    money(dice) -> "$4,128.05"      person(dice, 11) -> "Maria Halton"      fair(person)(dice) -> "R. Snougla"

Half of the names are put together from pieces of real names and half from random syllables ("hartley", "snougla").
Syllables alone made the low tier twice as hard to read at full size as the high one, because letters are more easily
confused than digits; familiar pieces alone could be guessed from a blur. At full size the mixture does not quite
balance the tiers (error 0.057 low, 0.032 high). A reader trained on these pieces alone learns the pieces: on test forms
with unseen ones it misread 28 values in 100, on those with nothing new 5. So 40 % of training names are random letters.
"""

from collections.abc import Callable
from functools import cache

from stakes.data.synthetic.dice import Dice, Pool, pool

Value = Callable[[Dice], str]
"""Draws a value."""
Sized = Callable[[Dice, int], str]
"""Draws a value of about this length."""

ONSETS = pool(
    "b|br|c|cr|d|dr|f|fl|g|gr|h|j|k|kl|l|m|n|p|pl|pr|r|s|sk|sl|st|t|tr|v|w|z|th|sh|ch|bl|sp|m|n|r|l|t|s||gl|sw|fr|y|cl|sn"
)
VOWELS = pool("a|e|i|o|u|a|e|i|o|ai|ea|ou|ee|io|ar|or|an|en||oa|ie|un|il")
STEMS = pool(
    "al|an|ash|bak|bar|bel|ben|berg|black|bow|brad|bran|brook|burn|cal|cam|car|cas|chan|clar|col|coop|cor|craw|dal|dan|dav"
    "|del|dix|don|dun|ed|el|em|ester|fair|fen|fer|fin|fish|flet|ford|fos|frank|gal|gar|gib|gil|glen|gold|gor|grant|gray|green"
    "|ham|han|har|hart|hay|hen|her|hill|hol|hud|hunt|jack|jen|jon|kel|ken|kim|kings|kirk|lam|lan|law|lin|lock|lor|lud|mal|mar"
    "|mas|mel|mil|mon|mor|nel|new|nor|oak|ol|par|pat|pem|per|pet|pol|por|quin|rad|ram|red|rich|rob|rock|ros|row|rus|sal|sam"
    "|san|sel|shel|sher|sim|stan|ster|stone|sut|tan|tay|ten|thorn|tor|tur|val|ver|vin|wal|war|wat|web|wel|west|whit|wil|win"
    "|wood|york||bris|dor|fal|hex|lex|nas|pres|rip|som|tal|ul|wes"
)
ENDINGS = pool(
    "a|ah|ard|bert|borough|bury|by|cott|dale|den|don|dorf|e|ell|en|er|es|ett|ey|field|ford|gate|ham|hurst|ia|ick|in|ing|is"
    "|land|ler|let|ley|lin|ling|lock|low|ly|man|mann|mer|mont|more|mouth|nell|ner|ney|nor|o|on|or|over|port|ridge|ro|ron|sen"
    "|ser|shaw|sby|ser|side|son|stad|stead|ster|stock|ston|ter|ton|van|vell|ven|ville|ward|way|well|wick|wood|worth|y"
    "||bourne|combe|croft|kirk|moor|nick|rell|sey|thorpe"
)
SHORT = tuple("ada ash bay cox day eck fox hay ives kay lee lowe moss nash orr page".split())
FAMILIAR_SHARE = 0.5
RANDOM_SHARE = 0.4  # of training names
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LETTER_WEIGHTS = tuple(3 if letter in "aeiou" else 2 if letter in "lnrst" else 1 for letter in LETTERS)


@cache
def _joined(length: int, novel: bool) -> tuple[str, ...]:
    """All stems, and stems with endings, of this length; ``novel`` adds the unseen pieces."""
    stems = STEMS.seen + (STEMS.unseen if novel else ())
    endings = ENDINGS.seen + (ENDINGS.unseen if novel else ())
    found = {s for s in (*stems, *SHORT) if len(s) == length}
    found |= {s + e for s in stems for e in endings if len(s) + len(e) == length and s[-1] != e[0]}
    return tuple(sorted(found))


def syllables(dice: Dice, length: int) -> str:
    """A pronounceable lower-case word of exactly this length."""
    text = dice.choice("aeiou") if dice.chance(0.15) else ""
    while len(text) < length:
        text += dice.pick(ONSETS, "words") + dice.pick(VOWELS, "words")
    return text[:length]


def name(dice: Dice, length: int) -> str:
    """A lower-case name of exactly this length: pieces of real names where any fit, or syllables."""
    if dice.training and dice.chance(RANDOM_SHARE):
        return "".join(dice.choices(LETTERS, LETTER_WEIGHTS, k=length))
    joined = _joined(length, "words" in dice.novel)
    return dice.choice(joined) if joined and dice.chance(FAMILIAR_SHARE) else syllables(dice, length)


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
LONG_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def _has_extra_format(dice: Dice, kind: str) -> bool:
    return dice.training and kind in dice.extras.formats and dice.chance(0.3)


def digits(dice: Dice, count: int) -> str:
    """A number of exactly ``count`` digits that does not start with zero."""
    return str(dice.randrange(10 ** (count - 1), 10**count))


def letters(dice: Dice, count: int) -> str:
    """Capital letters, without I and O, which look like digits in print."""
    return "".join(dice.choices("ABCDEFGHJKLMNPQRSTUVWXYZ", k=count))


def money(dice: Dice) -> str:
    """An amount: three to six digits before the point."""
    if _has_extra_format(dice, "money"):
        return dice.extras.formats["money"](dice)
    amount = 10 ** dice.uniform(2.3, 5.4)
    sign = "$" if dice.chance(0.7) else ""
    return f"{sign}{amount:,.2f}" if dice.chance(0.7) else f"{sign}{amount * 10:,.0f}"


def price(dice: Dice) -> str:
    """A small amount, without a sign."""
    return f"{10 ** dice.uniform(1.0, 3.99):,.2f}"


def date(dice: Dice) -> str:
    """A day between 1950 and 2035 in one of six notations."""
    if _has_extra_format(dice, "date"):
        return dice.extras.formats["date"](dice)
    year, month, day = dice.randint(1950, 2035), dice.randint(1, 12), dice.randint(1, 28)
    return (
        f"{year}-{month:02d}-{day:02d}",
        f"{month:02d}/{day:02d}/{year}",
        f"{day} {MONTHS[month - 1]} {year}",
        f"{MONTHS[month - 1]} {day}, {year}",
        f"{month}-{day}-{year % 100:02d}",
        f"{LONG_MONTHS[month % 10]} {day}, {year}",  # never November or December: as the reader was trained
    )[dice.randrange(6)]


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


# In the proportions of forms: the lengths of low-tier values follow this mixture.
FAIR: tuple[Value, ...] = (money,) * 3 + (ident,) * 3 + (date,) * 3 + (phone, postal, percent, count, weight)


def fair(build: Sized, most: int = 99, extra: int = 0) -> Value:
    """A low-tier value as long as a random high-tier one plus ``extra`` characters, at most ``most``."""
    return lambda dice: build(dice, min(most, len(dice.choice(FAIR)(dice)) + extra))


def _piece(dice: Dice, choices: Pool[str]) -> str:
    """One of a few words; in training one in five is made up, so that unseen ones are read and not guessed."""
    if dice.training and dice.chance(0.2):
        return name(dice, dice.randint(3, 8)).capitalize()
    return dice.pick(choices, "words")


def word(dice: Dice, length: int) -> str:
    """A capitalized made-up word, or two where one would be too long for a name."""
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


def _with_suffix(dice: Dice, length: int, suffixes: Pool[str], shortest: int) -> str:
    """A made-up word, with a suffix where that leaves ``shortest`` characters for the word."""
    suffix = _piece(dice, suffixes)
    rest = length - len(suffix) - 1
    return f"{word(dice, rest)} {suffix}" if rest >= shortest else word(dice, length)


def company(dice: Dice, length: int) -> str:
    """A made-up name with a legal form."""
    return _with_suffix(dice, length, FIRMS, 4)


def thing(dice: Dice, length: int) -> str:
    """A made-up name with a noun."""
    return _with_suffix(dice, length, NOUNS, 4)


def road(dice: Dice, length: int) -> str:
    """A street name."""
    return _with_suffix(dice, length, ROADS, 3)


def locator(dice: Dice, length: int) -> str:
    """A position in a document or a building: low tier, though it has digits."""
    if length >= 8:
        head = dice.choice(("Room", "Section", "Annex", "Block", "Shelf", "Wing"))
        return f"{head} {digits(dice, 2)}{dice.choice('ABCDEF-.')}{digits(dice, max(1, length - len(head) - 4))}"
    return f"{dice.choice('ABCDEFGH')}-{digits(dice, max(2, min(4, length - 2)))}"


def hour(dice: Dice, _length: int) -> str:
    """A time in a schedule: low tier; its length does not vary."""
    return f"{dice.randint(1, 12)}:{dice.randrange(60):02d} {dice.choice(('AM', 'PM', 'a.m.', 'p.m.'))}"
