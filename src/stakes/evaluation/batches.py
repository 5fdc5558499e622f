"""Who is answered together? Batches planned up front, so that a resumed run redoes a partial one whole.

The plan depends on nothing but the order of the samples, their images, the budgets and the batch size:

* a block is as many whole images as fill one batch with their questions, so an image's questions stay together;
* within a block every lane is answered in turn. A lane gives each sample one budget: one point of the grid when
  calibrating, one arm when comparing. So deletion encodes an image once for all its budgets while it is at hand,
  resizing once per size, and a batch holds prompts of about one length.

A lane's batches do not depend on lanes of other budgets: a grid that grows later leaves the old ones as they were.

    >>> plan_batches(["a", "a", "b"], [[32, 32, 32], [64, 64, 64]], 2)
    [((0, 32), (1, 32)), ((0, 64), (1, 64)), ((2, 32),), ((2, 64),)]

Where many workers answer, a worker takes a stretch of batches on the same images, so that it too encodes an image once
for all its budgets; where there are fewer such stretches than would keep all workers busy, they are cut.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from stakes.errors import BadInput

BATCH = 32

Pair = tuple[int, int]  # (place of the sample, budget)
Batch = tuple[Pair, ...]


def plan_batches(images: Sequence[str], lanes: Sequence[Sequence[int]], size: int = BATCH) -> list[Batch]:
    """Every (sample, budget) of every lane exactly once; ``images`` names each sample's image."""
    if size < 1:
        raise BadInput(f"a batch holds at least one question, not {size}")
    for lane in lanes:
        if len(lane) != len(images):
            raise BadInput(f"a lane gives each of {len(images)} samples a budget, not {len(lane)}")
    batches: list[Batch] = []
    for block in _blocks(images, size):
        planned: set[Pair] = set()
        for lane in lanes:
            pairs = [(i, lane[i]) for i in block if (i, lane[i]) not in planned]
            planned.update(pairs)
            batches.extend(tuple(pairs[at : at + size]) for at in range(0, len(pairs), size))
    return batches


def plan_some(
    images: Sequence[str], lanes: Sequence[Sequence[int]], wanted: Collection[Pair], size: int = BATCH
) -> list[Batch]:
    """The plan for some pairs only, as if no other samples were there.

    >>> plan_some(["a", "b", "c"], [[32, 32, 32], [64, 64, 64]], {(0, 32), (2, 32), (2, 64)}, 2)
    [((0, 32), (2, 32)), ((2, 64),)]
    """
    places = [i for i in range(len(images)) if any((i, lane[i]) in wanted for lane in lanes)]
    plan = plan_batches([images[i] for i in places], [[lane[i] for i in places] for lane in lanes], size)
    some = [tuple((places[i], b) for i, b in batch if (places[i], b) in wanted) for batch in plan]
    return [batch for batch in some if batch]


def _blocks(images: Sequence[str], size: int) -> Iterator[list[int]]:
    """Places of the samples, image by image in the order of first appearance, cut where a batch is full."""
    pages: dict[str, list[int]] = {}
    for place, image in enumerate(images):
        pages.setdefault(image, []).append(place)
    block: list[int] = []
    for page in pages.values():
        if block and len(block) + len(page) > size:
            yield block
            block = []
        block = block + page
    if block:
        yield block


def stretches(images: Sequence[str], batches: Sequence[Batch], least: int) -> list[list[Batch]]:
    """Batches that share images, in the order of the plan; cut into at least ``least`` stretches if there are as many.

    >>> stretches("ab", [((0, 32),), ((0, 64),), ((1, 32),), ((1, 64),)], 2)
    [[((0, 32),), ((0, 64),)], [((1, 32),), ((1, 64),)]]
    """
    blocks: list[list[Batch]] = []
    at_hand: set[str] = set()
    for batch in batches:
        seen = {images[i] for i, _ in batch}
        if at_hand.isdisjoint(seen):
            blocks.append([])
            at_hand = set()
        blocks[-1].append(batch)
        at_hand |= seen
    pieces = -(-least // max(len(blocks), 1))
    cut: list[list[Batch]] = []
    for block in blocks:
        parts = min(pieces, len(block))
        bounds = [len(block) * k // parts for k in range(parts + 1)]
        cut.extend(block[start:end] for start, end in pairwise(bounds))
    return cut
