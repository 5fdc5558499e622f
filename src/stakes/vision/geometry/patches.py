"""Token formulas that count square patches: Pixtral, Mistral 3, Kimi, Claude, the small GPTs, Gemma 4."""

import math
from bisect import bisect_right
from dataclasses import dataclass, replace

from stakes.errors import BadInput


@dataclass(frozen=True)
class EdgePatches:
    """Pixtral and Mistral 3: shrink the long side to ``longest_edge``, count patches and one break after each row.

        r = max(W, H) / longest_edge;  where r > 1:  w = floor(W / r),  h = floor(H / r)
        tokens = (ceil(w / patch) + 1) ceil(h / patch)

    Follows transformers' pixtral/image_processing_pixtral.py and processing_pixtral.py; ``patch`` is patch_size times
    spatial_merge_size. The [IMG_BREAK] after each row, which is [IMG_END] after the last, counts.
    """

    longest_edge: int
    patch: int

    def tokens(self, width: int, height: int) -> int:
        """Tokens that the processor writes for one image, row breaks included."""
        ratio = max(height / self.longest_edge, width / self.longest_edge)
        w, h = (math.floor(width / ratio), math.floor(height / ratio)) if ratio > 1 else (width, height)
        if min(w, h) < 1:
            raise BadInput(
                f"an image of {width}x{height} is too thin for Pixtral: at {self.longest_edge} pixels on the long side "
                "the other is less than one pixel, and the processor fails; crop it"
            )
        return (math.ceil(w / self.patch) + 1) * math.ceil(h / self.patch)


