"""The columns that tables can have: headings, tiers, values, and how a cell is asked for by its row.

No heading is also the label of a field, so that "What is the town?" never means a column.
"""

from dataclasses import dataclass

from stakes.data.pages import values as v
from stakes.data.pages.dice import Dice

LONGEST = 13  # characters of a cell


@dataclass(frozen=True)
class Column:
    """One column: its heading, its tier, how its cells are drawn, and how they are asked for ({row})."""

    field: str
    heading: str
    tier: str
    high: v.High | None
    low: v.Low | None
    loud: str
    plain: str

    def draw(self, dice: Dice) -> str:
        """The text of one cell."""
        if self.high is not None:
            return self.high(dice)
        assert self.low is not None
        return self.low(dice, min(LONGEST, v.fair_length(dice)))


def _high(field: str, heading: str, value: v.High, loud: str, plain: str = "") -> Column:
    return Column("cell_" + field, heading, "high", value, None, loud, plain)


def _low(field: str, heading: str, words: v.Low, plain: str, loud: str = "") -> Column:
    return Column("cell_" + field, heading, "low", None, words, loud, plain)


PRICE = _high(
    "price",
    "Price",
    v.price,
    "What is the price of {row}?|How much is one {row}?",
    "What does {row} sell for?||What is charged for {row}?",
)
AMOUNT = _high(
    "amount",
    "Amount",
    v.money,
    "What is the amount for {row}?|How much is {row}?",
    "What was paid for {row}?|What is paid for {row}?",
)
QTY = _high("qty", "Qty", v.count, "What is the quantity of {row}?|How many {row}?", "What is the qty of {row}?")
PART = _high(
    "part",
    "Part No.",
    v.ident,
    "What is the part number of {row}?|What is the part no. of {row}?||Give the part number of {row}.",
    "What is the part # of {row}?",
)
ORIGIN = _low(
    "origin", "Origin", v.place, "What is the origin of {row}?|Where is {row} from?||Give the origin of {row}."
)
MAKER = _low("maker", "Maker", v.company, "Who is the maker of {row}?|Who made {row}?||Which maker made {row}?")
TEL = _high(
    "tel",
    "Tel.",
    v.phone,
    "What is the phone number of {row}?|What is the phone of {row}?",
    "What is the tel. of {row}?",
)
SALARY = _high(
    "salary",
    "Salary",
    v.money,
    "How much is the salary of {row}?|What amount is paid to {row}?",
    "What is the salary of {row}?||What salary has {row}?",
)
HIRED = _high(
    "hired", "Hired", v.date, "When was {row} hired?|What is the hire date of {row}?", "What day was {row} hired?"
)
TEAM = _low("team", "Team", v.thing, "What is the team of {row}?|Which team is {row} in?||What team is {row} in?")
PLACE = _low("place", "Place", v.place, "What is the place of {row}?|Which place is {row} in?||What place is {row} in?")
BOSS = _low("boss", "Reports To", v.person, "Who does {row} report to?|Who is the boss of {row}?")
PAID = _high("paid", "Date", v.date, "What is the date of {row}?|When was {row} paid?", "What day was {row} paid?")
CHECK = _high(
    "check",
    "Check No.",
    v.ident,
    "What is the check number of {row}?|What is the check no. of {row}?",
    "What is the check # of {row}?",
)
PURPOSE = _low(
    "purpose", "Purpose", v.thing, "What is the purpose of {row}?|What was {row} for?||Give the purpose of {row}."
)
AGENT = _low("agent", "Agent", v.person, "Who is the agent of {row}?|Who is the agent for {row}?||Who acts for {row}?")
SPEAKER = _low(
    "speaker", "Speaker", v.person, "Who is the speaker on {row}?|Who speaks on {row}?||Name the speaker on {row}."
)
HALL = _low(
    "hall", "Room", v.locator, "Which room is {row} in?|What is the room of {row}?", "What is the room number of {row}?"
)
CLOCK = _low("clock", "Time", v.hour, "What hour is {row}?", "What is the time of {row}?|When is {row}?")
SEATS = _high(
    "seats",
    "Seats",
    v.count,
    "How many seats has {row}?|What is the number of seats of {row}?",
    "What are the seats of {row}?",
)
COST = _high("cost", "Cost", v.money, "What is the cost of {row}?|How much is {row}?", "What was spent on {row}?")
FILE = _high(
    "file",
    "File No.",
    v.ident,
    "What is the file number of {row}?|What is the file no. of {row}?",
    "What is the file # of {row}?",
)

# name: (heading of the rows, how rows are named, columns to choose from)
KINDS: dict[str, tuple[tuple[str, ...], v.Low, tuple[Column, ...]]] = {
    "goods": (("Item", "Description", "Article"), v.thing, (PRICE, AMOUNT, QTY, PART, ORIGIN, MAKER)),
    "staff": (("Name", "Employee", "Member"), v.person, (TEL, SALARY, HIRED, TEAM, PLACE, BOSS)),
    "payments": (("Payee", "Creditor", "Firm"), v.company, (AMOUNT, PAID, CHECK, PURPOSE, AGENT, PLACE)),
    "schedule": (("Session", "Talk", "Lecture"), v.thing, (CLOCK, SPEAKER, HALL, SEATS, COST, FILE)),
}
THEMES = {
    "i": ("goods", "goods", "payments"),
    "l": ("schedule", "staff", "payments", "years"),
    "r": ("years", "schedule", "staff"),
    "a": ("staff", "payments"),
    "c": ("payments", "goods", "years"),
}
