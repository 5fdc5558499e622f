"""The blocks of a receipt around its sums: merchant, document data, articles, tax table and closing lines."""

from dataclasses import replace

from stakes.data.synthetic.receipts import shops
from stakes.data.synthetic.receipts.bill import Article, Bill
from stakes.data.synthetic.receipts.countries import clock, code, date, receipt_number
from stakes.data.synthetic.receipts.lines import Cell, Line, Span, center, gap, left, pair, span
from stakes.data.synthetic.receipts.wording import Till
from stakes.data.synthetic.values import digits, letters

NOTES = ("Claim", "File", "Page", "Scan", "Voucher", "Job", "EXPENSE", "COST CENTER", "ref.", "no.", "project")


def merchant(till: Till) -> list[Line]:
    """Name, number, address and contacts of the shop; sometimes a logo or a note above."""
    dice = till.dice
    shop = shops.shop(dice, till.country)
    shop = shop.title() if dice.chance(0.3 if till.title else 0.12) else shop
    scale = dice.weighted((1.0, 1.15, 1.3, 1.6), (5, 2, 2, 1))
    name = center(span(shop, *till.questions("company")))
    name = replace(name, scale=scale, bold=dice.chance(0.4), wide=dice.chance(0.2))
    if dice.training and dice.chance(0.5):
        name = replace(name, broken=True, wide=dice.chance(0.45))
    lines = [*_above(till), name]
    if dice.chance(0.35):
        lines.append(_registration(till))
    if dice.chance(0.05):
        word = dice.choice(("PART OF", "FRANCHISE OF", "A DIVISION OF", "OPERATED BY", "BRANCH OF"))
        lines += [center(span(till.case(word))), center(span(till.case(shops.shop(dice, till.country))))]
    if dice.chance(0.9):
        lines += _address(till)
    return lines + _contacts(till)


def _above(till: Till) -> list[Line]:
    """What is above the merchant's name: mostly nothing, else a logo, a number, a greeting or a filing note."""
    dice = till.dice
    style = dice.randrange(10)
    if style == 0:
        logo = dice.choice((str.lower, str.upper, str.title))(shops.word(dice))
        return [replace(center(span(logo)), scale=dice.uniform(1.5, 2.8), foreign=dice.chance(0.7)), gap(0.6)]
    if style == 1:
        return [replace(center(span(digits(dice, dice.randint(3, 6)))), scale=1.4), gap(0.3)]
    if style == 2:
        return [center(span(till.case(dice.choice(("WELCOME", "WELCOME TO", "*** COPY ***", "CUSTOMER COPY")))))]
    if style == 3:
        note = span(f"{dice.choice(NOTES)} {digits(dice, dice.randint(1, 5))}")
        line = center(note) if dice.chance(0.7) else left(note)
        return [replace(line, scale=dice.uniform(1.1, 1.8), foreign=True), gap(dice.uniform(0.2, 2))]
    return []


def _registration(till: Till) -> Line:
    """The company's registration number."""
    dice = till.dice
    number = code(dice, dice.choice(("%######", "%########", "%## ### ###", "@%######", "%#####-@", "%####/####")))
    if dice.chance(0.3):
        return center(span("("), span(number, *till.questions("registration")), span(")"))
    return center(span(till.label("registration") + till.colon), span(number, *till.questions("registration")))


def _address(till: Till) -> list[Line]:
    """The address in two to four lines. Questions ask for all of it where it is short enough, else for its parts."""
    dice, country = till.dice, till.country
    parts = [till.case(shops.street(dice, country))]
    if dice.chance(0.45):
        parts.append(till.case(f"{shops.word(dice)} {shops.word(dice)}"))
    at = len(parts)
    parts.append(till.case(shops.town(dice, country)))
    if dice.chance(0.25):
        parts.append(till.case(shops.word(dice)))
    comma = dice.choice((",", ",", ""))
    ends = [comma] * (len(parts) - 1) + [dice.choice((".", "", ""))]
    whole = " ".join(p + e for p, e in zip(parts, ends, strict=True))
    if len(whole) <= shops.LONGEST:
        questions = till.questions("address")
        return [center(Span(p + e, questions, whole)) for p, e in zip(parts, ends, strict=True)]
    lines = [center(span(p), span(e)) for p, e in zip(parts, ends, strict=True)]
    lines[0] = center(span(parts[0], *till.questions("street")), span(ends[0]))
    lines[at] = center(span(parts[at], *till.questions("town")), span(ends[at]))
    return lines


def _contacts(till: Till) -> list[Line]:
    """Phone, tax number and web address."""
    dice, country, lines = till.dice, till.country, []
    if dice.chance(0.7):
        name = till.label("phone")
        number = code(dice, dice.choice(country.phones))
        spans = [span(name + till.colon), span(number, *till.questions("phone"))]
        if dice.chance(0.2):
            spans.append(span(f"  {till.case('FAX')}{till.colon}{code(dice, dice.choice(country.phones))}"))
        lines.append(center(*spans))
    if dice.chance(0.55):
        number = code(dice, dice.choice(country.tax_ids))
        name = till.label("tax_id", country.taxes[0].split(" ")[0])
        lines.append(center(span(name + till.colon), span(number, *till.questions("tax_id"))))
    if dice.chance(0.12):
        lines.append(center(span(f"www.{shops.invented(dice).lower()}.{dice.choice(('com', 'net', 'co', 'org'))}")))
    dice.shuffle(lines)
    return lines


