"""What scanning does to a page: tint, grain, a little unsharpness; and the walls that signs hang on.

Grain is cut from one noise tile made once per process from a fixed seed, so a page pays for an addition only.
"""

import random
from functools import cache

from PIL import Image, ImageChops, ImageFilter

from stakes.data.pages.canvas import Colour
from stakes.data.pages.dice import Dice

TILE = 1640  # the largest canvas plus room to shift the cut


@cache
def _grain(strength: int) -> Image.Image:
    """Noise around 128, ``strength`` levels wide, as RGB."""
    source = random.Random(f"stakes grain {strength}")
    raw = Image.frombytes("L", (TILE, TILE), source.randbytes(TILE * TILE))
    low = 128 - strength
    soft = raw.point([low + value * 2 * strength // 255 for value in range(256)])
    return Image.merge("RGB", (soft, soft, soft))


def grain(image: Image.Image, dice: Dice, strength: int) -> Image.Image:
    """The image with noise of up to ``strength`` levels either way."""
    width, height = image.size
    left, top = dice.randrange(TILE - width), dice.randrange(TILE - height)
    return ImageChops.add(image, _grain(strength).crop((left, top, left + width, top + height)), 1, -128)


def scan(image: Image.Image, dice: Dice) -> Image.Image:
    """The page as a scanner would deliver it: half of the pages clean, the others tinted, grainy or soft."""
    if dice.chance(0.4):
        paper: Colour = (dice.randint(236, 255), dice.randint(234, 252), dice.randint(222, 248))
        ink = dice.randint(0, 45)
        ramps = [[ink + value * (top - ink) // 255 for value in range(256)] for top in paper]
        image = image.point(ramps[0] + ramps[1] + ramps[2])
    if dice.chance(0.12):
        image = image.filter(ImageFilter.Kernel((3, 3), (1, 3, 1, 3, 16, 3, 1, 3, 1)))
    if dice.chance(0.45):
        image = grain(image, dice, dice.choice((4, 8, 12)))
    return image


@cache
def _cloud(index: int) -> Image.Image:
    """Soft blotches around 128, as RGB, one of a few."""
    source = random.Random(f"stakes cloud {index}")
    side = (9, 24, 60)[index % 3]
    raw = Image.frombytes("L", (side, side), source.randbytes(side * side))
    soft = raw.resize((1024, 1024), Image.Resampling.BICUBIC).point([96 + value // 4 for value in range(256)])
    return Image.merge("RGB", (soft, soft, soft))


def wall(size: tuple[int, int], colour: Colour, dice: Dice) -> Image.Image:
    """A blotchy, grainy surface of about this colour."""
    cloud = _cloud(dice.randrange(6)).crop((0, 0, *size))
    plain = Image.new("RGB", size, colour)
    return grain(ImageChops.add(plain, cloud, 1, -128), dice, dice.choice((8, 12)))
