"""Which tokens did deletion keep? The selector asked again on the page, as a grid of bits for drawing.

Only where that can be known without answering: selectors before the first decoder layer, of models whose tokens form
one grid. Others are left out with the reason.
"""

import base64
from collections.abc import Sequence
from typing import Any

from stakes.errors import BadInput


def kept_masks(
    model: Any, image: Any, question: str, sample: str, native: int, selectors: Sequence[str], budgets: Sequence[int]
) -> tuple[tuple[int, int], dict[int, dict[str, str]], list[str]]:
    """(rows, columns) of the token grid, bits by budget and selector, and why a selector is left out.

    ``native``: the page's tokens in the run; a model that makes another number of them is not the run's.
    Bit i of a mask (lowest bit of a byte first) is the token at row i // columns, column i % columns.
    """
    import torch

    from stakes.vision.selectors import make
    from stakes.vision.selectors.base import Scene, Selector

    masks: dict[int, dict[str, str]] = {budget: {} for budget in budgets}
    left_out: list[str] = []
    grid = (0, 0)
    with torch.inference_mode():
        words = model.processor.question_ids(question).to(model.device)
        asked = model.model.get_input_embeddings()(words)
        seen_by: dict[bool, Any] = {}  # encoding is the slow part: once for all selectors that need the same of it
        for spec in selectors:
            selector = make(spec)
            if not isinstance(selector, Selector):
                left_out.append(f"{spec} drops tokens inside the model, layer by layer, so there is no one set to draw")
                continue
            attention = selector.needs_encoder_attention
            if attention not in seen_by:
                seen_by[attention] = model.encode(image, exact=False, attention=attention)
            seen = seen_by[attention]
            if seen.grid is None:
                left_out.append(f"the tokens of {model.family} do not form one grid, so they are not drawn")
                continue
            count = len(seen.features)
            if count != native:
                raise BadInput(
                    f"this model makes {count} tokens of the page of sample {sample!r}, and the run's made {native}; "
                    "give the model that the run was made with"
                )
            merge = round((seen.grid[1] * seen.grid[2] / count) ** 0.5)
            grid = (seen.grid[1] // merge, seen.grid[2] // merge)
            scene = Scene(features=seen.features, question=asked, sample=sample, received=seen.received, keys=seen.keys)
            for budget in budgets:
                masks[budget][spec] = bits(selector.select(scene, budget).indices.tolist(), count)
    return grid, masks, left_out


def bits(indices: Sequence[int], count: int) -> str:
    """Indices as base64 of ``count`` bits, the lowest bit of each byte first."""
    packed = bytearray((count + 7) // 8)
    for i in indices:
        packed[i >> 3] |= 1 << (i & 7)
    return base64.b64encode(bytes(packed)).decode()
