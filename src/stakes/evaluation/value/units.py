"""Names of currencies, units and powers of ten, each spelling with all that it may stand for.

>>> sorted(CURRENCIES["kr"])
['dkk', 'isk', 'nok', 'sek']
"""

_CURRENCIES = {
    "usd": "us$ $ dollar dollars", "cad": "c$ ca$ can$ $ dollar dollars", "aud": "a$ au$ $ dollar dollars",
    "nzd": "nz$ $ dollar dollars", "sgd": "s$ sg$ $ dollar dollars", "hkd": "hk$ $ dollar dollars",
    "twd": "nt$ ntd $ 元", "mxn": "mx$ mex$ $ peso pesos", "ars": "$ peso pesos", "clp": "$ peso pesos",
    "cop": "$ peso pesos", "php": "₱ peso pesos", "brl": "r$ reais real", "eur": "€ euro euros",
    "gbp": "£ pound pounds", "egp": "e£ pound pounds", "jpy": "¥ yen 円", "cny": "¥ rmb yuan cn¥ 元",
    "inr": "₹ rs rupee rupees", "pkr": "rs rupee rupees", "lkr": "rs rupee rupees", "npr": "rs rupee rupees",
    "idr": "rp rupiah", "myr": "rm ringgit", "thb": "฿ baht", "vnd": "₫ dong", "krw": "₩ 원", "bdt": "৳ tk taka",
    "chf": "fr sfr fr. franken franc francs", "sek": "kr kronor krona", "nok": "kr kroner krone",
    "dkk": "kr kroner krone", "isk": "kr", "pln": "zł zl zloty", "czk": "kč kc", "huf": "ft forint",
    "ron": "lei leu", "bgn": "лв", "rub": "₽ руб ruble rubles", "uah": "₴ грн", "try": "₺ tl lira",
    "ils": "₪ nis", "aed": "dh dhs dirham dirhams", "sar": "sr riyal riyals", "qar": "qr riyal riyals",
    "zar": "r rand", "ngn": "₦ naira", "kes": "ksh kshs", "ghs": "₵", "kzt": "₸", "cent": "¢ cents ct",
}  # fmt: skip
_UNITS = {
    "%": "percent pct prozent pourcent", "‰": "permille", "kg": "kgs kilo kilos kilogram kilograms kilogramme",
    "g": "gr gram grams gramme grammes", "mg": "milligram milligrams", "µg": "μg mcg microgram micrograms",
    "t": "tonne tonnes ton tons", "lb": "lbs pound pounds", "oz": "ounce ounces", "km": "kms kilometer kilometers "
    "kilometre kilometres", "m": "meter meters metre metres mtr", "cm": "cms centimeter centimeters centimetre "
    "centimetres", "mm": "millimeter millimeters millimetre millimetres", "mi": "mile miles", "ft": "feet foot",
    "inch": "inches", "yd": "yard yards", "l": "ltr ltrs liter liters litre litres", "ml": "milliliter milliliters "
    "millilitre millilitres", "cl": "", "gal": "gallon gallons", "m2": "m^2 sqm", "cm2": "cm^2", "km2": "km^2",
    "m3": "m^3 cbm", "sq ft": "sqft", "ha": "hectare hectares", "acre": "acres",
    "h": "hr hrs hour hours", "min": "mins minute minutes", "s": "sec secs second seconds", "ms": "",
    "day": "days", "week": "weeks wk wks", "month": "months", "year": "years yr yrs", "°c": "celsius",
    "°f": "fahrenheit", "°": "deg degree degrees", "v": "volt volts", "w": "watt watts", "kw": "kilowatt kilowatts",
    "kwh": "", "hz": "", "khz": "", "mhz": "", "ghz": "", "kb": "", "mb": "", "gb": "", "tb": "", "kcal": "",
    "cal": "calories", "kj": "", "mph": "", "kmh": "km/h kph", "rpm": "", "psi": "", "bar": "",
    "pcs": "pc piece pieces stk stück",
}  # fmt: skip
_PHRASES = {
    "per cent": "%", "sq ft": "sq ft", "square feet": "sq ft", "square foot": "sq ft", "square meters": "m2",
    "square metres": "m2", "cubic meters": "m3", "cubic metres": "m3", "degrees celsius": "°c",
    "degrees fahrenheit": "°f", "us dollars": "usd", "pounds sterling": "gbp", "swiss francs": "chf",
}  # fmt: skip
_SCALES = {
    3: "k thousand tsd tausend", 4: "万 萬", 5: "lakh lakhs lac lacs", 6: "million millions mio mn mln millionen",
    7: "crore crores", 8: "億 亿", 9: "billion billions bn mrd milliarden milliard milliards",
    12: "trillion trillions tn",
}  # fmt: skip


def _by_spelling(names: dict[str, str]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for name, spellings in names.items():
        for spelling in (name, *spellings.split()):
            found.setdefault(spelling, set()).add(name)
    return {spelling: frozenset(meanings) for spelling, meanings in found.items()}


CURRENCIES = _by_spelling(_CURRENCIES)
CURRENCY_NAMES = frozenset(_CURRENCIES)
UNITS = _by_spelling(_UNITS)
for _spelling, _names in CURRENCIES.items():  # "pounds" is a weight and a currency
    UNITS[_spelling] = UNITS.get(_spelling, frozenset()) | _names
UNITS.update({phrase: frozenset({name}) for phrase, name in _PHRASES.items()})
UNITS.pop("r")  # "5 r" is no amount; "R500" is
SCALES = {word: power for power, words in _SCALES.items() for word in words.split()}
MONEY_SCALES = {"m": 6, "mm": 6, "b": 9}  # with a currency only: "$5m" is five million, "5 m" is five meters
