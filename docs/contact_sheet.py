"""Draw a few synthetic pages of every family on one sheet: ``python docs/contact_sheet.py docs/dev/pages.png``."""

import sys

from PIL import Image

from stakes.data import synthetic

CELL = (250, 330)
SEEDS = {
    "forms": (3, 8, 11, 14, 17, 21),
    "receipts": (0, 1, 3, 5, 6, 14),
    "infographics": (1, 2, 5),
    "charts": (0, 1, 8),
    "signs": (0, 4),
    "shapes": (1,),
    "swatches": (2,),
}


def contact_sheet(columns: int = 6) -> Image.Image:
    """A few pages of each family, small, side by side; forms take the first row, receipts the second."""
    shown = [synthetic.draw(family, seed, "test").image for family, seeds in SEEDS.items() for seed in seeds]
    rows = -(-len(shown) // columns)
    sheet = Image.new("RGB", (columns * CELL[0], rows * CELL[1]), (120, 120, 120))
    for index, image in enumerate(shown):
        image.thumbnail((CELL[0] - 8, CELL[1] - 8), Image.Resampling.LANCZOS)
        row, column = divmod(index, columns)
        left = column * CELL[0] + (CELL[0] - image.width) // 2
        sheet.paste(image, (left, row * CELL[1] + (CELL[1] - image.height) // 2))
    return sheet.quantize(200, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else "pages.png"
    contact_sheet().save(target, optimize=True)
    print(target)
