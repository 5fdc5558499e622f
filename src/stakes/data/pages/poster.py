"""What does an infographic look like, and what may it still ask? Its letters and colours, and offers of questions."""

from stakes.data.pages.canvas import Ask, Canvas, Colour
from stakes.data.pages.charts import PALETTES
from stakes.data.pages.faces import face
from stakes.data.pages.filler import sentence
from stakes.data.pages.typefaces import POSTERS, typeface

BASE = (9.5, 13.0)  # pixels
MOST = 24  # questions


class Poster:
    """An infographic in progress: its look and what it still may ask."""

    def __init__(self, canvas: Canvas, density: float) -> None:
        dice = canvas.dice
        self.canvas, self.dice = canvas, dice
        self.text_name, self.bold_name = typeface(dice, POSTERS)
        self.base = dice.uniform(*BASE) / density
        self.colours = [*dice.pick(PALETTES, "layout")]
        dice.shuffle(self.colours)
        self.offers: dict[str, list[tuple[int, Ask]]] = {"high": [], "low": []}

    def show(self, x: float, y: float, text: str, size: float, ink: Colour, ask: Ask, bold: bool = False) -> float:
        """Print something that may be asked for."""
        letters = face(self.bold_name if bold else self.text_name, round(size))
        self.offers[ask.tier].append((self.canvas.run(x, y, text, letters, ink), ask))
        return round(x) + letters.width(text)

    def pair(
        self,
        named: tuple[float, float, str, float, bool],
        numbered: tuple[float, float, str, float, bool],
        ink: Colour,
        low: Ask,
        high: Ask,
    ) -> None:
        """Print a name and its number, (x, y, text, size, bold) each; one is asked for, as it gives the other away."""
        # quoting a percentage makes a low-stakes question loud, so it is done less often
        asked = self.dice.chance(0.25 if "%" in numbered[2] else 0.65)
        for (x, y, text, size, bold), ask, offered in ((named, low, asked), (numbered, high, not asked)):
            letters = face(self.bold_name if bold else self.text_name, round(size))
            run = self.canvas.run(x, y, text, letters, ink)
            if offered:
                self.offers[ask.tier].append((run, ask))

    def note(self, x: float, y: float, width: float, height: float, ink: Colour) -> None:
        """Small print that fills the given room."""
        letters = face(self.text_name, round(self.base * 0.85))
        line, bottom = "", y + height
        words = " ".join(sentence(self.dice) for _ in range(1 + int(width * height / 9000))).split(" ")
        for word in words:
            if letters.width(line + word) > width:
                if y + letters.size * 1.25 > bottom:
                    return
                self.canvas.text(x, y, line.rstrip(), letters, ink)
                y += letters.size * 1.3
                line = ""
            line += word + " "

    def ask(self) -> None:
        """Put the questions: both tiers alike, from all over the page."""
        share = self.dice.randint(MOST // 2 - 5, MOST // 2)
        for offers in self.offers.values():
            for run, ask in self.dice.sample(offers, min(share, len(offers))):
                self.canvas.ask_run(run, ask)