@dataclass(frozen=True)
class NavitPatches:
    """Kimi: shrink to ``most`` patches and to ``edge`` patches per side, then pad to whole squares of merged patches.

        s = min(1, sqrt(most / (floor(W / patch) floor(H / patch))), edge patch / W, edge patch / H)
        tokens = ceil(floor(sW) / (patch merge)) ceil(floor(sH) / (patch merge))

    Follows ``navit_resize`` of transformers' kimi_k25/image_processing_kimi_k25.py. Kimi-VL has no limit per side
    (``edge`` is 0), and refuses an image of ``refuse`` patches on a side.
    """

    most: int
    edge: int = 0
    refuse: int = 0
    patch: int = 14
    merge: int = 2

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of one image; the markers around it do not count."""
        scale = math.sqrt(self.most / (max(1, height // self.patch) * max(1, width // self.patch)))
        longest = self.edge * self.patch
        if longest:
            scale = min(scale, longest / height, longest / width)
        w, h = (max(1, int(side * min(1.0, scale))) for side in (width, height))
        if longest:
            w, h = min(w, longest), min(h, longest)
        columns, rows = (math.ceil(side / (self.patch * self.merge)) for side in (w, h))
        if self.refuse and max(columns, rows) * self.merge >= self.refuse:
            raise BadInput(
                f"an image of {width}x{height} is too long for Kimi-VL: one side has {self.refuse} patches or more "
                "after resizing, and the processor fails; crop it"
            )
        return columns * rows


@dataclass(frozen=True)
class PaddedPatches:
    """Claude: the largest size of the same shape within ``edge`` and ``most`` tokens, padded to whole patches.

        tokens = ceil(w / 28) ceil(h / 28)

    The long side is the largest that fits, found by bisection. The short side is rounded (half to even), as in the
    vision documentation. The service rejects images with a side above ``refuse`` pixels.
    """

    edge: int
    most: int
    patch: int = 28
    refuse: int = 8000

    def tokens(self, width: int, height: int) -> int:
        """Billed tokens of one image."""
        if max(width, height) > self.refuse:
            raise BadInput(
                f"an image of {width}x{height} has a side above {self.refuse} pixels, which Claude rejects; resize it"
            )
        long, short = max(width, height), min(width, height)
        if long <= self.edge and self._count(long, short) <= self.most:
            return self._count(long, short)

        def tokens_at(edge: int) -> int:
            return self._count(edge, max(1, round(short * edge / long)))

        edges = range(1, min(long, self.edge) + 1)  # one pixel always fits
        return tokens_at(bisect_right(edges, self.most, key=tokens_at))

    def _count(self, long: int, short: int) -> int:
        return math.ceil(long / self.patch) * math.ceil(short / self.patch)


@dataclass(frozen=True)
class BudgetPatches:
    """The small GPTs (gpt-4.1-mini, o4-mini): at most ``most`` patches of 32 pixels, times the model's multiplier.

        where ceil(W / 32) ceil(H / 32) > most:
            r = sqrt(32² most / (WH)),  r = r min(floor(Wr / 32) / (Wr / 32), floor(Hr / 32) / (Hr / 32))
        tokens = ceil(multiplier · patches)

    An image so thin that r leaves less than one patch across counts as a single row of ``most`` patches. The guide does
    not say how the product is rounded; rounding up is assumed. Models from gpt-5.4 on shrink the long side to ``edge``
    first (0: they do not), have a detail ``low`` of so many patches, and some a detail "original" of ``original``
    patches within ``original_edge`` pixels.
    """

    multiplier: float
    most: int = 1536
    patch: int = 32
    edge: int = 0
    low: int = 0
    original: int = 0
    original_edge: int = 0

    @property
    def most_tokens(self) -> int:
        """The most that any image takes."""
        return self._billed(self.most)

    @property
    def low_tokens(self) -> int:
        """What every image takes at detail "low"; 0 where the guide does not say."""
        return self._billed(self.low)

    def at_original(self) -> "BudgetPatches":
        """The formula at detail "original"."""
        return replace(self, most=self.original, edge=self.original_edge)

    def tokens(self, width: int, height: int) -> int:
        """Billed tokens of one image."""
        long, edge = max(width, height), self.edge
        if edge and long > edge:
            width, height = round(width * edge / long) or 1, round(height * edge / long) or 1
        columns, rows = math.ceil(width / self.patch), math.ceil(height / self.patch)
        if columns * rows > self.most:
            columns, rows = self._shrunk(width, height)
        return self._billed(columns * rows)

    def _billed(self, patches: int) -> int:
        # Rounded first, so that 100 patches at 1.62 are 162 tokens and not 163.
        return math.ceil(round(patches * self.multiplier, 6))

    def _shrunk(self, width: int, height: int) -> tuple[int, int]:
        ratio = math.sqrt(self.patch**2 * self.most / (width * height))
        across, down = width * ratio / self.patch, height * ratio / self.patch
        # Along the side that sets r, the number of patches is whole by construction; the other is rounded up.
        if min(across, down) < 1:
            return (self.most, 1) if width > height else (1, self.most)
        if math.floor(across) / across <= math.floor(down) / down:
            columns = math.floor(across)
            return columns, -(-columns * height // width)
        rows = math.floor(down)
        return -(-rows * width // height), rows


MENU = (70, 140, 280, 560, 1120)  # values that Gemma 4's max_soft_tokens may take


@dataclass(frozen=True)
class Gemma4:
    """Gemma 4: at most ``max_soft_tokens`` squares of 48 pixels (patches of 16, pooled 3 x 3), aspect ratio kept.

        s = sqrt(max_soft_tokens 48² / (WH));  tokens = floor(sW / 48) floor(sH / 48)
        an image so thin that a side gets no square: one row (or column) of max_soft_tokens

    Every image is rescaled to fill that budget, so resizing it changes nothing. Follows
    ``get_aspect_ratio_preserving_size`` of transformers' gemma4/image_processing_gemma4.py. The two markers around the
    image do not count.
    """

    max_soft_tokens: int = 280
    square: int = 48

    def __post_init__(self) -> None:
        if self.max_soft_tokens not in MENU:
            raise BadInput(f"Gemma 4's max_soft_tokens must be one of {MENU}, not {self.max_soft_tokens}")

    @property
    def most_tokens(self) -> int:
        """The most that any image takes."""
        return self.max_soft_tokens

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of one image."""
        scale = math.sqrt(self.max_soft_tokens * self.square**2 / (height * width))
        columns, rows = math.floor(scale * width / self.square), math.floor(scale * height / self.square)
        # The original gives a thin image floor(long / short) squares, at most max_soft_tokens; the ratio is never less.
        return columns * rows or self.max_soft_tokens


@dataclass(frozen=True)
class Fixed:
    """The same number of tokens for every image (Gemini 3 at one media resolution, LLaVA-1.5)."""

    per_image: int

    @property
    def most_tokens(self) -> int:
        """The most that any image takes."""
        return self.per_image

    def tokens(self, width: int, height: int) -> int:  # noqa: ARG002
        """Billed tokens of one image."""
        return self.per_image
