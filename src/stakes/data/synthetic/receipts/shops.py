"""Names of shops, streets, towns, people and goods, put together from common words of many languages.

    shop(dice, country)       # "NORTHGATE PAINT & TOOLS LTD"
    goods(dice)               # "GREEN TEA 500G"

No list follows a real chain or a data set. In training many words are random letters, so that names are read and not
guessed.
"""

from stakes.data.synthetic.dice import Dice, pool
from stakes.data.synthetic.receipts.countries import Country, code
from stakes.data.synthetic.values import digits, letters, name

LONGEST = 38  # characters of an answer
LONGEST_NAME = 46  # of a shop's name on training receipts

TRADES = pool(
    "BAKERY|CAFE|RESTAURANT|IRONMONGERY|PHARMACY|STATIONERY|SUPERMARKET|CORNER SHOP|BOOKS|BOOKSHOP|GROCERY"
    "|ELECTRIC SUPPLY|GARAGE|TYRES|FASHION|SHOES|TOYS|GARDEN CENTRE|FLORIST|PET SHOP|OPTICAL|JEWELLERS|FURNITURE"
    "|LIGHTING|PAINT|TOOLS|PLANT HIRE|MERCHANTS|HANDEL|STORE|STORES|BAZAAR|MARKET|FOODS|KITCHEN|GRILL|PIZZA"
    "|NOODLE HOUSE|SEAFOOD|BISTRO|BAR|COFFEE|TEA HOUSE|SOUVENIRS|HOUSEWARES|LAUNDRY|SALON|CLINIC|DENTAL|PETROL STATION"
    "|SERVICE STATION|CAR PARK|HOTEL|TRAVEL|PRINTING|COMPUTERS|PHONES|SPORTS|CYCLES|MUSIC|ART|CRAFTS|FABRICS|TIMBER"
    "|PLUMBING|BUILDING SUPPLIES|AUTO PARTS|BUTCHERY|FISH MARKET|FROZEN FOOD|WINES|DELI|ICE CREAM|DESSERTS"
    "|DISTRIBUTION|SUPPLIES|WHOLESALE|GENERAL STORE|CASH & CARRY|DEPARTMENT STORE|RISTORANTE|TRATTORIA|PANADERIA"
    "|FARMACIA|FERRETERIA|BOULANGERIE|BRASSERIE|EPICERIE|APOTHEKE|BAECKEREI|METZGEREI|GASTHAUS|RUMAH MAKAN|TOKO|WARUNG"
    "|APOTEK|DAPUR|BAKKERIJ|SLAGERIJ|PADARIA|MERCADO|LANCHONETE|CAFFE|PASTICCERIA|PIEKARNIA|SKLEP|FIRIN|ECZANE"
    "|KONDITORI|BAGERI|LIVSMEDEL|BLOMMOR|QUITANDA|LIBRERIA|LIBRAIRIE|BUCHHANDLUNG|TACOS|KEBAB|SUSHI|CANTINA||DRUGSTORE"
    "|CANTEEN|ELECTRONICS|LEATHER GOODS"
)
WORDS = pool(
    "GREEN|BLUE|RED|GOLDEN|SILVER|WHITE|BLACK|ROYAL|GRAND|NEW|OLD|CITY|TOWN|RIVER|HILL|LAKE|OCEAN|ISLAND|VALLEY|FOREST"
    "|MOUNTAIN|SUN|MOON|STAR|SKY|RAINBOW|EAGLE|LION|TIGER|DRAGON|PHOENIX|SWAN|DOLPHIN|ROSE|LOTUS|ORCHID|MAPLE|CEDAR"
    "|OLIVE|LEMON|APPLE|CHERRY|MANGO|COCONUT|SPICE|PEPPER|HONEY|SUGAR|BREAD|HAPPY|LUCKY|FRESH|QUICK|EASY|BEST|FIRST"
    "|PRIME|CENTRAL|NORTH|SOUTH|EAST|WEST|CORNER|STATION|PLAZA|PARK|GARDEN|BRIDGE|TOWER|GATE|HARBOUR|PORT|BAY|BEACH"
    "|COAST|VILLAGE|FAMILY|EXPERT|EXPRESS|SUPER|MEGA|ULTRA|UNITED|GLOBAL|WORLD|METRO|URBAN|CLASSIC|MODERN|DIAMOND"
    "|CRYSTAL|PEARL|JADE|RUBY|CROWN|KING|QUEEN|PRINCE|HEARTH|SWEET|SPRING|SUMMER|WINTER|SUNNY|BRIGHT|SMART|TOP|ACE"
    "|OMEGA|ALPHA|DELTA|ORION|NOVA|LUNA|TERRA|AQUA|VITA|BELLA|CASA|DELLA|BINTANG|MELATI|PELANGI|GARUDA|KRISHNA|LAKSHMI"
    "|SHREE|RAJ|ANAND|MARIA|JOSE|PEDRO|ROSA|ANTONIO|GIOVANNI|MARCO|PIERRE|MARIE|HANS|KARL|ANNA|OLGA|IVAN|ALI|YUSUF"
    "|OMAR|FATIMA|KENJI|SAKURA|MING|MEI|SOLEIL|ETOILE|FLEUR|VIEUX|STERN|ADLER|ROSEN|LINDE|FLOR|MONTE|FUENTE|STELLA"
    "|VERDE|BLOEM|MOLEN|GOUDEN|STRAND|SKOG|SOL|BJORK|GWIAZDA|SLONCE|DWOR|YILDIZ|DENIZ|CINAR|SAFARI|BARAKA|SIMBA|NILE"
    "|KIWI|HANA||AMBER|COPPER|FALCON|HARVEST|WILLOW|ZENITH"
)
STREETS = {
    "en": "STREET|ROAD|ST|RD|AVENUE|AVE|LANE|DRIVE|BLVD|HIGH STREET|WAY|CRESCENT|PLACE|HIGHWAY|SQUARE||TERRACE",
    "de": "STR.|STRASSE|WEG|PLATZ|ALLEE|GASSE",
    "fr": "RUE|AVENUE|BD|PLACE|RUE DE|QUAI",
    "es": "CALLE|C/|AV.|AVENIDA|PASEO|PLAZA",
    "it": "VIA|VIALE|PIAZZA|CORSO|LARGO",
    "nl": "STRAAT|WEG|LAAN|PLEIN|KADE",
    "pt": "RUA|AV.|AVENIDA|TRAVESSA|PRACA",
    "id": "JL.|JALAN|JLN|JL. RAYA",
    "sv": "GATAN|VAGEN|TORGET",
    "da": "GADE|VEJ|TORV|ALLE",
    "pl": "UL.|AL.|PL.",
    "tr": "CAD.|SOK.|MAH.",
}
BEFORE = ("fr", "es", "it", "pt", "id", "pl")  # languages in which the kind of street comes before its name
PREMISES = ("NO. ", "UNIT ", "SHOP ", "PLOT ", "SUITE ", "BLOCK ")  # before an English house number
GOODS = pool(
    "MILK|BREAD|RICE|EGGS|BUTTER|CHEESE|YOGURT|CHICKEN|BEEF|FISH FILLET|PRAWNS|NOODLES|PASTA|TOMATOES|POTATOES|ONIONS"
    "|APPLES|BANANAS|ORANGES|GREEN TEA|COFFEE|LATTE|ESPRESSO|COLA|MINERAL WATER|JUICE|BEER|WINE|CHOCOLATE|BISCUITS"
    "|CHIPS|ICE CREAM|CAKE|SANDWICH|BURGER|FRIES|PIZZA|SALAD|SOUP|FRIED RICE|CURRY|STEAK|SUGAR|SALT|OIL|FLOUR|SAUCE"
    "|SHAMPOO|SOAP|TOOTHPASTE|TISSUE|DETERGENT|BATTERY AA|LIGHT BULB|LED LAMP|CABLE|PLUG|ADAPTER|SOCKET|SWITCH|TAPE"
    "|GLUE|PAINT|BRUSH|SCREW|BOLT M8|HINGE|HAMMER|DRILL BIT|PIPE|VALVE|HOSE|BUCKET|BROOM|NOTEBOOK|PEN|PENCIL|MARKER"
    "|PAPER A4|FOLDER|ENVELOPE|STAPLER|RULER|T-SHIRT|SOCKS|BELT|CAP|SHOES|BAG|UMBRELLA|WATCH|TOY CAR|PUZZLE|CARD"
    "|BALLOON|CANDLE|FRAME|VASE|CUSHION|TOWEL|PLATE|CUP|SPOON|KNIFE|PAN|BOTTLE|TYRE|OIL FILTER|ENGINE OIL|PETROL"
    "|DIESEL|PARKING|TICKET|SERVICE|REPAIR|DELIVERY|HAIRCUT|TABLETS|VITAMIN C|BANDAGE|CREAM||LEMONADE|PANCAKES"
    "|MOUSE PAD|TORCH"
)
SIZES = tuple("500G|1L|2PCS|1KG|330ML|12S|XL|6X|250 G|1.5L|#2|(L)|(S)|PACK|SET|24MM|X2".split("|"))


