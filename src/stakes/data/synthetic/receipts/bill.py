"""The amounts of a receipt, which add up, and the lines that print them: subtotal, tax, rounding, total, payment.

Exactly one line is the total to pay. Others are called totals too: before tax, before rounding, of the tax.
"""

from dataclasses import dataclass, replace

from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.receipts.countries import Country, price
from stakes.data.synthetic.receipts.lines import Line, pair, span
from stakes.data.synthetic.receipts.shops import goods
from stakes.data.synthetic.receipts.wording import Till
from stakes.data.synthetic.values import digits

Row = tuple[str, str, float]  # field ("": no question), label, amount


@dataclass(frozen=True)
class Article:
    """One article."""

    name: str
    quantity: int
    price: float
    discount: float  # of this line

    @property
    def amount(self) -> float:
        """The price of the line."""
        return round(self.quantity * self.price - self.discount, 2)


@dataclass(frozen=True)
class Bill:
    """All amounts of a receipt; ``total`` is what is to be paid."""

    articles: tuple[Article, ...]
    tax: str
    rate: float
    inclusive: bool
    subtotal: float
    discount: float
    service: float
    tax_amount: float
    unrounded: float
    total: float
    cash: float  # 0: paid by card

    @classmethod
    def draw(cls, dice: Dice, country: Country) -> "Bill":
        """A bill of one to fourteen articles."""
        count = dice.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 10, 14))
        articles = tuple(_article(dice, country, count > 3) for _ in range(count))
        subtotal = round(sum(one.amount for one in articles), 2)
        discount = round(subtotal * dice.choice((0.05, 0.1, 0.2)), 2) if dice.chance(0.1) else 0.0
        service = round((subtotal - discount) * 0.1, 2) if dice.chance(0.07) else 0.0
        base = subtotal - discount + service
        inclusive, rate = dice.chance(country.inclusive), dice.choice(country.rates)
        tax_amount = round(base * rate / (1 + rate), 2) if inclusive else round(base * rate, 2)
        unrounded = round(base if inclusive else base + tax_amount, 2)
        total = round(round(unrounded * 20) / 20, 2) if dice.chance(country.rounded) else unrounded
        cash = _cash(dice, total) if dice.chance(0.65) else 0.0
        tax = dice.choice(country.taxes)
        return cls(articles, tax, rate, inclusive, subtotal, discount, service, tax_amount, unrounded, total, cash)

    @property
    def tax_name(self) -> str:
        """The tax without its rate."""
        return self.tax.split(" ")[0]

    @property
    def net(self) -> float:
        """The total without tax."""
        return round(self.unrounded - self.tax_amount, 2)

    @property
    def rounding(self) -> float:
        """What rounding adds."""
        return round(self.total - self.unrounded, 2)

    @property
    def change(self) -> float:
        """The change given back."""
        return round(self.cash - self.total, 2)

    @property
    def count(self) -> int:
        """The number of articles."""
        return sum(one.quantity for one in self.articles)


def _article(dice: Dice, country: Country, many: bool) -> Article:
    each = price(dice, country, 1.5 if many else 2.3)
    quantity = dice.choice((1, 1, 1, 1, 1, 1, 2, 2, 3, 4, 6, 10)) if each < 100 or country.language == "id" else 1
    discount = round(each * quantity * dice.choice((0.05, 0.1, 0.2, 0.5)), 2) if dice.chance(0.05) else 0.0
    return Article(goods(dice), quantity, each, discount)


