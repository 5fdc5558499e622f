"""What receipts of each country print: currency, separators, tax, dates, legal forms, and numbers in these formats.

In templates ``#`` is a digit, ``%`` a digit from 1 to 9 and ``@`` a capital letter.

    country = choose(dice)
    code(dice, country.postcodes[0])                 # "SW4 7QP"
    AmountStyle.draw(dice, country).write(1234.5)    # "1,234.50", "1.234,50" or "1234.50"
    date(dice, country)                              # "07/03/2016"
"""
# ruff: noqa: E501  (one country per line)

from dataclasses import dataclass

from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.values import LONG_MONTHS, MONTHS, digits, letters

DAY_FIRST = ("d/m/Y", "d/m/Y", "d/m/Y", "d-m-Y", "d-m-Y", "d.m.Y", "d/m/y", "d-m-y", "d b Y", "d-b-Y", "j/n/Y", "d B Y")
DAY_DOTS = ("d.m.Y", "d.m.Y", "d.m.Y", "d.m.y", "d.m.y", "j.n.Y", "d-m-Y", "d/m/Y", "d.m. Y")
DAY_SLASH = ("d/m/Y", "d/m/Y", "d/m/y", "d/m/y", "d-m-Y", "d-m-y", "d.m.Y", "j/n/Y", "d b Y")
MONTH_FIRST = ("m/d/Y", "m/d/Y", "m/d/y", "m/d/y", "n/j/Y", "n/j/y", "b d, Y", "b j, Y", "m-d-Y", "d b y", "B j, Y")
YEAR_FIRST = ("Y-m-d", "Y-m-d", "Y/m/d", "y-m-d", "Y.m.d", "d/m/Y", "Ymd")
SYMBOLS = ("$", "HK$", "S$", "A$", "NZ$", "R$", "£", "€", "*", "P", "R")  # mostly printed without a space
OTHER_DATES = ("d/m/Y", "Y-m-d", "d-b-y", "d B Y", "d.m.Y", "m/d/Y", "B j, Y", "d b Y", "d-m-y", "Y/m/d")


@dataclass(frozen=True)
class Country:
    """What one country prints. ``language`` selects the labels, ``weight`` is the relative frequency."""

    name: str
    language: str
    weight: float
    currency: tuple[str, ...]
    after: float  # share of tills that print the currency behind the amount
    comma: float  # share of tills with a decimal comma
    dates: tuple[str, ...]
    suffixes: tuple[str, ...]
    taxes: tuple[str, ...]
    rates: tuple[float, ...]
    postcodes: tuple[str, ...]
    phones: tuple[str, ...]
    tax_ids: tuple[str, ...]
    town_first: bool = False  # the town is printed before the postcode
    number_last: bool = False  # the house number follows the street
    roads: str = ""  # the language of its street names, where it is another
    inclusive: float = 0.5  # share of tills whose prices include the tax
    rounded: float = 0.0  # share of totals rounded to 0.05
    whole: float = 0.0  # share of tills without decimals


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split("|"))


