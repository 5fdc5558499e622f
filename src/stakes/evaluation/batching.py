"""How is a batch answered? Its images read once, one request a pair, and whoever is at fault named.

    for batch, answers in in_turn(model)(asked, batches, Setting()):
        ...

That is the ``Answering`` of one model in this process, one batch after another; ``spread`` has the one that reaches
workers on many machines. Both ask through ``answer_batch``, so that an answer or an error is the same from either.
"""

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

from stakes.errors import BadInput, LedgerBreach, StakesError, UnreadableImage
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.items import Asked
from stakes.models.base import VLM, Answer, Request

# Who is answered together? Batches planned up front, so that a resumed run redoes a partial one whole.
#
# The plan depends on nothing but the order of the samples, their images, the budgets and the batch size:
#
# * a block is as many whole images as fill one batch with their questions, so an image's questions stay together;
# * within a block every lane is answered in turn. A lane gives each sample one budget: one point of the grid when
#   calibrating, one arm when comparing. So deletion encodes an image once for all its budgets while it is at hand,
#   resizing once per size, and a batch holds prompts of about one length.
#
# A lane's batches do not depend on lanes of other budgets: a grid that grows later leaves the old ones as they were.
#
#     >>> plan_batches(["a", "a", "b"], [[32, 32, 32], [64, 64, 64]], 2)
#     [((0, 32), (1, 32)), ((0, 64), (1, 64)), ((2, 32),), ((2, 64),)]
#
# Where many workers answer, a worker takes a stretch of batches on the same images, so that it too encodes an image
# once
# for all its budgets; where there are fewer such stretches than would keep all workers busy, they are cut.


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


Places = Mapping[int, Asked] | Sequence[Asked]  # samples by their place: all of them, or those that a worker was sent


class Answering(Protocol):
    """Who answers batches, each whole, in whatever order they are ready."""

    def __call__(
        self, asked: Sequence[Asked], batches: Sequence[Batch], setting: Setting
    ) -> Generator[tuple[Batch, list[Answer]]]:
        """Each batch with its answers, one for each pair."""
        ...


def in_turn(model: VLM) -> Answering:
    """One model in this process; a batch is asked when the one before has been dealt with."""

    def answering(
        asked: Sequence[Asked], batches: Sequence[Batch], setting: Setting
    ) -> Generator[tuple[Batch, list[Answer]]]:
        images = Images()
        for batch in batches:
            if answers_alone(model):
                yield from _answer_each(model, asked, batch, setting, images)
            else:
                yield batch, answer_batch(model, asked, batch, setting, images)

    return answering


def answers_alone(model: Any) -> bool:
    """Whether an answer does not depend on what else is asked, as behind a server: each is kept as soon as it comes."""
    return callable(getattr(model, "answer_each", None))


class Images:
    """The images of the batch at hand; what it shares with the batch before, as within a block, is not read again."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}

    def of(self, asked: Places, batch: Batch) -> list[Any]:
        """One image for each pair."""
        needed: dict[str, Asked] = {}
        for i, _ in batch:
            needed.setdefault(asked[i].digest, asked[i])
        self.held = {name: self.held[name] if name in self.held else one.load() for name, one in needed.items()}
        return [self.held[asked[i].digest] for i, _ in batch]


def answer_batch(model: VLM, asked: Places, batch: Batch, setting: Setting, images: Images) -> list[Answer]:
    """One answer for each pair; an error names the sample whose image is at fault, or all that were asked together."""
    pixels = images.of(asked, batch)
    requests = _requests(asked, batch, setting, pixels)
    try:
        answers = model.answer(requests)
    except StakesError as error:
        raise type(error)(f"{_culprit([asked[i] for i, _ in batch], pixels)}: {error}") from error
    if len(answers) != len(requests):
        raise LedgerBreach(f"the model gave {len(answers)} answers to {len(requests)} requests")
    return answers


def _answer_each(
    model: Any, asked: Places, batch: Batch, setting: Setting, images: Images
) -> Generator[tuple[Batch, list[Answer]]]:
    """Each pair by itself, in the order that answers come; an error comes after the answers that came before it."""
    pixels = images.of(asked, batch)
    try:
        for at, answer in model.answer_each(_requests(asked, batch, setting, pixels)):
            yield (batch[at],), [answer]
    except StakesError as error:
        raise type(error)(f"{_culprit([asked[i] for i, _ in batch], pixels)}: {error}") from error


def _requests(asked: Places, batch: Batch, setting: Setting, pixels: Sequence[Any]) -> list[Request]:
    return [
        Request(image, asked[i].question, budget, setting.mechanism, setting.selector, asked[i].id)
        for (i, budget), image in zip(batch, pixels, strict=True)
    ]


def _culprit(batch: Sequence[Asked], pixels: Sequence[Any]) -> str:
    """The sample whose image cannot be decoded, or else all that were asked together."""
    from stakes.vision.image.decode import open_image

    for one, image in zip(batch, pixels, strict=True):
        try:
            open_image(image)
        except UnreadableImage:
            return f"sample {one.id!r}"
    return f"sample {batch[0].id!r}" if len(batch) == 1 else f"samples {batch[0].id!r} to {batch[-1].id!r}"
