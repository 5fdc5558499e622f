"""Which letters does a page have? A family's own pool, and in training many more, some of them bent.

A reader that is trained on a dozen typefaces learns them by heart: on test forms in a thirteenth it misread 23 values
in 100, on those with nothing new 5. So half of the training pages are set in typefaces that no other page has, and half
of all training pages have theirs bent: narrower or wider, slanted, bolder or lighter.

    typeface(dice, FORMS)     # ("Go-Regular", "Go-Bold"), or in training ("Karla-Regular~2", "Karla-Bold~2")
"""

from typing import TypeVar, cast

from stakes.data.pages.dice import Dice, Pool

BENT = 0.5

# (width, slant, weight): how wide, how far a letter leans per pixel of height, how much its strokes gain or lose
BENDS = ((0.87, 0.0, 0.0), (1.13, 0.0, 0.0), (1.0, 0.14, 0.0), (0.94, 0.22, 0.0), (1.0, 0.0, 0.6), (1.06, 0.0, -0.3))

# (text, bold) pairs for training only
TRAINING = (
    ("Karla-Regular", "Karla-Bold"),
    ("Quicksand-Medium", "Quicksand-Bold"),
    ("Cantarell-Regular", "Cantarell-Bold"),
    ("Sora-Regular", "Karla-Bold"),
    ("Manrope-Regular", "Cantarell-Bold"),
    ("AveriaSansGWF-Regular", "Karla-Bold"),
    ("AveriaSerifGWF-Regular", "AveriaSerifGWF-Regular"),
    ("GFSDidot", "LiberationSerif-Bold"),
    ("Prociono", "LiberationSans-Bold"),
    ("LeagueMono-Regular", "Karla-Bold"),
    ("mononoki-Regular", "Quicksand-Bold"),
    ("OpenSans-Regular", "VeraBd"),
    ("LibreFranklin-Regular", "LibreFranklin-Bold"),
    ("Chivo-Regular", "LibreFranklin-Bold"),
    ("QuattrocentoSans-Regular", "LibreFranklin-Bold"),
    ("IBMPlexSansCondensed-Regular", "LibreFranklin-Bold"),
    ("Vera", "VeraBd"),
    ("VeraSe", "VeraSeBd"),
    ("IBMPlexSerif-Regular", "VeraSeBd"),
    ("LibreCaslonText-Regular", "VeraSeBd"),
    ("LibreBaskerville-Regular", "LiberationSerif-Bold"),
    ("IbarraRealNova-Regular", "Bitter-Bold"),
    ("Bitter-Regular", "Bitter-Bold"),
    ("VeraMono", "VeraBd"),
    ("IBMPlexMono-Regular", "IBMPlexMono-Regular"),
    ("LibertinusMono-Regular", "VeraSeBd"),
)

# In each pool the second part is kept out of training.
FORMS = Pool(  # and charts
    (
        ("LiberationSans-Regular", "LiberationSans-Bold"),
        ("LiberationSans-Regular", "LiberationSans-Bold"),
        ("LiberationSerif-Regular", "LiberationSerif-Bold"),
        ("LiberationSerif-Regular", "LiberationSerif-Bold"),
        ("LiberationSerif-Regular", "LiberationSans-Bold"),
        ("LiberationMono-Regular", "LiberationMono-Regular"),
        ("Go-Regular", "Go-Bold"),
        ("Go-Mono", "Go-Bold"),
        ("RobotoSlab-Regular", "RobotoSlab-Bold"),
        ("Cabin-Regular", "Go-Bold"),
        ("CourierPrime-Regular", "CourierPrime-Regular"),
    ),
    (("Caladea-Regular", "Caladea-Regular"), ("Oxygen-Sans", "Oxygen-Sans")),
    TRAINING,
)
POSTERS = Pool(  # infographics
    (
        ("LiberationSans-Regular", "LiberationSans-Bold"),
        ("Go-Regular", "Go-Bold"),
        ("RobotoSlab-Regular", "RobotoSlab-Bold"),
        ("Cabin-Regular", "Go-Bold"),
        ("LiberationSans-Regular", "YanoneKaffeesatz-Bold"),
        ("LiberationSerif-Regular", "LiberationSans-Bold"),
    ),
    (("Oxygen-Sans", "Oxygen-Sans"), ("Caladea-Regular", "Caladea-Regular")),
    TRAINING,
)
SIGNS = Pool(
    (
        ("LiberationSans-Bold",),
        ("LiberationSerif-Bold",),
        ("Go-Bold",),
        ("RobotoSlab-Bold",),
        ("YanoneKaffeesatz-Bold",),
        ("LiberationSans-Regular",),
    ),
    (("Caladea-Regular",), ("Oxygen-Sans",)),
    tuple((name,) for name in dict.fromkeys(name for pair in TRAINING for name in pair)),
)


Names = TypeVar("Names", bound=tuple[str, ...])


def typeface(dice: Dice, choices: Pool[Names]) -> Names:
    """Names for ``face``: of this family's pool, or in training also others, each with its bend behind a ``~``."""
    names = dice.pick(choices, "font")
    if not (dice.training and dice.chance(BENT)):
        return names
    bend = dice.randrange(len(BENDS))
    return cast(Names, tuple(f"{name}~{bend}" for name in names))