COUNTRIES = (
    Country("United States", "en", 2.5, ("$", "$", "", "USD"), 0, 0, MONTH_FIRST, _list("INC|INC.|LLC|CORP|CO.|STORES|#####|"), _list("TAX|SALES TAX|STATE TAX|TAX 1|CITY TAX"), (0.0, 0.0625, 0.07, 0.0825, 0.0925), _list("@@ #####|@@ #####-####"), _list("(%##) ###-####|%##-###-####|%##.###.####"), _list("##-#######"), True, inclusive=0.02),
    Country("Canada", "en", 1.2, ("$", "$", "CAD", ""), 0, 0, (*YEAR_FIRST, *MONTH_FIRST), _list("LTD|INC|CORP|LTD.|"), _list("GST|HST|GST 5%|PST|HST 13%"), (0.05, 0.13, 0.15), _list("@@ @#@ #@#"), _list("%##-###-####|(%##) ###-####"), _list("######### RT0001|#########"), True, inclusive=0.05),
    Country("United Kingdom", "en", 2.0, ("£", "£", "GBP", ""), 0, 0, DAY_FIRST, _list("LTD|LIMITED|PLC|& SONS|& SONS LTD|"), _list("VAT|VAT 20%|V.A.T."), (0.0, 0.05, 0.2), _list("@@# #@@|@# #@@|@@## #@@"), _list("0%## ### ####|0%### ######|020 #### ####"), _list("GB ### #### ##|### #### ##"), True, inclusive=0.9),
    Country("Australia", "en", 1.5, ("$", "$", "AUD", "A$", ""), 0, 0, DAY_FIRST, _list("PTY LTD|PTY. LTD.|P/L|AUSTRALIA PTY LTD|"), _list("GST|GST INCLUDED|GST AMOUNT"), (0.1,), _list("@@@ ####"), _list("(0%) #### ####|0% #### ####|1300 ### ###"), _list("ABN ## ### ### ###"), True, inclusive=0.9, rounded=0.4),
    Country("New Zealand", "en", 1.0, ("$", "NZ$", ""), 0, 0, DAY_FIRST, _list("LTD|LIMITED|NZ LTD|"), _list("GST|GST 15%"), (0.15,), _list("####"), _list("0%-### ####|0% ### ####"), _list("##-###-###|###-###-###"), True, inclusive=0.9, rounded=0.3),
    Country("Malaysia", "en", 1.0, ("RM", "RM", "", "MYR"), 0, 0, DAY_FIRST, _list("SDN BHD|SDN. BHD.|BHD||"), _list("GST|GST 6%|SST|SERVICE TAX|SST 6%"), (0.0, 0.06, 0.06, 0.1), _list("#####"), _list("0%-#######|0%-### ####|+60 % ### ####"), _list("############|###########"), roads="id", inclusive=0.6, rounded=0.8),
    Country("Singapore", "en", 1.5, ("$", "S$", "SGD", ""), 0, 0, DAY_FIRST, _list("PTE LTD|PTE. LTD.|(S) PTE LTD|LLP|"), _list("GST|GST 7%|7% GST|GST 8%|GST 9%"), (0.07, 0.08, 0.09), _list("SINGAPORE ######|S######|S(######)"), _list("6### ####|+65 6### ####|6#######"), _list("#########@|M#-#######-#|20#######@"), inclusive=0.4, rounded=0.3),
    Country("Philippines", "en", 1.2, ("P", "PHP", "", ""), 0, 0, (*MONTH_FIRST, *DAY_FIRST), _list("INC.|CORP.|CORPORATION|STORE|COMPANY|"), _list("VAT|12% VAT|VAT AMOUNT|VAT-12%"), (0.12,), _list("####"), _list("(02) ####-####|09## ### ####"), _list("###-###-###-###|###-###-###-000"), True, inclusive=0.95),
    Country("India", "en", 1.6, ("Rs.", "Rs", "INR", ""), 0, 0, DAY_FIRST, _list("PVT LTD|PVT. LTD.|& CO|STORES|& SONS|TRADERS|"), _list("CGST|SGST|CGST 2.5%|SGST 2.5%|GST|CGST 9%"), (0.025, 0.05, 0.09, 0.18), _list("######|- ######|### ###"), _list("+91 9#########|0%#-########|9#########"), _list("##@@@@@####@#Z#"), True, inclusive=0.3, rounded=0.1, whole=0.15),
    Country("South Africa", "en", 1.0, ("R", "R", "", "ZAR"), 0, 0.1, (*DAY_FIRST, *YEAR_FIRST), _list("(PTY) LTD|CC|PTY LTD|STORES|"), _list("VAT|VAT 15%|15% VAT"), (0.14, 0.15), _list("####"), _list("0%# ### ####|(0%#) ###-####"), _list("4#########"), True, inclusive=0.95, rounded=0.3),
    Country("United Arab Emirates", "en", 0.8, ("AED", "Dhs", "AED", ""), 0.1, 0, DAY_FIRST, _list("LLC|L.L.C.|MARKETS LLC|FZE|"), _list("VAT|VAT 5%|VAT @5%"), (0.05,), _list("P.O. BOX #####"), _list("0%-#######|+971 % ### ####"), _list("1##############"), True, inclusive=0.7),
    Country("Kenya", "en", 0.7, ("KES", "KSH", "Ksh", ""), 0.1, 0, DAY_FIRST, _list("LTD|LIMITED|SUPERMARKETS LTD|"), _list("VAT|VAT 16%|VAT A"), (0.16,), _list("P.O. BOX ####-00###"), _list("07## ######|+254 7## ######"), _list("P05#######@"), True, inclusive=0.9),
    Country("Ireland", "en", 0.8, ("EUR", "€", "€", ""), 0.2, 0, DAY_FIRST, _list("LTD|TEORANTA|LIMITED|& CO LTD|"), _list("VAT|VAT 23%|VAT 13.5%"), (0.09, 0.135, 0.23), _list("@## @#@#|DUBLIN %"), _list("0% ### ####|0%# #######"), _list("IE#######@"), True, inclusive=0.95, rounded=0.4),
    Country("Hong Kong", "en", 0.8, ("HK$", "HK$", "$", ""), 0, 0, (*YEAR_FIRST, *DAY_FIRST), _list("LTD|COMPANY LTD|CO LTD|LIMITED|"), _list("SERVICE CHARGE|10% SERVICE|SVC CHG"), (0.1,), _list("KOWLOON|N.T.|H.K."), _list("2### ####|3#######"), _list("########"), True, inclusive=0.3, whole=0.2),
    Country("Germany", "de", 1.3, ("EUR", "EUR", "€", ""), 0.6, 0.97, DAY_DOTS, _list("GMBH|GMBH & CO. KG|KG|E.K.|AG|OHG|"), _list("MWST|MWST 19%|UST 7%|A 19%|MWST."), (0.07, 0.19), _list("#####"), _list("0%## / #######|0%#/######|0%##-######"), _list("DE#########|##/###/#####"), number_last=True, inclusive=1.0),
    Country("Switzerland", "de", 0.8, ("CHF", "CHF", "Fr.", ""), 0.2, 0.05, DAY_DOTS, _list("AG|GMBH|SA|& CO|"), _list("MWST|MWST 7.7%|TVA 2.5%|MWST 8.1%"), (0.025, 0.077, 0.081), _list("####"), _list("0%# ### ## ##|+41 ## ### ## ##"), _list("CHE-###.###.###"), number_last=True, inclusive=1.0, rounded=0.9),
    Country("France", "fr", 1.2, ("EUR", "€", "€", ""), 0.9, 0.9, DAY_SLASH, _list("SARL|SAS|S.A.R.L.|SA|EURL|ET FILS|"), _list("TVA|TVA 20%|TVA 10%|TVA 5.5%"), (0.055, 0.1, 0.2), _list("#####"), _list("0% ## ## ## ##|0%.##.##.##.##"), _list("FR ## #########|FR##########|### ### ### #####"), inclusive=1.0),
    Country("Spain", "es", 1.2, ("EUR", "€", "€", ""), 0.8, 0.9, DAY_SLASH, _list("S.L.|S.A.|SL|S.L.U.|E HIJOS|"), _list("IVA|IVA 21%|IVA 10%|I.V.A."), (0.04, 0.1, 0.21), _list("#####"), _list("9## ### ###|9## ## ## ##"), _list("B########|A-########|B-########"), number_last=True, inclusive=0.8),
    Country("Mexico", "es", 1.0, ("$", "$", "", "MXN"), 0, 0, DAY_SLASH, _list("SA DE CV|S.A. DE C.V.|S DE RL DE CV|"), _list("IVA|IVA 16%|I.V.A."), (0.16,), _list("CP #####|C.P. #####"), _list("(%#) ####-####|%## ### ####"), _list("@@@######@@#"), number_last=True, inclusive=0.7),
    Country("Italy", "it", 1.1, ("EURO", "EUR", "€", ""), 0.2, 0.95, (*DAY_SLASH, "d-m-Y", "d-m-y"), _list("S.R.L.|SRL|S.N.C.|S.P.A.|SNC|"), _list("IVA|DI CUI IVA|IVA 10%|IVA 22%"), (0.04, 0.1, 0.22), _list("#####"), _list("0%# #######|0%/#######|0%#.######"), _list("P.IVA ###########|###########"), number_last=True, inclusive=1.0),
    Country("Netherlands", "nl", 0.9, ("EUR", "€", "€", ""), 0.1, 0.95, ("d-m-Y", "d-m-Y", "d/m/Y", "d-m-y", "j-n-Y", "d b Y"), _list("B.V.|BV|V.O.F.|N.V.|"), _list("BTW|BTW 21%|BTW 9%"), (0.09, 0.21), _list("#### @@"), _list("0%#-#######|0%##-######"), _list("NL#########B##"), number_last=True, inclusive=1.0, rounded=0.5),
    Country("Brazil", "pt", 0.9, ("R$", "R$", "", "BRL"), 0, 0.95, DAY_SLASH, _list("LTDA|LTDA.|S.A.|ME|EIRELI|"), _list("ICMS|TRIBUTOS|IMPOSTO|TRIB. APROX."), (0.07, 0.12, 0.18), _list("#####-###|CEP #####-###"), _list("(%#) ####-####|(%#) 9####-####"), _list("##.###.###/####-##"), number_last=True, inclusive=1.0),
    Country("Portugal", "pt", 0.6, ("EUR", "€", ""), 0.6, 0.8, (*DAY_SLASH, *YEAR_FIRST), _list("LDA|LDA.|S.A.|UNIPESSOAL LDA|"), _list("IVA|IVA 23%|IVA 6%"), (0.06, 0.13, 0.23), _list("####-###"), _list("2## ### ###|2########"), _list("5########"), number_last=True, inclusive=1.0),
    Country("Indonesia", "id", 0.9, ("Rp", "Rp.", "", "IDR"), 0, 0.3, DAY_FIRST, _list("PT|TBK|CV||"), _list("PPN|PPN 10%|PB1|PPN 11%|PAJAK"), (0.1, 0.11), _list("#####"), _list("0%#-#######|08##-####-####"), _list("##.###.###.#-###.###"), inclusive=0.6, whole=0.97),
    Country("Sweden", "sv", 0.9, ("SEK", "kr", "KR", ""), 0.6, 0.9, (*YEAR_FIRST, "d.m.Y", "d/m-y"), _list("AB|HB|& SON AB|"), _list("MOMS|MOMS 25%|MOMS 12%"), (0.06, 0.12, 0.25), _list("### ##"), _list("0%#-### ## ##|0%-######"), _list("55####-####"), number_last=True, inclusive=1.0),
    Country("Denmark", "da", 0.7, ("DKK", "kr", "KR.", ""), 0.5, 0.95, DAY_DOTS, _list("APS|A/S|I/S|AS|"), _list("MOMS|MOMS 25%|HERAF MOMS"), (0.25,), _list("####"), _list("## ## ## ##|########"), _list("########|DK########"), number_last=True, inclusive=1.0),
    Country("Poland", "pl", 0.8, ("PLN", "PLN", "zl", ""), 0.7, 0.9, (*YEAR_FIRST, *DAY_DOTS), _list("SP. Z O.O.|S.A.|SP.J.|S.C.|"), _list("PTU|PTU A 23%|PTU B 8%|KWOTA A"), (0.05, 0.08, 0.23), _list("##-###"), _list("%# ### ## ##|+48 ### ### ###"), _list("###-###-##-##|##########"), number_last=True, inclusive=1.0),
    Country("Turkey", "tr", 0.7, ("TL", "TL", "*", ""), 0.3, 0.9, DAY_DOTS, _list("LTD. STI.|A.S.|TIC. LTD. STI.|GIDA A.S.|"), _list("TOPKDV|KDV|KDV %8|KDV %18"), (0.01, 0.08, 0.18), _list("#####"), _list("0%## ### ## ##|(0%##) ### ####"), _list("##########"), number_last=True, inclusive=1.0),
)  # fmt: skip


