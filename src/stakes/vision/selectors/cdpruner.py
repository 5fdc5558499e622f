"""CDPruner (Zhang et al., 2025) keeps tokens that are diverse *and* relevant to the question.

Greedy MAP inference of a determinantal point process with kernel L_ij = r_i cos(f_i, f_j) r_j, by incremental Cholesky
in O(k^2 N):  gain_i = L_ii - sum_m c_mi^2,  pick the largest gain,  c_ki = (L_ji - sum_m c_mj c_mi) / sqrt(gain_j).

Relevance r is min-max normalized over the image's tokens. Here it is the mean cosine of a visual token with the
question's token embeddings, both in the language model's input space (the paper's LLaVA has a CLIP text tower for this;
Qwen-VL and SigLIP-based models do not). ``relevance="alike"`` (default) follows the paper's text: more similar is more
relevant. The public code negates the similarity: ``relevance="negated"``.

The kernel has at most as many dimensions as a feature. Once they are spent all gains are rounding errors, and the rest
follows by max-min distance to what was chosen. The public code picks by the rounding errors.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from stakes.errors import BadInput
from stakes.vision.selectors.base import Scene, Selector
from stakes.vision.selectors.redundancy import extend_max_min


@dataclass(frozen=True)
class CDPruner(Selector):
    """Question-conditioned diversity."""

    name: ClassVar[str] = "cdpruner"
    per_image: ClassVar[bool] = False
    relevance: Literal["alike", "negated"] = "alike"

    def __post_init__(self) -> None:
        if self.relevance not in ("alike", "negated"):
            raise BadInput(f"cdpruner's relevance is 'alike' or 'negated', not {self.relevance!r}")

    def rank(self, scene: Scene, count: int) -> Tensor:
        """[count] indices in greedy order (nested for one question)."""
        if scene.question is None or len(scene.question) == 0:
            raise BadInput("cdpruner needs the question's tokens, and the question is empty")
        units = normalize(scene.features.float(), dim=-1)
        cosine = (units @ normalize(scene.question.float(), dim=-1).T).mean(1)
        cosine = cosine if self.relevance == "alike" else -cosine
        spread = (cosine.max() - cosine.min()).clamp_min(1e-12)
        weight = (cosine - cosine.min() + 1e-6) / spread if spread > 1e-12 else torch.ones_like(cosine)
        return extend_max_min(units, greedy_map(units * weight[:, None], count), count)


def greedy_map(factors: Tensor, count: int) -> Tensor:
    """Greedy MAP of the DPP with kernel ``factors @ factors.T``; factors: [N, D] -> [at most count] indices.

    It ends early where the kernel's rank is spent.
    """
    kernel = (factors @ factors.T).double()
    gain = kernel.diagonal().clone()
    floor = gain.max() * 1e-6
    basis = kernel.new_zeros(count, len(factors))
    order = torch.empty(count, dtype=torch.long, device=factors.device)
    for k in range(count):
        current = gain.argmax()
        if gain[current] <= floor:
            return order[:k]
        order[k] = current
        basis[k] = (kernel[current] - basis[:k].T @ basis[:k, current]) / gain[current].sqrt()
        gain = (gain - basis[k].square()).index_fill(0, order[: k + 1], -1.0)
    return order
