"""The look of a receipt: typeface, line length, ink and canvas size.

The second part of each pool is held out of training, the third is for training alone, beside ``Extras.typefaces``.

    look = draw_look(dice, density=1.0)
    look.face(18, bold=True, wide=False).mask("TOTAL")
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from zlib import crc32

from stakes.data.synthetic.canvas import Color
from stakes.data.synthetic.dice import Dice, Pool
from stakes.data.synthetic.receipts.paper import Size
from stakes.data.synthetic.typefaces import Face, face

SIZES: tuple[Size, ...] = (
    (560, 1176), (448, 1120), (504, 1288), (616, 1596), (644, 1176), (728, 1120), (700, 1316), (448, 1568), (812, 1148),
    (924, 1036), (1036, 924),
)  # fmt: skip
LARGE = tuple(size for size in SIZES if size[0] >= 700)

MONO = Pool(
    (
        *("LiberationMono-Regular", "VeraMono", "IBMPlexMono-Regular", "Go-Mono", "LeagueMono-Regular"),
        "CourierPrime-Regular",
    ),
    (),
    ("LibertinusMono-Regular", "mononoki-Regular"),
)
SANS = Pool(
    ("LiberationSans-Regular", "Vera", "Go-Regular", "IBMPlexSansCondensed-Regular", "OpenSans-Regular"),
    ("Oxygen-Sans",),
    ("Karla-Regular", "Cabin-Regular", "LibreFranklin-Regular", "Chivo-Regular", "LiberationSerif-Regular"),
)
BOLD = {
    "LiberationSans-Regular": "LiberationSans-Bold",
    "Vera": "VeraBd",
    "Go-Regular": "Go-Bold",
    "Karla-Regular": "Karla-Bold",
}
LOGOS = ("LiberationSans-Bold", "LiberationSans-Bold", "LiberationSerif-Bold", "Go-Bold", "RobotoSlab-Bold", "VeraBd")

# Indices into typefaces.DISTORTIONS and typefaces.PRINTERS.
PRINTED = ("", "~0", "~6", "~7", "~10", "~11", "~1", "~8", "~4", "~5")  # all but slanted and double width
HEAVY, WIDE = "~4", "~9"
# Dot-matrix typefaces among ``Extras.typefaces``, by the start of their names.
DOTTED = ("bitcount", "doto", "dotgothic", "handjet", "jersey", "pixelify", "unifont", "vt323")


@dataclass(frozen=True)
class Look:
    """Typefaces, leading and ink of one receipt; ``chars`` is how many letters fill a line."""

    name: str
    bold: str
    wide: str
    chars: int
    leading: float
    ink: Color
    foreign: str  # of a logo or a note

    def face(self, size: float, bold: bool, wide: bool) -> Face:
        """The typeface of a line."""
        return face(self.wide if wide else self.bold if bold else self.name, round(size))

    @property
    def letter_width(self) -> float:
        """The mean width of a letter in units of the type size."""
        return face(self.name, 20).width("ABCDEFGHIJKLMNOP 0123456789") / 27 / 20

    @property
    def line_width(self) -> float:
        """The width of a full line in units of the type size."""
        return self.chars * self.letter_width


def draw_look(dice: Dice, density: float) -> Look:
    """A random look; ``density`` above 1 prints smaller, below 1 it changes nothing."""
    further = dice.extras.typefaces if dice.training else ()
    dotted = dice.extras.named(DOTTED) if dice.training else []
    if dotted and dice.chance(0.12):
        name = dice.choice(dotted)
    elif further and dice.chance(0.5):
        name = dice.choice(further)
    else:
        name = dice.pick(MONO if dice.chance(0.6) else SANS, "font")
    distortion = dice.choice(_distortions(name)) if dice.training else ""
    bold = BOLD[name] + distortion if name in BOLD else name + HEAVY
    chars = round(exp(dice.uniform(log(28), log(56))) * max(density, 1.0))
    return Look(name + distortion, bold, name + WIDE, chars, dice.uniform(1.05, 1.45), _ink(dice), dice.choice(LOGOS))


def _distortions(name: str) -> Sequence[str]:
    """No distortion and three others, always the same for a typeface: a render worker then reuses drawn letters."""
    first = crc32(Path(name).name.encode())
    return ("", *(PRINTED[(first + 3 * i) % len(PRINTED)] for i in range(3)))


def _ink(dice: Dice) -> Color:
    """Black, gray, or the blue and violet of thermal paper and ribbons, on training pages often pale."""
    if dice.training and dice.chance(0.1):
        pale = dice.randint(60, 165)
        return (pale + dice.randint(-10, 15), pale, min(255, pale + dice.randint(60, 100)))
    dark = dice.choice((0, 0, 20, 40, 60, 90))
    if dice.chance(0.2):
        return (dark + 20, dark + 20, min(255, dark + dice.randint(60, 130)))
    return (dark, dark, dark)


def canvas_size(dice: Dice, aspect: float) -> Size:
    """A canvas about as tall as the receipt needs; 10 % of the time any."""
    if dice.chance(0.1):
        return dice.choice(SIZES)
    return dice.weighted(SIZES, [exp(-8 * abs(log(h / w / aspect))) + 0.002 for w, h in SIZES])