def choose(dice: Dice) -> Country:
    """A country, by weight."""
    return dice.weighted(COUNTRIES, [c.weight for c in COUNTRIES])


def code(dice: Dice, template: str) -> str:
    """A number or code from a template."""
    text = ""
    for char in template:
        if char == "#":
            text += str(dice.randrange(10))
        elif char == "%":
            text += str(dice.randint(1, 9))
        else:
            text += letters(dice, 1) if char == "@" else char
    return text


@dataclass(frozen=True)
class AmountStyle:
    """The format of amounts on one receipt."""

    decimal: str
    thousands: str
    places: int
    currency: str
    after: bool
    space: str
    everywhere: bool  # the currency is printed with every sum, not only with the total

    @classmethod
    def draw(cls, dice: Dice, country: Country) -> "AmountStyle":
        """A format that is used in this country."""
        comma = dice.chance(country.comma)
        grouped = dice.chance(0.5)
        places = 0 if dice.chance(country.whole) else 2
        thousands = "." if comma or (places == 0 and dice.chance(0.5)) else ","
        currency = dice.choice(country.currency)
        tight = 0.75 if currency in SYMBOLS else 0.3
        space = "" if dice.chance(tight) else " "
        everywhere = dice.chance(0.4)
        after = dice.chance(country.after)
        return cls("," if comma else ".", thousands if grouped else "", places, currency, after, space, everywhere)

    def write(self, amount: float) -> str:
        """The amount without its currency."""
        text = f"{abs(amount):,.{self.places}f}"
        text = text.replace(",", "t").replace(".", self.decimal).replace("t", self.thousands)
        return f"-{text}" if amount < -1e-9 else text

    def around(self, marked: bool) -> tuple[str, str]:
        """The currency before and behind an amount; ``marked``: printed even where it is not ``everywhere``."""
        if not self.currency or not (marked or self.everywhere):
            return "", ""
        return ("", f"{self.space}{self.currency}") if self.after else (f"{self.currency}{self.space}", "")


