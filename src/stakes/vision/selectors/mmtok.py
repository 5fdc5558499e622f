"""MMTok (Dong et al., 2025) keeps the tokens that best cover both the question and the page.

With m question tokens and N visual tokens, both as unit vectors,

    P = softmax_j(z_i . x_j / 0.02) / m   [m, N],     Q = 0.5 softmax_j(x_i . x_j / 0.2) / N   [N, N]

greedy maximum coverage of the rows of [P; Q]: the next token is the j with the largest sum_i max(0, C_ij - best_i),
where best_i is the largest C_ij of the tokens chosen so far. Nested for one question.

Differences from the public code: the page is compared with itself on the merged features, where the code for LLaVA
takes those before the projector; the question is all its tokens, where the code for LLaVA leaves stop words out and the
code for Qwen puts "Question: " in front; ties go to the lowest index.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from stakes.errors import BadInput
from stakes.vision.selectors.base import Scene, Selector

QUESTION_TEMPERATURE, PAGE_TEMPERATURE = 0.02, 0.2


@dataclass(frozen=True)
class MMTok(Selector):
    """Greedy maximum coverage of question and page. ``page``: the weight of the page."""

    name: ClassVar[str] = "mmtok"
    per_image: ClassVar[bool] = False
    page: float = 0.5

    def __post_init__(self) -> None:
        number = isinstance(self.page, int | float) and not isinstance(self.page, bool)
        if not (number and 0 <= self.page < float("inf")):
            raise BadInput(f"mmtok's weight of the page is a number from 0 on, such as page=0.5, not {self.page!r}")

    def rank(self, scene: Scene, count: int) -> Tensor:
        """[count] indices in greedy order."""
        if scene.question is None or len(scene.question) == 0:
            raise BadInput("mmtok needs the question's tokens, and the question is empty")
        units, words = normalize(scene.features.float(), dim=-1), normalize(scene.question.float(), dim=-1)
        question = (words @ units.T / QUESTION_TEMPERATURE).softmax(1) / len(words)
        page = self.page * (units @ units.T / PAGE_TEMPERATURE).softmax(1) / len(units)
        return _cover(torch.cat((question, page)), count)


def _cover(coverage: Tensor, count: int) -> Tensor:
    """Greedy maximum coverage of the rows of [M, N] by ``count`` columns."""
    best = coverage.new_zeros(len(coverage), 1)
    order = torch.empty(count, dtype=torch.long, device=coverage.device)
    for k in range(count):
        gain = (coverage - best).clamp_min_(0).sum(0).index_fill_(0, order[:k], -1.0)
        order[k] = gain.argmax()
        best = torch.maximum(best, coverage[:, order[k], None])
    return order
