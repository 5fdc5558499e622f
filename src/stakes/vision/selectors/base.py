"""The base of selectors that choose tokens before the language model, and the checks of what they return.

A selector names the visual tokens that deletion keeps: sorted, unique, exactly ``budget`` of them, ties to the lowest
index. Write one method in one file and add a line to the table in ``__init__``:

    @dataclass(frozen=True)
    class Saliency(Selector):
        name: ClassVar[str] = "saliency"

        def rank(self, scene: Scene, count: int) -> Tensor:
            return top(scene.features.float().norm(dim=-1), count)

The base class checks the result. Selectors that drop tokens inside the language model derive from ``LayerSelector``
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
from stakes.vision.geometry import whole_number


@dataclass(frozen=True)
class Scene:
    """All that a selector may look at before the first decoder layer; N visual tokens in reading order.

    ``features``: [N, D] merged features, as the language model receives them. ``question``: [L, D] input embeddings
    of the question's tokens, only where the selector sets ``per_image = False``. ``sample``: what random choices are
    seeded with. ``received``: [N] encoder attention that each token received. ``keys``: [N, h] head-mean keys of the
    same encoder block. The last two only where the selector sets ``needs_encoder_attention``.
    """

    features: Tensor
    question: Tensor | None = None
    sample: str = ""
    received: Tensor | None = None
    keys: Tensor | None = None
    rankings: dict[Selector, Tensor] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Selector:
    """Keeps ``budget`` of N visual tokens before the first decoder layer. Override ``rank``, or ``choose``.

    ``blank``: the tolerance with which tokens without ink are dropped before the vision encoder (``blank+`` before the
    selector's name); None: the encoder reads them all. The selector then chooses among what the encoder read.
    """

    name: ClassVar[str]
    needs_encoder_attention: ClassVar[bool] = False
    together: ClassVar[bool] = False  # whether ``rank_many`` is faster than ``rank`` one by one
    per_image: ClassVar[bool] = True  # the ranking depends on the image alone, so one serves all questions and budgets
    blank: int | None = field(default=None, kw_only=True)

    @property
    def merges(self) -> bool:
        """Whether kept tokens absorb others; merged tokens count as tokens."""
        return False

    def rank(self, scene: Scene, count: int) -> Tensor:
        """[count] indices, the most valuable first; the first k of them are the choice at budget k (nested)."""
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
            # On a GPU the cost of a ranking grows with its length, and most images have one question.
            once = known is None and scene.features.is_cuda
            scene.rankings[self] = self.rank(scene, budget if once else len(scene.features))
        return Selection(scene.rankings[self][:budget])

    def rank_ahead(self, scenes: Sequence[Scene], counts: Sequence[int]) -> None:
        """Rank several images for later selections. The inputs are checked, and the host waits for the GPU once.

        The rankings are stored on the host, where selections are made of them.
        """
        ranked = self.rank_many(scenes, counts)
        order = copy_to_host(torch.cat(ranked))
        extremes = input_extremes(scenes)
        wait_for(scenes[0].features)
        check_finite(extremes, self.name)
        for scene, ranking in zip(scenes, torch.split(order, [len(one) for one in ranked]), strict=True):
            scene.rankings[self] = ranking.clone()  # a view would hold the memory of all rankings

    def select(self, scene: Scene, budget: int) -> Selection:
        """``choose``, checked: exactly ``budget`` sorted unique indices of this image."""
        check_budget(budget, len(scene.features))
        extremes = {} if self in scene.rankings else input_extremes([scene])  # a stored ranking was checked
        if not scene.features.is_cuda:
            check_finite(extremes, self.name)
        return self.select_unchecked(scene, budget, extremes)

    def select_unchecked(self, scene: Scene, budget: int, extremes: dict[str, Tensor]) -> Selection:
        """``select`` that ranks before ``extremes`` are known to be finite, so that the host waits for the GPU once."""
        try:
            choice = self.choose(scene, budget)
            if extremes and not choice.indices.is_cuda:
                wait_for(scene.features)
            return checked(choice, budget, len(scene.features), self.name, extremes)
        except BadInput:
            scene.rankings.pop(self, None)
            raise


def check_budget(budget: int, native: int) -> None:
    """A budget is a whole number from 1 to the image's native tokens; nothing is clamped."""
    if whole_number(budget, "a budget", "visual tokens") > native:
        raise LedgerBreach(f"a budget of {budget} visual tokens exceeds the image's {native}; give at most {native}")


def input_extremes(scenes: Sequence[Scene]) -> dict[str, Tensor]:
    """Least and greatest value of each input of a selector, being copied to the host; read them after ``wait_for``.

    Both are NaN where any value is. 0.8 ms for 1,296 x 3,584 features on one core, where ranking them by redundancy
    takes 180.
    """
    values: dict[str, list[Tensor]] = {}
    for scene in scenes:
        for name in ("features", "question", "received", "keys"):
            tensor = getattr(scene, name)
            if tensor is not None and tensor.numel():
                values.setdefault(name, []).extend(tensor.aminmax())
    return {name: copy_to_host(torch.stack(some)) for name, some in values.items()}


def check_finite(extremes: dict[str, Tensor], selector: str) -> None:
    """Only finite numbers can be ranked: one NaN of a half-precision overflow would make an arbitrary choice."""
    for name, values in extremes.items():
        if not bool(values.isfinite().all()):
            raise BadInput(
                f"selector {selector!r} cannot rank tokens whose {name} are not all finite numbers (NaN or infinity); "
                "load the model in bfloat16 or float32"
            )


def copy_to_host(values: Tensor) -> Tensor:
    """A host copy to be read after ``wait_for``. Only CUDA copies are asynchronous; others are done on return."""
    return values.to("cpu", non_blocking=values.is_cuda)


def wait_for(values: Tensor) -> None:
    """Wait until all queued work of the tensor's device is done."""
    if values.is_cuda:
        torch.cuda.current_stream(values.device).synchronize()


def checked(
    selection: Selection, budget: int, native: int, name: str, extremes: dict[str, Tensor] | None = None
) -> Selection:
    """The selection in sequence order, on the host, after asserting that it spends the budget exactly.

    The host waits for the GPU once: indices and ``extremes`` of what was ranked are read together.
    """
    there = copy_to_host(selection.indices)
    wait_for(selection.indices)
    check_finite(extremes or {}, name)
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