def price(dice: Dice, country: Country, most: float) -> float:
    """The price of one article: 0.15 to 10 ** most, rarely more; often ending in .99, .95 or .50."""
    amount = float(10 ** dice.uniform(-0.9, most))
    if dice.chance(0.02):
        amount = float(10 ** dice.uniform(2.0, 3.3))
    if country.language == "id":
        return float(round(amount * 10) * 100)
    style = dice.randrange(4)
    if style == 0:
        return round(amount * 20) / 20 or 0.05
    if style == 1:
        return max(0.09, int(amount) + dice.choice((0.99, 0.95, 0.9, 0.5, 0.49, 0.0, 0.0)) or 1.0)
    return round(amount, 2)


def date(dice: Dice, country: Country) -> str:
    """A date in one of the country's formats; 8 % are in any format."""
    year, month, day = dice.randint(2003, 2029), dice.randint(1, 12), dice.randint(1, 31)
    day = min(day, 30 if month in (4, 6, 9, 11) else 28 if month == 2 else 31)
    pattern = dice.choice(country.dates)
    if dice.chance(0.08):
        pattern = dice.choice(OTHER_DATES)
    short, long = MONTHS[month - 1], LONG_MONTHS[month - 1]
    upper = dice.chance(0.5)
    parts = {
        "d": f"{day:02d}",
        "j": str(day),
        "m": f"{month:02d}",
        "n": str(month),
        "Y": str(year),
        "y": f"{year % 100:02d}",
        "b": short.upper() if upper else short,
        "B": long.upper() if upper else long,
    }
    return "".join(parts.get(char, char) for char in pattern)