def document(till: Till) -> list[Line]:
    """Number, date, time and people of the document, in one of four layouts."""
    dice = till.dice
    day = span(date(dice, till.country), *till.questions("date"))
    hour = span(clock(dice), *till.questions("time"))
    number = span(receipt_number(dice), *till.questions("number"))
    extra = _extra_entries(till)
    layout = dice.weighted(("labeled", "bare", "two", "below"), (6, 2, 2, 0.7))
    timed = dice.chance(0.65)  # the time follows the date
    if layout == "bare":
        rows = _bare(till, day, hour if timed else None, number)
    elif layout == "below":
        rows = _below(till, {"date": day, "time": hour, "number": number})
    elif layout == "two":
        entries = [(till.label("number"), number), (till.label("date"), day), (till.label("time"), hour)]
        rows, extra = _two_columns(till, [*entries, *extra]), []
    else:
        weekday = dice.choice(("", "", "", dice.choice(("MON ", "FRI ", "TUESDAY ", "SAT, ", "SUN "))))
        when = (span(weekday), day, *((span(dice.choice((" ", "  ", " / "))), hour) if timed else ()))
        labeled = [(till.label("number"), (number,)), (till.label("date"), when)]
        if not timed and dice.chance(0.4):
            labeled.append((till.label("time"), (hour,)))
        rows, extra = _labeled(till, [*labeled, *((name, (value,)) for name, value in extra)]), []
    rows += _labeled(till, [(name, (value,)) for name, value in extra])
    if dice.chance(0.4) and layout != "below":
        dice.shuffle(rows)
    return rows


def _bare(till: Till, day: Span, hour: Span | None, number: Span) -> list[Line]:
    """The date without a label, sometimes before codes of the till, and the number."""
    dice = till.dice
    codes = " ".join(dice.choice((digits(dice, 2), f"{letters(dice, 1)}{digits(dice, 1)}")) for _ in range(2))
    when = (day, *((span(dice.choice((" ", "  ", " - "))), hour) if hour else ()))
    numbered = pair((span(f"{till.label('number')} "), number), ())
    dated = dice.choice((left, center))(*when) if dice.chance(0.5) else left(*when, span(f" {codes}"))
    return [dated, numbered]


def _below(till: Till, values: dict[str, Span]) -> list[Line]:
    """Labels in one line and their values below them."""
    stops = (0.0, 0.36, 0.62)
    labels = [span(till.label(key)) for key in values]
    return [
        Line(tuple(Cell(x, "l", (text,)) for x, text in zip(stops, texts, strict=True)))
        for texts in (labels, values.values())
    ]


def _extra_entries(till: Till) -> list[tuple[str, Span]]:
    """Up to three of: cashier, table, terminal, member, customer and the like."""
    dice = till.dice
    entries = [(till.label("cashier"), span(till.case(shops.person(dice)), *till.questions("cashier")))]
    numbered = ("TABLE", "POS", "TERMINAL", "COVERS", "TOKEN")
    entries += [(till.case(name), span(digits(dice, dice.randint(1, 4)))) for name in numbered]
    entries.append((till.case("MEMBER"), span(digits(dice, 8) if dice.chance(0.5) else "")))
    if dice.chance(0.08):
        name = till.case(dice.choice(("CUSTOMER", "SOLD TO", "NAME")))
        entries.append((name, span(till.case(shops.shop(dice, till.country))[:20])))
    return dice.sample(entries, dice.randint(0, 3))


def _labeled(till: Till, entries: list[tuple[str, tuple[Span, ...]]]) -> list[Line]:
    """Labels with their values: right behind them, at a common column or at the right edge."""
    dice = till.dice
    longest = max((len(name) for name, _ in entries), default=0)
    aligned, right = dice.chance(0.5), dice.chance(0.12)
    lines = []
    for name, spans in entries:
        if right:
            lines.append(pair((span(name + till.colon.rstrip()),), spans))
        else:
            filled = name.ljust(longest + 1) if aligned else name
            lines.append(left(span(filled + till.colon), *spans))
    return lines


def _two_columns(till: Till, entries: list[tuple[str, Span]]) -> list[Line]:
    """Two labeled values per line."""
    cells = [(span(f"{name}{till.colon}"), value) for name, value in entries]
    lines = []
    for i in range(0, len(cells), 2):
        row = [Cell(0.0, "l", cells[i])]
        if i + 1 < len(cells):
            row.append(Cell(1.0, "r", cells[i + 1]) if till.dice.chance(0.6) else Cell(0.55, "l", cells[i + 1]))
        lines.append(Line(tuple(row)))
    return lines


