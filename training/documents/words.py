"""Names, values and sentences of office documents, put together from common words.

    person(dice)          # "Carol T. Hasden"
    sentence(dice)        # "The office will review the draft of the annual budget before the next meeting."

No list follows a data set. In training many names are random letters, so that they are read and not guessed.
"""

from stakes.data.synthetic.dice import Dice, pool
from stakes.data.synthetic.values import LONG_MONTHS, MONTHS, digits, letters, name

LONGEST = 38  # characters of an answer

FIRST = pool(
    "James|Robert|John|William|Richard|Thomas|Charles|Daniel|Paul|Mark|George|Kenneth|Steven|Edward|Frank|Walter|Henry"
    "|Mary|Patricia|Linda|Barbara|Susan|Karen|Nancy|Carol|Ruth|Sharon|Helen|Laura|Alice|Joan|Diane|Janet|Martha|Ellen"
    "||Arthur|Louise|Gerald|Marion"
)
LAST = pool(
    "Smith|Johnson|Brown|Davis|Miller|Wilson|Moore|Taylor|Anderson|Thomas|Jackson|White|Harris|Martin|Clark|Lewis|Walker"
    "|Hall|Allen|Young|King|Wright|Scott|Green|Baker|Adams|Nelson|Carter|Mitchell|Roberts|Turner|Phillips|Campbell|Parker"
    "||Edwards|Collins|Stewart|Morris"
)
ROLES = pool(
    "President|Vice President|Director|Manager|Secretary|Treasurer|Chairman|Professor|Editor|Assistant Director|Counsel"
    "|General Manager|Sales Manager|Research Director|Controller|Project Leader|Coordinator|Supervisor|Senior Scientist"
    "|Executive Director|Plant Manager|Consultant|Attorney|Chief Engineer|Account Executive|Librarian|Auditor"
    "||Deputy Director|Technical Manager|Program Officer"
)
TOPICS = pool(
    "annual budget|marketing plan|research project|product test|field survey|sales meeting|training program"
    "|safety review|new contract|packing line|storage building|water supply|quality control|travel policy"
    "|press release|pilot plant"
    "|computer system|consumer study|advertising program|insurance claim|price list|annual report|equipment lease"
    "|laboratory work|filter design|mailing list|staff conference|patent application|plant visit|summer workshop"
    "||inventory count|opinion poll|delivery schedule"
)
THINGS = pool(
    "paper|steel|sugar|cotton|glass|copper|coffee|rubber|timber|corn|wheat|oil|coal|soap|paint|leather|wool|cement|milk|fish"
    "|salt|fruit|flour|plastic|cloth|brick|gas|seed|feed|film||zinc|resin|rice"
)
ACTIONS = pool(
    "review|approve|prepare|discuss|complete|support|examine|describe|send|check|revise|finish|collect|compare|present"
    "||confirm|summarize"
)
BODIES = pool(
    "Company|Corporation|Institute|Association|Council|Foundation|University|Laboratories|Industries|Associates|Society"
    "|Bureau|Agency|Department|Committee|Group|Research Center|Division||Board|Trust"
)
FIELDS = pool(
    "Research|Marketing|Chemical|Public|National|Medical|General|United|American|Central|Western|Technical|Agricultural"
    "|Industrial|Environmental|Engineering|Financial|Science||Northern|Federal"
)
SENTENCES = pool(
    "The office will {do} the {topic} before the next meeting|We would like to {do} the {topic} with your staff"
    "|Please {do} the enclosed copy of the {topic} and return it to us|As you know, the {topic} has been delayed again"
    "|Several members asked that we {do} the {topic} as soon as possible"
    "|The results of the {topic} were better than expected"
    "|I have asked the department to {do} the {topic}|It was agreed that the {topic} should not be changed this year"
    "|This material is sent for your information only|The samples of {thing} were stored at room temperature"
    "|Prices of {thing} and {thing} have been rising since last spring|No further action is needed at this time"
    "|Thank you for your help with the {topic}|Our records do not show that the {topic} was ever paid for"
    "|The use of {thing} in the {topic} is still under study|We look forward to hearing from you"
    "|A copy of the {topic} is attached|The tests show that {thing} can be replaced by {thing} without loss of quality"
    "|If you have any questions, please call me at any time"
    "|The group plans to {do} and {do} the {topic} during the summer"
    "||We regret that the {topic} cannot be sent by mail|Everyone should {do} the {topic} with care"
)
ROADS = pool("Street|Avenue|Road|Drive|Boulevard|Lane|Parkway|Building|Plaza||Court|Terrace")


def shaped(dice: Dice, text: str) -> str:
    """The text in title case or in capitals."""
    return text.upper() if dice.chance(0.4) else text.title()


def word(dice: Dice) -> str:
    """A made-up name."""
    return name(dice, dice.randint(4, 9)).capitalize()


def surname(dice: Dice) -> str:
    """A common or a made-up surname."""
    return dice.pick(LAST, "words") if dice.chance(0.4) else word(dice)


def person(dice: Dice) -> str:
    """A name with initials, a first name or a title."""
    first = dice.pick(FIRST, "words") if dice.chance(0.75) else word(dice)
    style, initial, last = dice.randrange(8), letters(dice, 1), surname(dice)
    if style <= 1:
        return f"{first[0]}. {initial}. {last}"
    if style == 2:
        return f"{dice.choice(('Mr.', 'Mrs.', 'Dr.', 'Ms.'))} {first} {last}"
    if style == 3:
        return f"{first} {initial}. {last}"
    if style == 4:
        return f"{first} {last}, {dice.choice(('Jr.', 'Ph.D.', 'M.D.', 'Esq.', 'III'))}"
    return f"{first[0]}. {last}" if style == 5 else f"{first} {last}"