def clock(dice: Dice) -> str:
    """A time of day, with or without seconds."""
    hour = dice.choice((dice.randint(7, 22), dice.randint(0, 23)))
    minute, second = dice.randrange(60), dice.randrange(60)
    seconds = f":{second:02d}" if dice.chance(0.45) else ""
    if dice.chance(0.3):
        half = dice.choice((" AM", " PM", "AM", "PM", " am", " pm", "pm"))
        lead = f"{hour % 12 or 12:02d}" if dice.chance(0.5) else str(hour % 12 or 12)
        return f"{lead}:{minute:02d}{seconds}{half}"
    return f"{hour:02d}:{minute:02d}{seconds}" if dice.chance(0.95) else f"{hour:02d}.{minute:02d}"


def receipt_number(dice: Dice) -> str:
    """A receipt number: letters and digits in one of eight formats."""
    style = dice.randrange(9)
    if style <= 1:
        return digits(dice, dice.randint(3, 10))
    if style == 2:
        return f"{letters(dice, dice.randint(1, 3))}{digits(dice, dice.randint(4, 8))}"
    if style == 3:
        return f"{letters(dice, 2)}-{digits(dice, dice.randint(4, 6))}"
    if style == 4:
        return f"{digits(dice, 2)}/{digits(dice, 5)}"
    if style == 5:
        return f"{digits(dice, 4)}-{digits(dice, 4)}-{digits(dice, 3)}"
    if style == 6:
        return f"{dice.randint(0, 99999):06d}"
    if style == 7:
        return f"{letters(dice, 1)}{digits(dice, 2)}-{dice.randint(0, 99999):07d}"
    return f"{letters(dice, 1)}{dice.randint(0, 9999999):09d}"
