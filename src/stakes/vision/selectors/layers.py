"""The base of selectors that drop tokens inside the language model.

A selector names its stages, (layer, keep): before decoder layer ``layer`` runs, all but ``keep`` visual tokens leave
the sequence for this layer and all later ones, and those layers' KV caches. Its budget is what remains after the last
stage or, with ``count=layers``, the mean over all layers of what each sees. One method chooses, seeing one unpadded
sequence; ``deletion.inside_layers.dropping`` does the rest.

    with dropping(model.model.language_model, batch, FastV(), budgets) as drops:
        ...prefill and decode...
    drops.counts          # visual tokens that each decoder layer saw, by request
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor

from stakes.errors import BadInput, InfeasibleBudget
from stakes.vision.deletion.exact import Selection, upload
from stakes.vision.selectors.attention import decoder_keys, decoder_rows
from stakes.vision.selectors.base import check_budget, checked


class Stage(NamedTuple):
    """From decoder layer ``layer`` on (0 is the first), ``keep`` visual tokens remain."""

    layer: int
    keep: int


@dataclass(frozen=True)
class LayerView:
    """One request's sequence, without padding, before decoder layer ``index``; T tokens, n of them visual.

    ``hidden``: [T, D] input of the layer. ``before``: [T, D] input of layer ``index - 1``. ``cos``, ``sin``: [T, h]
    rotary factors. ``visual``: [n] columns of the image tokens. ``columns``: [T] the column that each token had in the
    unpruned prompt. ``inputs``: [T0, D] embeddings of the unpruned prompt. ``norm``: the decoder's last normalization.
    """

    index: int
    layers: Any
    hidden: Tensor
    before: Tensor
    cos: Tensor
    sin: Tensor
    visual: Tensor
    columns: Tensor
    inputs: Tensor
    norm: Any

    def attention(self, rows: Tensor, of: Literal["previous", "this"] = "previous") -> Tensor:
        """[H, R, T] attention of the query rows, of the layer just run or of the one about to run."""
        layer, hidden = (self.index - 1, self.before) if of == "previous" else (self.index, self.hidden)
        return decoder_rows(self.layers[layer], hidden, self.cos, self.sin, rows)

    def keys(self) -> Tensor:
        """[T, H, h] keys of the layer just run, after RoPE."""
        return decoder_keys(self.layers[self.index - 1], self.before, self.cos, self.sin)


@dataclass(frozen=True)
class LayerSelector(ABC):
    """Drops tokens at its stages. Override ``stages`` and ``choose``; an own ``__post_init__`` must call this one.

    ``count``: what a budget counts, the tokens ``left`` after the last drop or their mean over all ``layers``.
    """

    name: ClassVar[str]
    count: Literal["left", "layers"] = field(default="left", kw_only=True)

    def __post_init__(self) -> None:
        if self.count not in ("left", "layers"):
            raise BadInput(
                f"{self.name} counts the tokens that are left, count=left, or their mean over layers, count=layers, "
                f"not {self.count!r}"
            )

    @property
    def merges(self) -> bool:
        """Whether kept tokens absorb others; merged tokens count as tokens."""
        return False

    @abstractmethod
    def stages(self, native: int, budget: int, depth: int) -> tuple[Stage, ...]:
        """Where and how far to drop in a decoder of ``depth`` layers; the last ``keep`` is the budget."""

    @abstractmethod
    def choose(self, view: LayerView, keep: int) -> Selection:
        """Which ``keep`` of the view's n visual tokens stay: indices 0..n-1 into ``view.visual``."""

    def plan(self, native: int, budget: int, depth: int) -> tuple[Stage, ...]:
        """``stages``, checked: ascending layers inside the decoder, counts that never grow, the budget at the end."""
        check_budget(budget, native)
        if budget == native:
            return ()
        stages = self.stages(native, budget, depth)
        layers, keeps = [stage.layer for stage in stages], [native, *(stage.keep for stage in stages)]
        if not stages or layers != sorted(set(layers)) or layers[0] < 1 or layers[-1] >= depth:
            raise BadInput(f"selector {self.name!r} drops at layers {layers}, which a decoder of {depth} has not all")
        if keeps != sorted(keeps, reverse=True) or keeps[-1] != budget:
            raise BadInput(f"selector {self.name!r} keeps {keeps[1:]} of {native}, which does not end at {budget}")
        return stages

    def select(self, view: LayerView, keep: int) -> Selection:
        """``choose``, checked as for every selector; the indices are on the view's device."""
        selection = checked(self.choose(view, keep), keep, len(view.visual), self.name)
        return Selection(upload(selection.indices, view.visual.device), selection.merge)

    def average(self, native: int, budget: int, depth: int) -> float:
        """Layer-averaged visual tokens at this budget: (1/depth) sum over layers of the tokens that the layer sees."""
        counts = [native] * depth
        for stage in self.plan(native, budget, depth):
            counts[stage.layer :] = [stage.keep] * (depth - stage.layer)
        return sum(counts) / depth

    def left(self, native: int, budget: int, depth: int) -> int:
        """Tokens after the last drop at this budget, whichever of the two it counts."""
        return budget if self.count == "left" else self.budget_for(native, budget, depth)

    def budget_for(self, native: int, average: float, depth: int) -> int:
        """The most tokens to leave for a layer average of at most ``average``."""
        most = bisect_right(range(1, native + 1), average, key=lambda budget: self.average(native, budget, depth))
        if most == 0:
            floor = self.average(native, 1, depth)
            raise InfeasibleBudget(
                f"selector {self.name!r} cannot average {average} of {native} tokens over {depth} layers; its least is "
                f"{floor:.1f}, so that the smallest feasible budget is {math.ceil(floor)}"
            )
        return most