def articles(till: Till, bill: Bill) -> list[Line]:
    """The list of articles, mostly with a heading."""
    dice = till.dice
    layout = dice.weighted(("one", "below", "columns", "code"), (3, 3, 2, 2))
    lines: list[Line] = []
    if dice.chance(0.6):
        heads = [till.label(k) for k in ("item", "quantity", "price", "amount")]
        currency = f"({till.amounts.currency})" if till.amounts.currency and dice.chance(0.3) else ""
        if layout in ("columns", "below"):
            lines.append(_table_row((0, 0.52, 0.74, 1), heads))
        else:
            lines.append(pair((span(heads[0]),), (span(heads[3] + currency),)))
        lines.append(till.rule())
    names = [one.name for one in bill.articles]
    for index, one in enumerate(bill.articles):
        unique = names.count(one.name) == 1
        field = "item" if index == 0 else "last" if index == len(names) - 1 else ""
        lines += _article(till, one, layout, unique, field)
    return lines


def _table_row(stops: tuple[float, ...], texts: list[str]) -> Line:
    """Texts in columns: the first at the left of its stop, the others at the right."""
    cells = [Cell(x, "r" if i else "l", (span(text),)) for i, (x, text) in enumerate(zip(stops, texts, strict=True))]
    return Line(tuple(cells))


def _article(till: Till, article: Article, layout: str, unique: bool, field: str) -> list[Line]:
    """One article in one or two lines. ``field`` asks for its name, as the first or last one."""
    dice, amounts = till.dice, till.amounts
    shown = till.case(article.name)
    priced = till.questions("price", shown) if unique and dice.chance(0.6) else ()
    name = span(shown, *(till.questions(field) if field and dice.chance(0.5) else ()))
    flag = dice.choice(("", "", "", " A", " B", " 1", " *", " T", " V"))
    gross = (span(amounts.write(article.amount), *priced), span(flag))
    each, many = amounts.write(article.price), article.quantity
    barcode = digits(dice, dice.choice((4, 5, 8, 13))) if layout == "code" else ""
    if layout == "one":
        lead = dice.choice(("", f"{many} ", f"{many}X ", f"{many} x ")) if many == 1 else f"{many} "
        lines = [pair((span(lead), name), gross)]
    elif layout == "columns":
        numbers = (Cell(0.52, "r", (span(str(many)),)), Cell(0.74, "r", (span(each),)), Cell(1, "r", gross))
        lines = [left(name), Line(numbers)] if len(shown) > 14 else [Line((Cell(0, "l", (name,)), *numbers))]
    else:
        times = dice.choice((" x ", " X ", " @ ", "x", " * "))
        second = f"{barcode}   {many}{times}{each}" if barcode else f"  {many}{times}{each}"
        lines = [left(name), pair((span(second),), gross)]
    if article.discount:
        lines.append(pair((span(f"  {till.label('discount')}"),), (span(amounts.write(-article.discount)),)))
    return lines


def tax_table(till: Till, bill: Bill) -> list[Line]:
    """The tax by rate, with sums that are not the total to pay."""
    dice, write, tax = till.dice, till.amounts.write, bill.tax_name
    stops = (0.02, 0.38, 0.68, 1.0)
    head = [till.label("code"), "%", till.label("amount"), till.case(tax)]
    lines = [dice.choice((left, center))(span(till.label("summary", tax)))]
    net, amount = write(bill.net), write(bill.tax_amount)
    lines.append(_table_row(stops, head))
    lines.append(_table_row(stops, [dice.choice(("A", "V", "N", "1", "T1")), f"{bill.rate * 100:g}", net, amount]))
    zero = [dice.choice(("B", "E", "Z", "2")), "0", write(0), write(0)]
    if dice.chance(0.4):
        lines.append(_table_row(stops, zero))
    if dice.chance(0.4):
        texts = zip(stops[1:], (till.case("TOTAL"), net, amount), strict=True)
        lines.append(Line(tuple(Cell(x, "r", (span(text),)) for x, text in texts)))
    return [*lines, till.rule()] if dice.chance(0.5) else lines


def closing(till: Till) -> list[Line]:
    """Thanks and notices; sometimes another date, a barcode or a long number."""
    dice = till.dice
    count = dice.choice((0, 1, 1, 2, 2, 3, 5))
    lines = [center(span(till.label("thanks", till.country.taxes[0]))) for _ in range(count)]
    if dice.chance(0.1):
        until = dice.choice(("RETURN BEFORE", "VALID UNTIL", "EXPIRES", "RETURN BY", "OFFER ENDS"))
        lines.append(center(span(f"{till.case(until)} {date(dice, till.country)}")))
    if dice.chance(0.15):
        lines.append(Line(kind="barcode"))
    if dice.chance(0.15):
        lines.append(center(span(" ".join(digits(dice, 4) for _ in range(dice.randint(2, 5))))))
    return lines
