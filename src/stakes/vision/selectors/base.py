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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from stakes.errors import BadInput, LedgerBreach
from stakes.vision.deletion.exact import Selection, upload


@dataclass(frozen=True)
class Scene:
    """All that a selector may look at before the first decoder layer; N visual tokens in reading order.

    ``features``: [N, D] merged features, as the language model receives them. ``question``: [L, D] input embeddings
    of the question's tokens, only where the selector says ``per_image = False``. ``sample``: what the dice are seeded
    with. ``received``: [N] encoder attention that each token received. ``keys``: [N, h] head-mean keys of the same
    encoder block. The last two only where the selector says ``needs_encoder_attention``.
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
    together: ClassVar[bool] = False  # whether ``rank_many`` is faster than ``rank`` one by one
    per_image: ClassVar[bool] = True  # the ranking depends on the image alone, so one serves all questions and budgets

    @property
    def merges(self) -> bool:
        """Whether kept tokens take in others; merged tokens count as tokens."""
        return False

    def rank(self, scene: Scene, count: int) -> Tensor:
        """[count] indices, the most worth keeping first; the first k of them are the choice at budget k (nested)."""
        raise NotImplementedError

    def rank_many(self, scenes: Sequence[Scene], counts: Sequence[int]) -> list[Tensor]:
        """``rank`` of several images; in one call where ``together``."""
        return [self.rank(scene, count) for scene, count in zip(scenes, counts, strict=True)]

    def choose(self, scene: Scene, budget: int) -> Selection:
        """The selection at this budget: here the first ``budget`` of the ranking."""
        if not self.per_image:
            return Selection(self.rank(scene, budget))
        known = scene.rankings.get(self)
        if known is None or len(known) < budget:
            # On a GPU a ranking costs by its length, and most images are asked about once.
            once = known is None and scene.features.is_cuda
            scene.rankings[self] = self.rank(scene, budget if once else len(scene.features))
        return Selection(scene.rankings[self][:budget])

    def rank_ahead(self, scenes: Sequence[Scene], counts: Sequence[int]) -> None:
        """Rank several images for the selections to come; what is ranked is checked, and the host waits once.

        The rankings are kept on the host, where selections are made of them.
        """
        ranked = self.rank_many(scenes, counts)
        there = on_its_way(torch.cat(ranked))
        seen = extremes(scenes)
        wait(scenes[0].features)
        check_extremes(seen, self.name)
        for scene, ranking in zip(scenes, torch.split(there, [len(one) for one in ranked]), strict=True):
            scene.rankings[self] = ranking.clone()  # or one image would keep the numbers of all

    def select(self, scene: Scene, budget: int) -> Selection:
        """``choose``, checked: exactly ``budget`` sorted unique indices of this image."""
        check_budget(budget, len(scene.features))
        if self not in scene.rankings:  # what was ranked was checked
            if scene.features.is_cuda:
                return self.select_unseen(scene, budget)
            check_finite(scene, self.name)
        return checked(self.choose(scene, budget), budget, len(scene.features), self.name)

    def select_unseen(self, scene: Scene, budget: int) -> Selection:
        """The same, ranked before anybody knows that these are numbers: the host hears of both, and waits, once."""
        seen = extremes([scene])
        try:
            found = self.choose(scene, budget)
            if not found.indices.is_cuda:  # ``checked`` would have nothing to wait for
                wait(scene.features)
            return checked(found, budget, len(scene.features), self.name, seen)
        except BadInput:
            scene.rankings.pop(self, None)
            raise


def check_budget(budget: int, native: int) -> None:
    """A budget is a whole number from 1 to the image's native tokens; nothing is clamped."""
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise BadInput(f"a budget is a whole number of at least one visual token, not {budget!r}")
    if budget > native:
        raise LedgerBreach(f"a budget of {budget} visual tokens exceeds the image's {native}; give at most {native}")


def check_finite(scene: Scene, name: str) -> None:
    """Numbers alone can be ranked: one NaN of a half-precision overflow would make a choice that only looks like one.

    The least and the greatest value are NaN where any value is: 0.8 ms for 1,296 x 3,584 features on one core, where
    ranking them by redundancy takes 180.
    """
    seen = extremes([scene])
    wait(scene.features)
    check_extremes(seen, name)


def extremes(scenes: Sequence[Scene]) -> dict[str, Tensor]:
    """The least and the greatest values of whatever a selector may look at, on their way to the host: ``wait``."""
    found: dict[str, list[Tensor]] = {}
    for scene in scenes:
        looks = {"features": scene.features, "question": scene.question, "received": scene.received, "keys": scene.keys}
        for what, values in looks.items():
            if values is not None and values.numel():
                found.setdefault(what, []).extend(values.aminmax())
    return {what: on_its_way(torch.stack(values)) for what, values in found.items()}


def check_extremes(seen: dict[str, Tensor], name: str) -> None:
    """``check_finite`` of values that have arrived."""
    for what, values in seen.items():
        if not bool(values.isfinite().all()):
            raise BadInput(
                f"selector {name!r} cannot rank tokens whose {what} are not all finite numbers (NaN or infinity); "
                "load the model in bfloat16 or float32"
            )


def on_its_way(values: Tensor) -> Tensor:
    """A copy on the host, to be read after ``wait``, which knows of CUDA's copies alone: others are waited for here."""
    return values.to("cpu", non_blocking=values.is_cuda)


def wait(values: Tensor) -> None:
    """Until all that was asked of the tensor's device is done."""
    if values.is_cuda:
        torch.cuda.current_stream(values.device).synchronize()


def checked(
    selection: Selection, budget: int, native: int, name: str, seen: dict[str, Tensor] | None = None
) -> Selection:
    """The selection in sequence order, on the host, after asserting that it spends the budget exactly.

    A GPU is waited for once: indices and ``seen``, the ``extremes`` of what was ranked, are looked at on the host.
    """
    there = on_its_way(selection.indices)
    wait(selection.indices)
    check_extremes(seen or {}, name)
    indices, order = there.long().sort()
    unique = len(indices) < 2 or bool((indices[1:] > indices[:-1]).all())
    inside = len(indices) == 0 or (int(indices[0]) >= 0 and int(indices[-1]) < native)
    if len(indices) != budget or not unique or not inside:
        raise LedgerBreach(
            f"selector {name!r} returned {len(indices)} indices ({'' if unique else 'not '}unique, "
            f"{'' if inside else 'not '}inside 0..{native - 1}) for a budget of {budget}"
        )
    merge = selection.merge[upload(order, selection.merge.device)] if selection.merge is not None else None
    return Selection(indices, merge)


def top(scores: Tensor, count: int) -> Tensor:
    """[N] -> [count] indices of the highest scores, highest first; a tie goes to the lowest index."""
    return torch.sort(scores, descending=True, stable=True).indices[:count]