def invented(dice: Dice) -> str:
    """A made-up name in capitals."""
    return name(dice, dice.randint(3, 9)).upper()


def word(dice: Dice) -> str:
    """A word of a name: a common one or a made-up one."""
    return invented(dice) if dice.chance(0.45) else dice.pick(WORDS, "words")


def _core(dice: Dice) -> str:
    """The name of a shop without its legal form."""
    trade = dice.pick(TRADES, "words")
    style = dice.randrange(12)
    if style <= 2:
        return f"{word(dice)} {trade}"
    if style <= 4:
        return f"{word(dice)} {word(dice)} {trade}"
    if style == 5:
        return f"{word(dice)} {trade} & {dice.pick(TRADES, 'words')}"
    if style == 6:
        return f"{invented(dice)} & {invented(dice)}" + (f" {trade}" if dice.chance(0.5) else "")
    if style == 7:
        dots = "." if dice.chance(0.6) else ""
        return dots.join(letters(dice, dice.choice((2, 3)))) + f"{dots} {trade}"
    if style == 8:
        return f"{trade} {word(dice)}" + (f" {word(dice)}" if dice.chance(0.4) else "")
    if style == 9:
        return f"{word(dice)}'S {trade}" if dice.chance(0.5) else f"THE {word(dice)} {trade}"
    if style == 10:
        return f"{word(dice)} {word(dice)}" + (f" {word(dice)}" if dice.chance(0.4) else "")
    return f"{word(dice)} {trade} ({word(dice)})" if dice.chance(0.6) else invented(dice)


