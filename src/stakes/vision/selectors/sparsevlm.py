"""SparseVLM (Zhang et al., 2024): words of the question rate the visual tokens; some of the dropped ones are merged.

Raters, from the input embeddings V [N, D] of the image and T [L, D] of the text after it:

    r_t = mean over v of softmax_t(V T^T)         t rates where r_t > mean(r); all of them where none does

After layers 2, 6 and 15 (from 0; run at full length) score_i is that layer's post-softmax attention to visual token i,
mean over heads and raters; the highest stay. Of the p that do not, the best int(0.3 p) + 1 are recycled: density-peak
clustering into a tenth of their number + 1, each cluster one token, the mean of its members.

Counts. The budget is what remains after the last drop, clusters included. The counts of the earlier drops are those of
the released table (576 tokens, drops for "64" to "192"), read as ratios and interpolated in budget / native: v1's plus
its clusters with ``merge=True`` (default, as published), v2's (SparseVLM+) with ``merge=False``. Of ``keep`` tokens, m
are clusters, where m is what the release makes of n - keep + m pruned tokens, but at most half. The paper (and the
first release) count by the rank of a matrix, which differs by question; no exact budget allows that, and the later
releases dropped it too.

Layers. In a decoder of less than 32 layers the drop after layer l comes before layer round((l + 1) depth / 32), at
least one after the drop before it; with less than four layers the first drops are left out. ``layers=(2,6,15)`` sets
them.

Differences from the public code: positions are kept, and a cluster has the position of its center (v1 renumbers the
sequence and puts clusters behind the kept tokens); ties go to the lowest index, where v1 adds random noise of 1e-6.
v2's division by a rotary bias and its fixed 14 heads are not offered.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from stakes.errors import BadInput
from stakes.vision.deletion.exact import Selection
from stakes.vision.selectors.base import top
from stakes.vision.selectors.layers import LayerSelector, LayerView, Stage

LAYERS, DEPTH, NATIVE = (2, 6, 15), 32, 576
# Tokens after each drop, settings "64", "96", "128", "192", between nothing and everything. v1 counts 66 where 82
# remain: 510 pruned, 154 of them recycled into 16.
TABLE = {
    True: ((0, 0, 0), (82, 32, 18), (249, 55, 27), (312, 117, 39), (309, 204, 113), (NATIVE,) * 3),
    False: ((0, 0, 0), (66, 34, 20), (246, 54, 28), (238, 108, 60), (300, 200, 118), (NATIVE,) * 3),
}
ROWS_AT_A_TIME = 128


@dataclass(frozen=True)
class SparseVLM(LayerSelector):
    """Three drops by the attention of the raters. ``layers``: after which; None: the published ones, scaled."""

    name: ClassVar[str] = "sparsevlm"
    merge: bool = True
    layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.merge, bool):
            raise BadInput(f"sparsevlm takes merge=True or merge=False, not {self.merge!r}")
        layers = self.layers
        if layers is not None and not (isinstance(layers, tuple) and [type(n) for n in layers] == [int] * 3):
            raise BadInput(f"sparsevlm drops after three layers such as layers=(2,6,15), not {layers!r}")

    @property
    def merges(self) -> bool:
        """Yes, by default."""
        return self.merge

    def stages(self, native: int, budget: int, depth: int) -> tuple[Stage, ...]:
        """The table's ratios at this budget; they fall from column to column in every row, so the counts do too."""
        *columns, last = np.array(TABLE[self.merge]).T
        at = budget * NATIVE / native
        keeps = [*(round(native / NATIVE * float(np.interp(at, last, column))) for column in columns), budget]
        layers = scaled(depth) if self.layers is None else [layer + 1 for layer in self.layers]
        return tuple(Stage(layer, keep) for layer, keep in zip(layers, keeps[3 - len(layers) :], strict=True))

    def choose(self, view: LayerView, keep: int) -> Selection:
        """The best rated tokens; with merging, the last few of ``keep`` are clusters of the next best."""
        order = top(self.scores(view), len(view.visual))
        clusters = merged(len(order), keep) if self.merge else 0
        kept, pruned = order[: keep - clusters], order[keep - clusters :]
        if clusters == 0:
            return Selection(kept)
        recycled = pruned[: recyclable(len(pruned))].sort().values
        centers, owner = density_peaks(view.hidden[view.visual[recycled]].float(), clusters)
        weights = torch.zeros(keep, len(order), device=order.device)
        weights[torch.arange(len(kept)), kept] = 1
        weights[len(kept) + owner, recycled] = 1
        return Selection(torch.cat((kept, recycled[centers])), weights / weights.sum(1, keepdim=True))

    def scores(self, view: LayerView) -> Tensor:
        """[n] attention that each visual token receives from the raters, in the layer just run."""
        rows = raters(view)
        parts = [view.attention(some).mean(0).sum(0) for some in torch.split(rows, ROWS_AT_A_TIME)]
        return torch.stack(parts).sum(0)[view.visual] / len(rows)


def raters(view: LayerView) -> Tensor:
    """[R] rows of the raters. They depend on the input embeddings alone, so they are the same at every stage."""
    text = torch.ones(len(view.columns), dtype=torch.bool, device=view.columns.device)
    text[view.visual] = False
    image = torch.ones(len(view.inputs), dtype=torch.bool, device=view.columns.device)
    image[view.columns[text]] = False  # no text ever leaves, so all other columns of the unpruned prompt are the image
    rows = (text & (view.columns > image.nonzero().max())).nonzero()[:, 0]
    if len(rows) == 0:
        raise BadInput("sparsevlm lets the text after the image rate it, and this prompt has none")
    pixels, words = view.inputs[image].float(), view.inputs[view.columns[rows]].float()
    rating = (pixels @ words.T).softmax(1).mean(0)
    chosen = rows[rating > rating.mean()]
    return chosen if len(chosen) else rows


def scaled(depth: int) -> list[int]:
    """The layers before which tokens leave a decoder of ``depth`` layers: 3, 7, 16 from 32 layers on."""
    before = [0]
    for layer in LAYERS[max(0, len(LAYERS) + 1 - depth) :]:
        before.append(max(before[-1] + 1, int((layer + 1) * min(1.0, depth / DEPTH) + 0.5)))
    return before[1:]


def recyclable(pruned: int) -> int:
    """How many of the pruned tokens are recycled: int(0.3 p) + 1."""
    return int(pruned * 0.3) + 1 if pruned else 0


def merged(native: int, keep: int) -> int:
    """How many of ``keep`` are clusters: the least m that is int(recyclable(native - keep + m) / 10) + 1."""
    if keep == native:
        return 0
    fits = (m for m in range(keep // 2) if recyclable(native - keep + m) // 10 + 1 <= m)
    return next(fits, keep // 2)


def density_peaks(points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Density-peak clustering: [n, D] -> centers [count] and, for each point, the number [n] of its center.

    With d = L2 / sqrt(D): density = exp(-mean of d^2 to the ``count`` nearest, itself included). Centers have the
    highest density * (d to the nearest denser point, or the largest d of all where there is none).
    """
    distance = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist") / points.shape[1] ** 0.5
    density = (-distance.topk(count, largest=False).values.square().mean(1)).exp()
    index = torch.arange(len(points), device=points.device)
    denser = (density > density[:, None]) | ((density == density[:, None]) & (index < index[:, None]))
    gap = torch.where(denser, distance, distance.max()).min(1).values
    centers = top(gap * density, count)
    owner = distance[:, centers].argmin(1)
    owner[centers] = index[:count]
    return centers, owner