def company(dice: Dice) -> str:
    """The name of a company, an institute or an agency."""
    style, body = dice.randrange(6), dice.pick(BODIES, "words")
    if style == 0:
        text = f"{dice.pick(FIELDS, 'words')} {dice.pick(FIELDS, 'words')} {body}"
    elif style == 1:
        text = f"{surname(dice)}, {surname(dice)} & {surname(dice)}"
    elif style == 2:
        text = f"{word(dice)} {dice.choice(('Inc.', 'Corp.', 'Co.', 'Ltd.', 'Company, Inc.'))}"
    else:
        text = f"{word(dice)} {dice.pick(FIELDS, 'words')} {body}"
    return text[:LONGEST].strip()


def street(dice: Dice) -> str:
    """A street with its number, or a box."""
    if dice.chance(0.15):
        return f"P.O. Box {digits(dice, dice.randint(2, 5))}"
    return f"{digits(dice, dice.randint(1, 4))} {word(dice)} {dice.pick(ROADS, 'words')}"


def city(dice: Dice) -> str:
    """A made-up town."""
    style, text = dice.randrange(5), word(dice)
    if style == 0:
        return f"{dice.choice(('New', 'Fort', 'St.', 'North', 'Lake', 'West'))} {text}"
    return f"{text} {dice.choice(('City', 'Falls', 'Park', 'Springs'))}" if style == 1 else text


def state(dice: Dice) -> str:
    """Two letters."""
    return letters(dice, 2)


def phone(dice: Dice) -> str:
    """A phone number."""
    area, first, last = digits(dice, 3), digits(dice, 3), digits(dice, 4)
    return dice.choice(
        (f"({area}) {first}-{last}", f"{area}-{first}-{last}", f"{area}/{first}-{last}", f"{first}-{last}")
    )


def date(dice: Dice) -> str:
    """A day between 1955 and 2003, month first more often than not."""
    year, month, day = dice.randint(1955, 2003), dice.randint(1, 12), dice.randint(1, 28)
    short, long = MONTHS[month - 1], LONG_MONTHS[month - 1]
    return dice.weighted(
        (
            f"{long} {day}, {year}",
            f"{month}/{day}/{year % 100:02d}",
            f"{month:02d}/{day:02d}/{year}",
            f"{short}. {day}, {year}",
            f"{day} {long} {year}",
            f"{month}-{day}-{year % 100:02d}",
            f"{long.upper()} {day}, {year}",
            f"{day}-{short}-{year % 100:02d}",
        ),
        (6, 3, 1.5, 1, 1, 1, 1, 0.7),
    )


def month(dice: Dice) -> str:
    """A month of a year; the last two are left out, as when the reader was trained."""
    return f"{dice.choice(LONG_MONTHS[:10])} {dice.randint(1955, 2003)}"


def money(dice: Dice) -> str:
    """An amount from a dollar to a few million."""
    amount = 10 ** dice.uniform(0.3, 6.2)
    return f"${amount:,.2f}" if amount < 20000 and dice.chance(0.6) else f"${max(1, round(amount)):,}"


def count(dice: Dice) -> str:
    """A whole number, mostly with separators."""
    number = round(10 ** dice.uniform(0.3, 5.5))
    return f"{number:,}" if dice.chance(0.7) else str(number)


def percent(dice: Dice) -> str:
    """A share."""
    share = dice.uniform(0.1, 99)
    return f"{share:.1f}%" if dice.chance(0.6) else f"{max(1, round(share))}%"


def code(dice: Dice) -> str:
    """A number or code of a form, an account or a file."""
    style = dice.randrange(6)
    if style <= 1:
        return digits(dice, dice.randint(3, 9))
    if style == 2:
        return f"{letters(dice, dice.randint(1, 3))}-{digits(dice, dice.randint(2, 5))}"
    if style == 3:
        return f"{digits(dice, dice.randint(2, 4))}-{digits(dice, dice.randint(2, 6))}"
    return (
        f"{letters(dice, 1)}{digits(dice, 4)}"
        if style == 4
        else f"{digits(dice, 2)}-{letters(dice, 2)}-{digits(dice, 3)}"
    )


def clock(dice: Dice) -> str:
    """A time of day."""
    hour, minute = dice.randint(1, 12), dice.choice((0, 0, 15, 30, 30, 45))
    return f"{hour}:{minute:02d} {dice.choice(('a.m.', 'p.m.', 'AM', 'PM'))}"


def topic(dice: Dice) -> str:
    """A subject in title case, sometimes with a made-up name."""
    text = dice.pick(TOPICS, "words").title()
    return f"{word(dice)} {text}" if dice.chance(0.4) else text


def sentence(dice: Dice) -> str:
    """A sentence that says nothing."""
    text = dice.pick(SENTENCES, "words")
    while "{" in text:
        lists = (("{do}", ACTIONS), ("{topic}", TOPICS), ("{thing}", THINGS))
        for mark, choices in lists:
            text = text.replace(mark, dice.pick(choices, "words"), 1)
    return text + "."