def _cash(dice: Dice, total: float) -> float:
    """The cash of a customer: exact, or rounded up to a note or a few."""
    if dice.chance(0.25):
        return total
    step = dice.choice((1, 5, 10, 20, 50, 100)) * (1000 if total > 5000 else 1)
    return round(float(-(-total // step) * step), 2)


def sums(till: Till, bill: Bill) -> list[Line]:
    """The lines of all sums, the total often larger or bolder."""
    dice, lines = till.dice, []
    start, end, leader = _columns(dice)
    colon = till.colon if dice.chance(0.4) else ""
    big = dice.weighted((1.0, 1.2, 1.5, 1.9), (5, 2, 2, 0.7))
    bold, wide = dice.chance(0.35), dice.chance(0.15)
    large_payment = dice.chance(0.3)  # cash and change as large as the total
    done: set[str] = set()
    final = _until_total(till, bill)
    counted = [(till.label("count"), str(bill.count))] if dice.chance(0.35) else []
    for field, name, amount in [*final, *_payment(till, bill)]:
        total = field == "total"
        questions = till.label_questions(field, name) if field and field not in done else ()
        done.add(field)
        large = total or (large_payment and field in ("cash", "change"))
        if total and dice.chance(0.25):
            lines.append(till.rule())
        dots = leader * max(0, 18 - len(name))
        line = pair((span(name + dots + colon),), till.money(amount, questions, large), start, end)
        lines.append(replace(line, scale=big, bold=bold, wide=wide) if large else line)
        if total and dice.chance(0.2):
            lines.append(till.rule())
    counts = [pair((span(n + colon),), (span(v, *till.questions("count")),), start, end) for n, v in counted]
    return [*counts, *lines] if dice.chance(0.6) else [*lines, *counts]


def _columns(dice: Dice) -> tuple[float, float, str]:
    """Where labels start, where amounts end and the leader between: across the paper or in its right half."""
    style = dice.randrange(8)
    if style <= 5:
        return 0.0, 1.0, "." if style == 5 else ""
    return dice.choice((0.25, 0.35, 0.45)), dice.choice((1.0, 0.9)), ""


def _until_total(till: Till, bill: Bill) -> list[Row]:
    """The rows down to the total. After a rounding, the sum before it may be labeled as a total as well."""
    dice = till.dice
    rows = _before_total(till, bill)
    rounded = bool(rows) and rows[-1][0] == "rounding"
    if rounded and dice.chance(0.4):
        if len(rows) > 1 and rows[-2][0] == "":
            rows[-2] = ("", till.case(dice.choice(("TOTAL", "TOTAL", "GOODS TOTAL", "TOTAL AMT"))), bill.unrounded)
        return [*rows, ("total", till.label("rounded"), bill.total)]
    key = "inclusive" if dice.chance(0.12) and not rounded else "total"
    name = till.label(key, bill.tax_name)
    currency = till.amounts.currency
    if currency.isascii() and currency and dice.chance(0.12):
        name += dice.choice((f" ({currency})", f" {currency}"))
    return [*rows, ("total", name, bill.total)]


def _before_total(till: Till, bill: Bill) -> list[Row]:
    """The rows above the total."""
    dice, rows = till.dice, []
    if bill.discount or bill.service or not bill.inclusive or dice.chance(0.4):
        rows.append(("subtotal", till.label("subtotal"), bill.subtotal))
    if bill.discount or dice.chance(0.12):
        rows.append(("discount", till.label("discount"), -bill.discount if dice.chance(0.6) else bill.discount))
    if bill.service or dice.chance(0.05):
        rows.append(("service", till.label("service"), bill.service))
    if dice.chance(0.3 if bill.inclusive else 0.2):
        rows.append(("exclusive", till.label("exclusive", bill.tax_name), bill.net))
    if not bill.inclusive or dice.chance(0.3):
        rows.append(("tax", till.case(bill.tax), bill.tax_amount))
    if bill.rounding or (till.country.rounded and dice.chance(0.4)):
        key = "inclusive" if dice.chance(0.5) else "subtotal"
        rows += [("", till.label(key, bill.tax_name), bill.unrounded)] if dice.chance(0.7) else []
        rows.append(("rounding", till.label("rounding"), bill.rounding))
    return rows


def _payment(till: Till, bill: Bill) -> list[Row]:
    """The rows under the total: cash and change or the card, and the tax that is included."""
    dice, rows = till.dice, []
    if bill.cash:
        rows.append(("cash", till.label("cash"), bill.cash))
        if bill.change or dice.chance(0.7):
            rows.append(("change", till.label("change"), bill.change))
    elif dice.chance(0.8):
        rows.append(("card", till.label("card"), bill.total))
        if dice.chance(0.3):
            rows.append(("change", till.label("change"), 0.0))
    if bill.inclusive and dice.chance(0.35):
        name = dice.choice((bill.tax, f"INCL. {bill.tax}", f"{bill.tax} INCL"))
        rows.append(("tax", till.case(name), bill.tax_amount))
    return rows


def card_slip(till: Till, bill: Bill) -> list[Line]:
    """The print of a card terminal: the amount again, masked digits and codes."""
    dice = till.dice
    masked = f"{dice.choice(('************', 'XXXX XXXX XXXX ', '#### '))}{digits(dice, 4)}"
    rows = [
        (till.case(dice.choice(("CARD NO", "CARD", "ACCOUNT"))), masked),
        (till.case(dice.choice(("AUTH CODE", "APPROVAL", "APPR CODE"))), digits(dice, 6)),
        (till.case(dice.choice(("TERMINAL ID", "TID", "MERCHANT ID"))), digits(dice, 8)),
        (till.case(dice.choice(("AMOUNT", "SALE AMOUNT"))), till.amounts.write(bill.total)),
    ]
    return [pair((span(a + till.colon),), (span(b),)) for a, b in dice.sample(rows, dice.randint(2, 4))]