def _long_core(dice: Dice) -> str:
    """A name of two to five words, often with initials or with a place in parentheses before the legal form."""
    words = [word(dice) for _ in range(dice.choice((1, 2, 2, 3)))]
    if dice.chance(0.2):
        initials = letters(dice, dice.choice((1, 2, 2, 3)))
        words.insert(dice.randrange(len(words) + 1), ".".join(initials) + "." if dice.chance(0.7) else initials)
    if dice.chance(0.15):
        words.insert(dice.randint(1, len(words)), "&")
    words += [dice.pick(TRADES, "words")] if dice.chance(0.75) or words[-1] == "&" else []
    words += ["&", dice.pick(TRADES, "words")] if dice.chance(0.2) else []
    if dice.chance(0.3):
        place = f"{word(dice)} {word(dice)}" if dice.chance(0.3) else word(dice)
        words.append(f"({dice.choice((place, place, letters(dice, 1)))})")
    return " ".join(words)


def shop(dice: Dice, country: Country) -> str:
    """The name of a shop in capitals, with its legal form more often than not."""
    long = dice.training and dice.chance(0.4)
    text = _long_core(dice) if long else _core(dice)
    suffix = code(dice, dice.choice(country.suffixes)) if dice.chance(0.8) else ""
    text = f"{text} {suffix}".strip()
    while len(text) > (LONGEST_NAME if long else LONGEST) and " " in text:
        text = text.rpartition(" ")[0]
    return text.rstrip(" &(").strip() if text.count("(") == text.count(")") else text.partition(" (")[0]


def street(dice: Dice, country: Country) -> str:
    """A street with its house number."""
    language = country.roads or country.language
    kind = dice.pick(pool(STREETS[language]), "words")
    first = word(dice) + (f" {word(dice)}" if dice.chance(0.25) else "")
    number = f"{dice.randint(1, 399)}" + (dice.choice(("A", "B", "-1", "/2", "")) if dice.chance(0.3) else "")
    road = f"{kind} {first}" if language in BEFORE else f"{first} {kind}"
    if country.number_last:
        return f"{road}{dice.choice((' ', ', '))}{number}"
    if dice.chance(0.15):
        road = f"{road} {dice.randint(1, 40)}"  # one of several roads of a name
    premise = dice.choice(PREMISES) if country.language == "en" and dice.chance(0.25) else ""
    return f"{premise}{number}{dice.choice((' ', ' ', ' ', ', '))}{road}"


def town(dice: Dice, country: Country) -> str:
    """A town with its postcode."""
    place = word(dice) + (f" {word(dice)}" if dice.chance(0.3) else "")
    post = code(dice, dice.choice(country.postcodes))
    return f"{place} {post}" if country.town_first else f"{post} {place}"


def person(dice: Dice) -> str:
    """The cashier: a name, a number or a role."""
    style = dice.randrange(6)
    if style == 0:
        return digits(dice, dice.randint(1, 4))
    if style == 1:
        return dice.choice(("CASHIER", "ADMIN", "USER", "MANAGER", "SELF", "POS1", "COUNTER"))
    return invented(dice) if style < 5 else f"{invented(dice)} {letters(dice, 1)}"


def goods(dice: Dice) -> str:
    """One article in capitals, at most 30 characters."""
    text = dice.pick(GOODS, "words")
    if dice.chance(0.45):
        text = f"{word(dice)} {text}"
    if dice.chance(0.3):
        text = f"{text} {dice.choice(SIZES)}"
    return text[:30].strip()
