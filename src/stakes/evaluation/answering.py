"""How is a batch answered? Its images read once, one request a pair, and whoever is at fault named.

    for batch, answers in in_turn(model)(asked, batches, Setting()):
        ...

That is the ``Answering`` of one model in this process, one batch after another; ``spread`` has the one that reaches
workers on many machines. Both ask through ``answer_batch``, so that an answer or an error is the same from either.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol

from stakes.errors import LedgerBreach, StakesError, UnreadableImage
from stakes.evaluation.asked import Asked
from stakes.evaluation.batches import Batch
from stakes.evaluation.fingerprint import Setting
from stakes.models.base import VLM, Answer, Request

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
    from stakes.vision.decode import open_image

    for one, image in zip(batch, pixels, strict=True):
        try:
            open_image(image)
        except UnreadableImage:
            return f"sample {one.id!r}"
    return f"sample {batch[0].id!r}" if len(batch) == 1 else f"samples {batch[0].id!r} to {batch[-1].id!r}"
