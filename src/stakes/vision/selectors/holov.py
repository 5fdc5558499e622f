"""HoloV (Zou et al., 2025) spreads the budget over strips of the page, by attention and by variety inside each strip.

The N tokens in reading order are cut into P strips of equal length (the first N mod P are one longer). In a strip, with
a the encoder attention of its tokens times 1,000 and v_i the variance of token i's cosines with the others,

    score_i = a_i + 0.09 v_i mean|a| / mean|v|,       share_p = mean of its scores / sum over strips

and the strip gets floor(B share_p) tokens, those with the most attention; what rounding leaves goes, one each, to the
strips with the largest shares. ``strips=None`` takes P = (1024 / 576) N / B, as the public code for Qwen2.5-VL; its
code for LLaVA takes 16.

Differences from the public code: a strip that is allotted more tokens than it has passes the excess on to the strips
with the largest shares that have room, where the code pads with zero vectors (in Qwen2.5-VL all at the position of the
last token); what rounding leaves beyond one per strip is passed on alike; attention is the mean over heads and queries
of one encoder block (the code for LLaVA reads CLS); ties go to the lowest index. With as many tokens as the budget all
are kept. The selection at one budget is not part of that at a larger one.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stakes.errors import BadInput
from stakes.vision.deletion.exact import Selection
from stakes.vision.selectors.base import Scene, Selector, top

VARIETY = 0.09  # the weight of variance against attention
SCALE = 1000.0
SMALL = 1e-6


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
        received, features = scene.received.float(), scene.features.float()
        strips = torch.tensor_split(torch.arange(native, device=features.device), min(count, native))
        scores = torch.stack([_strip_score(features[strip], received[strip]) for strip in strips])
        shares = (scores / (scores.sum() + SMALL)).nan_to_num(0.0)  # values that are not finite are reported later
        kept = _allot(shares, [len(strip) for strip in strips], budget)
        return Selection(torch.cat([strip[top(received[strip], n)] for strip, n in zip(strips, kept, strict=True)]))


def _strip_score(features: Tensor, received: Tensor) -> Tensor:
    """The mean score of a strip's tokens; a single token has its attention, unscaled as in the public code."""
    size = len(features)
    if size == 1:
        return received[0]
    units = features / (features.norm(dim=1, keepdim=True) + SMALL)
    similarity = (units @ units.T).fill_diagonal_(0)
    mean = similarity.sum(1, keepdim=True) / (size - 1)
    variety = (similarity - mean).square().sum(1) / (size - 1)
    attention = received * SCALE
    weight = VARIETY * attention.abs().mean() / (variety.abs().mean() + SMALL)
    score: Tensor = (attention + weight * variety).mean()
    return score


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
