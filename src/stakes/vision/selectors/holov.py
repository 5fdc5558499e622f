"""HoloV (Zou et al., 2025) spreads the budget over strips of the page by their attention.

The N tokens in reading order are cut into P strips of equal length (the first N mod P are one longer). With a the
encoder attention,

    share_p = mean of a in strip p / sum of these means

and the strip gets floor(B share_p) tokens, those with the most attention; what rounding leaves goes, one each, to the
strips with the largest shares. ``strips=None`` takes P = (1024 / 576) N / B, as the public code for Qwen2.5-VL; its
code for LLaVA takes 16.

The paper adds the variety v of a token's cosines inside its strip. In the public code this changes nothing: v is scaled
by 0.09 mean a / mean v of the strip, so the strip's mean is 1.09 mean a, whatever v. It is left out here.

Differences from the public code: a strip that is allotted more tokens than it has passes the excess on to the strips
with the largest shares that have room, where the code pads with zero vectors (in Qwen2.5-VL all at the position of the
last token); what rounding leaves beyond one per strip is passed on alike; a strip of one token counts like the others,
not a thousandth; attention is the mean over heads and queries of one encoder block (the code for LLaVA reads CLS); ties
go to the lowest index. The selection at one budget is not part of that at a larger one.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stakes.errors import BadInput
from stakes.vision.deletion.exact import Selection
from stakes.vision.selectors.base import Scene, Selector, top


@dataclass(frozen=True)
class HoloV(Selector):
    """A share of the budget for every strip; in a strip, the most attention."""

    name: ClassVar[str] = "holov"
    needs_encoder_attention: ClassVar[bool] = True
    strips: int | None = None

    def __post_init__(self) -> None:
        if self.strips is not None and (type(self.strips) is not int or self.strips < 1):
            raise BadInput(f"holov cuts the page into a number of strips such as strips=16, not {self.strips!r}")

    def choose(self, scene: Scene, budget: int) -> Selection:
        """The tokens of every strip with the most attention."""
        if scene.received is None:
            raise BadInput("holov reads the encoder's attention, which this model's encoder does not give")
        native = len(scene.features)
        count = self.strips or max(1, int(1024 / 576 * native / budget))
        received = scene.received.float()
        strips = torch.tensor_split(torch.arange(native, device=received.device), min(count, native))
        means = torch.stack([received[strip].mean() for strip in strips])
        shares = (means / means.sum()).nan_to_num(0.0)  # a page without attention; bad values are reported later
        kept = _allot(shares, [len(strip) for strip in strips], budget)
        return Selection(torch.cat([strip[top(received[strip], n)] for strip, n in zip(strips, kept, strict=True)]))


def _allot(shares: Tensor, sizes: list[int], budget: int) -> list[int]:
    """Tokens of every strip, at most its size, ``budget`` in all; the largest shares take what is left, one each."""
    allotted = (shares * budget).floor().long().tolist()
    order = top(shares, len(shares)).tolist()
    left = budget - sum(allotted)
    for strip in order[: max(0, left)]:
        allotted[strip] += 1
    kept = [min(one, size) for one, size in zip(allotted, sizes, strict=True)]
    while (left := budget - sum(kept)) > 0:
        for strip in [strip for strip in order if kept[strip] < sizes[strip]][:left]:
            kept[strip] += 1
    return kept
