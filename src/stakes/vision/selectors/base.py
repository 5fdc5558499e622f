"""What is a selector?

A selector names the visual tokens that deletion keeps: sorted, unique, exactly ``budget`` of them, ties to the lowest
index. Write one method in one file and add a line to the table in ``__init__``:

    @dataclass(frozen=True)
    class Saliency(Selector):
        name: ClassVar[str] = "saliency"

        def rank(self, scene: Scene, count: int) -> Tensor:
            return top(scene.features.float().norm(dim=-1), count)

The base checks what comes back. Selectors that drop inside the language model derive from ``LayerSelector``
(``layers.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from stakes.errors import BadInput, LedgerBreach
from stakes.vision.deletion import Selection


@dataclass(frozen=True)
class Scene:
    """All that a selector may look at before the first decoder layer; N visual tokens in reading order.

    ``features``: [N, D] merged features, as the language model receives them. ``question``: [L, D] input embeddings
    of the question's tokens. ``sample``: what the dice are seeded with. ``received``: [N] encoder attention that each
    token received. ``keys``: [N, h] head-mean keys of the same encoder block. The last two only where the selector
    says ``needs_encoder_attention``.
    """

    features: Tensor
    question: Tensor | None = None
    sample: str = ""
    received: Tensor | None = None
    keys: Tensor | None = None
    rankings: dict[Selector, Tensor] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Selector:
    """Keeps ``budget`` of N visual tokens before the first decoder layer. Override ``rank``, or ``choose``."""

    name: ClassVar[str]
    needs_encoder_attention: ClassVar[bool] = False
    per_image: ClassVar[bool] = True  # the ranking depends on the image alone, so one serves all questions and budgets

    @property
    def merges(self) -> bool:
        """Whether kept tokens take in others; merged tokens count as tokens."""
        return False

    def rank(self, scene: Scene, count: int) -> Tensor:
        """[count] indices, the most worth keeping first; the first k of them are the choice at budget k (nested)."""
        raise NotImplementedError

    def choose(self, scene: Scene, budget: int) -> Selection:
        """The selection at this budget: here the first ``budget`` of the ranking."""
        if not self.per_image:
            return Selection(self.rank(scene, budget))
        if self not in scene.rankings:
            scene.rankings[self] = self.rank(scene, len(scene.features))
        return Selection(scene.rankings[self][:budget])

    def select(self, scene: Scene, budget: int) -> Selection:
        """``choose``, checked: exactly ``budget`` sorted unique indices of this image."""
        check_budget(budget, len(scene.features))
        if self not in scene.rankings:  # what was ranked was checked
            check_finite(scene, self.name)
        return checked(self.choose(scene, budget), budget, len(scene.features), self.name)


def check_budget(budget: int, native: int) -> None:
    """A budget is a whole number from 1 to the image's native tokens; nothing is clamped."""
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise BadInput(f"a budget is a whole number of at least one visual token, not {budget!r}")
    if budget > native:
        raise LedgerBreach(f"a budget of {budget} visual tokens exceeds the image's {native}; give at most {native}")


def check_finite(scene: Scene, name: str) -> None:
    """Numbers alone can be ranked: one NaN of a half-precision overflow would make a choice that only looks like one.

    The least and the greatest value are NaN where any value is: 0.8 ms for 1,296 x 3,584 features on one core, where
    ranking them by redundancy takes 180. A GPU is waited for once a tensor, as ``checked`` does anyway.
    """
    seen = {"features": scene.features, "question": scene.question, "received": scene.received, "keys": scene.keys}
    for what, values in seen.items():
        if values is not None and values.numel() and not torch.stack(values.aminmax()).isfinite().all():
            raise BadInput(
                f"selector {name!r} cannot rank tokens whose {what} are not all finite numbers (NaN or infinity); "
                "load the model in bfloat16 or float32"
            )


def checked(selection: Selection, budget: int, native: int, name: str) -> Selection:
    """The selection in sequence order, after asserting that it spends the budget exactly."""
    indices, order = selection.indices.sort()
    unique = len(indices) < 2 or bool((indices[1:] > indices[:-1]).all())
    inside = len(indices) == 0 or (int(indices[0]) >= 0 and int(indices[-1]) < native)
    if len(indices) != budget or not unique or not inside:
        raise LedgerBreach(
            f"selector {name!r} returned {len(indices)} indices ({'' if unique else 'not '}unique, "
            f"{'' if inside else 'not '}inside 0..{native - 1}) for a budget of {budget}"
        )
    merge = selection.merge[order] if selection.merge is not None else None
    return Selection(indices, merge)


def top(scores: Tensor, count: int) -> Tensor:
    """[N] -> [count] indices of the highest scores, highest first; a tie goes to the lowest index."""
    return torch.sort(scores, descending=True, stable=True).indices[:count]
